"""Describe how a process is started: environment, directories, and the interface of sandboxes."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Protocol

from msgspec import Struct

from orch23.decide.secrets import is_secret_name
from orch23.execute.interpreters import SYSTEM_PATH
from orch23.execute.process import ProcessOutcome
from orch23.execute.process_tree import MARKER_VARIABLE, ProcessTree
from orch23.execute.sandbox_dir import SANDBOX_EPOCH, SandboxDir
from orch23.execute.supervisor import Confinement
from orch23.model.action import DEFAULT_LIMITS, Action, StepLimits
from orch23.model.diagnostic import Diagnostic

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


def refused_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that no step may be given: secrets, what steers loader, git and pytest, and what orch23 sets."""
    return tuple(
        sorted(
            name
            for name, value in env.items()
            if (name, value) not in _ALLOWED
            and (is_secret_name(name) or _REFUSED.fullmatch(name.upper()) or "\0" in value)
        )
    )


def refused_pytest_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that would decide which pytest, or which code, is loaded; `pytest.pythonpath` is the way."""
    return tuple(sorted(_OF_PYTEST & set(env)))


def cache_variables(room: SandboxDir, action: Action) -> dict[str, str]:
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


def process_environment(room: SandboxDir, interpreter: Path, declared: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a process in a room; nothing of it is inherited."""
    directories = dict.fromkeys((str(interpreter.parent), *SYSTEM_PATH))
    return {
        "PATH": ":".join(directories),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": str(SANDBOX_EPOCH),
        **declared,
        "HOME": str(room.home),
        "TMPDIR": str(room.tmp),
        "GIT_CEILING_DIRECTORIES": str(room.root),  # without it git would find the project's own repository
        MARKER_VARIABLE: room.marker,
    }


class LaunchRefusedError(Exception):
    """Nothing was started, since it could not, or may not, be started as the sandbox would have it."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        """Keep what is to be told."""
        super().__init__(str(diagnostic))
        self.diagnostic = diagnostic


class Launch(Struct, frozen=True, kw_only=True):
    """What is about to be started: command, environment, room, folders it must be able to read, and how.

    `stdin` is what the process reads; a launcher may start it with another, and let the command read this one. `reads`
    are further paths that it must be able to read. With a `confinement` it is started by a supervisor, which holds it
    to that. `writable` are the paths of the room's tree that the process may write, beside HOME and TMPDIR; None means
    all of it. `gate` is called with the family of the process, once it is there. `judge` is told how it ended, and says
    how that is to be understood; it may raise LaunchRefusedError.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    room: SandboxDir
    interpreter: Path
    network: bool = False
    limits: StepLimits = DEFAULT_LIMITS
    writable: tuple[str, ...] | None = None
    reads: tuple[Path, ...] = ()
    pass_fds: tuple[int, ...] = ()
    stdin: int = DEVNULL
    confinement: Confinement | None = None
    gate: Callable[[ProcessTree], None] | None = None
    judge: Callable[[ProcessOutcome], ProcessOutcome] | None = None


class Launcher(Protocol):
    """The port of a sandbox."""

    @property
    def tier(self) -> str:
        """Name the sandbox as it is shown."""

    def seen(self, room: SandboxDir) -> SandboxDir:
        """Return the room with the paths that a process in it has to use."""

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Give the launch that runs this one confined; what it needs is held until the process has ended.

        Raises:
            LaunchRefusedError: it cannot, or may not, be run.
            OSError: its program is not there, or there is no room or descriptor left.

        """


class PlainLauncher:
    """No sandbox: the process may do what this user may."""

    tier = "none"

    def seen(self, room: SandboxDir) -> SandboxDir:
        """Return the room as it is."""
        return room

    @contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Give the launch as it is."""
        yield launch


class RefusingLauncher(Struct, frozen=True):
    """Starts nothing, and says why."""

    diagnostic: Diagnostic
    tier = "none"

    def seen(self, room: SandboxDir) -> SandboxDir:
        """Return the room as it is."""
        return room

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Refuse.

        Raises:
            LaunchRefusedError: always.

        """
        del launch
        raise LaunchRefusedError(self.diagnostic)
