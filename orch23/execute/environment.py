"""The environment of a process, made from nothing: the same on every machine but for the folders of its room."""

import re
from collections.abc import Mapping
from pathlib import Path

from orch23.decide.secrets import holds_secret
from orch23.execute.kinship import MARKER_NAME
from orch23.execute.rooms import ROOM_EPOCH, Room
from orch23.model.action import Action

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_ALLOWED = {("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")}  # what orch23 itself puts into the action of a pytest step
_COVERAGE = ".coverage"
_COMPILERS = ("compileall", "py_compile")
_CACHES = {
    "COVERAGE_FILE": _COVERAGE,
    "HYPOTHESIS_STORAGE_DIRECTORY": ".hypothesis",
    "MYPY_CACHE_DIR": ".mypy_cache",
    "PYTHONPYCACHEPREFIX": "pycache",
    "RUFF_CACHE_DIR": ".ruff_cache",
}
_REFUSED = re.compile(
    r"LD_.*|PYTEST_.*|GIT_.*|ORCH23_.*|SSH_AUTH_SOCK|HOME|TMPDIR"
    r"|(?:.*[^A-Za-z0-9_].*)|[0-9].*|",
    re.DOTALL,
)
_OF_PYTEST = frozenset(
    {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONSAFEPATH", "PYTHONUSERBASE"}
)


def refused_names(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that no step may be given: secrets, what steers loader, git and pytest, and what orch23 sets."""
    return tuple(
        sorted(
            name
            for name, value in env.items()
            if (name, value) not in _ALLOWED
            and (holds_secret(name) or _REFUSED.fullmatch(name.upper()) or "\0" in value)
        )
    )


def refused_for_pytest(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that would decide which pytest, or which code, is loaded; `pytest.pythonpath` is the way."""
    return tuple(sorted(_OF_PYTEST & set(env)))


def cache_folders(room: Room, action: Action) -> dict[str, str]:
    """Return what moves the caches of common tools below TMPDIR, for a step whose tree is read-only.

    Packages below HOME, where tests can write, are not looked for. Compiled files of Python are moved only for a
    command that compiles: Python then finds no others, and starts four times as slowly.
    """
    if action.writable is None:
        return {}
    moved = {name: f"{room.tmp}/{folder}" for name, folder in _CACHES.items()}
    if not any(program in word for word in action.argv for program in _COMPILERS):
        del moved["PYTHONPYCACHEPREFIX"]
    if any(path.rpartition("/")[2].startswith(_COVERAGE) for path in action.writable):
        del moved["COVERAGE_FILE"]
    return {**moved, "PYTHONNOUSERSITE": "1"}


def room_environment(room: Room, interpreter: Path, declared: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a process in a room; nothing of it is inherited."""
    directories = dict.fromkeys((str(interpreter.parent), *SYSTEM_PATH))
    return {
        "PATH": ":".join(directories),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": str(ROOM_EPOCH),
        **declared,
        "HOME": str(room.home),
        "TMPDIR": str(room.tmp),
        "GIT_CEILING_DIRECTORIES": str(room.root),  # without it git would find the project's own repository
        MARKER_NAME: room.marker,
    }
