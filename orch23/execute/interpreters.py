"""Find the Python interpreter of a project and its version, from files, without starting it."""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from orch23.model.action import Interpreter
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError

_VERSION_IN_NAME = re.compile(r"(?:python|pypy)(\d+\.\d+)t?$")
_VERSION = re.compile(r"(\d+\.\d+)(?:\.|$)")
_PYTEST = re.compile(r"pytest-(\d+)[.\d].*\.(?:dist-info|egg-info)$")


class InterpreterFacts(Struct, frozen=True):
    """What counts for staleness: the version as X.Y, and pytest's major version, None where it has no pytest."""

    version: str
    pytest_major: str | None


def find_interpreter(declared: str | None, root: Path, environ: Mapping[str, str]) -> Path:
    """Return the declared interpreter, else the active virtual environment's, else `.venv`'s, else orch23's own.

    `declared` is a path (relative to the root), a virtual environment's folder, or a name to be found on PATH.
    The path is not resolved: a virtual environment is known by where its link stands.

    Raises:
        ConfigurationError: the declared one, or that of the active environment, is not there.

    """
    if declared is not None:
        return _declared(declared, root, environ)
    active = environ.get("VIRTUAL_ENV")
    if active:
        found = _in_environment(root / active)
        if found is None:
            raise _missing(active, "VIRTUAL_ENV names it", "deactivate it, make it anew, or set `python:`")
        return found
    return _in_environment(root / ".venv") or Path(sys.executable)


def matching_interpreter(wanted: Interpreter, root: Path, environ: Mapping[str, str]) -> Path:
    """Return the interpreter of this machine that an action of another machine needs.

    A path or an environment of that machine is not here: the default interpreter stands for it if it has the version.

    Raises:
        ConfigurationError: it is missing, or of another version.

    """
    try:
        path = find_interpreter(None if wanted.is_by_path else wanted.declared, root, environ)
    except ConfigurationError:
        if not wanted.version:
            raise
        path = find_interpreter(None, root, environ)
    check_interpreter(wanted, path, interpreter_facts(path))
    return path


def check_interpreter(wanted: Interpreter, path: Path, facts: InterpreterFacts) -> None:
    """Check that an interpreter is of the version that an action needs.

    Raises:
        ConfigurationError: it is not.

    """
    pytest = facts.pytest_major or ""
    if wanted.version in ("", facts.version) and wanted.pytest in ("", pytest):
        return
    needed, found = _named(wanted.version or facts.version, wanted.pytest), _named(facts.version, pytest)
    name = str(path) if wanted.declared is None or wanted.is_by_path else wanted.declared
    raise _missing(name, f"the stage needs {needed}, this is {found}", "install it")


def interpreter_facts(path: Path) -> InterpreterFacts:
    """Return the facts of an interpreter.

    Raises:
        ConfigurationError: nothing on disk says its version.

    """
    config = read_pyvenv_config(path.parent.parent / "pyvenv.cfg")
    version = _version(path, config)
    if version is None:
        message = f"the version of the interpreter {path} cannot be read from its files"
        raise ConfigurationError(
            Diagnostic("E481", message, hint="name pythonX.Y itself in `python:`, not a script that starts it")
        )
    return InterpreterFacts(version, _pytest_major(_libraries(path, version, config)))


def interpreter_candidates(declared: str | None, root: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Give every path that decides which interpreter `find_interpreter` finds, whether it is there or not."""
    if declared is None:
        yield root / (environ.get("VIRTUAL_ENV") or ".venv") / "bin" / "python"
        yield Path(sys.executable)
        return
    path = Path(os.path.normpath(root / Path(declared).expanduser()))
    yield path
    yield path / "bin" / "python"
    if "/" not in declared:
        yield from (Path(folder, declared) for folder in environ.get("PATH", os.defpath).split(os.pathsep) if folder)


def interpreter_files(path: Path) -> Iterator[Path]:
    """Give the files and folders that `interpreter_facts` takes its facts of an interpreter from."""
    config = path.parent.parent / "pyvenv.cfg"
    known = read_pyvenv_config(config)
    yield from (path, config)
    yield from _libraries(path, _version(path, known) or "", known)


def tool_digest(name: str, path_dirs: Iterable[str | Path]) -> str | None:
    """Return the sha256, in hex, of the program that a name stands for in these folders; None if there is none."""
    found = shutil.which(name, path=os.pathsep.join(str(folder) for folder in path_dirs))
    if found is None:
        return None
    with Path(found).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _declared(declared: str, root: Path, environ: Mapping[str, str]) -> Path:
    if "/" not in declared and not (root / declared).is_dir():
        on_path = shutil.which(declared, path=environ.get("PATH", os.defpath))
        if on_path is None:
            raise _missing(declared, "it is not on PATH", "install it, or give its path in `python:`")
        return Path(on_path).absolute()
    path = Path(os.path.normpath(root / Path(declared).expanduser()))
    if path.is_dir():
        found = _in_environment(path)
        if found is None:
            raise _missing(declared, "it is a folder without bin/python", "make a virtual environment there")
        return found
    if not _is_program(path):
        raise _missing(declared, "there is no program at that path", "make the environment, or correct `python:`")
    return path


def _missing(name: str, why: str, way_out: str) -> ConfigurationError:
    return ConfigurationError(Diagnostic("E480", f"no Python interpreter {name!r}: {why}", hint=way_out))


def _named(version: str, pytest: str) -> str:
    return f"Python {version} with pytest {pytest}" if pytest else f"Python {version}"


def _in_environment(folder: Path) -> Path | None:
    found = folder.absolute() / "bin" / "python"
    return found if _is_program(found) else None


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def read_pyvenv_config(path: Path) -> dict[str, str]:
    """Return the keys of a pyvenv.cfg; none where there is none."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, sign, value in pairs if sign}


def _version(path: Path, config: Mapping[str, str]) -> str | None:
    for key in ("version_info", "version"):
        if found := _VERSION.match(config.get(key, "")):
            return found[1]
    if path.exists() and Path(sys.executable).exists() and path.samefile(sys.executable):
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    if found := _VERSION_IN_NAME.search(path.resolve().name):
        return found[1]
    libraries = [p.name for p in path.resolve().parent.parent.glob("lib/python3.*") if (p / "os.py").is_file()]
    return libraries[0].removeprefix("python").removesuffix("t") if len(libraries) == 1 else None


def _libraries(path: Path, version: str, config: Mapping[str, str]) -> list[Path]:
    """Return the folders of installed packages, in the order they are searched."""
    if not config:
        return _system_libraries(path.resolve().parent.parent, version)
    prefix = path.parent.parent
    own = [prefix / lib / f"python{version}" / "site-packages" for lib in ("lib", "lib64")]
    if config.get("include-system-site-packages", "false").lower() == "true" and "home" in config:
        own.extend(_system_libraries(Path(config["home"]).parent, version))
    return own


def _system_libraries(prefix: Path, version: str) -> list[Path]:
    """Return where an interpreter outside any environment keeps its packages; Debian has folders of its own."""
    folders = [prefix / lib / f"python{version}" / "site-packages" for lib in ("lib", "lib64")]
    folders.append(prefix / "local" / "lib" / f"python{version}" / "dist-packages")
    folders.append(prefix / "lib" / f"python{version}" / "dist-packages")
    folders.append(prefix / "lib" / "python3" / "dist-packages")
    return folders


def has_installed_module(path: Path, name: str) -> bool:
    """Return whether an interpreter has a module of this name installed, other than from a folder of this machine.

    A project that is installed from its folder stands there under its own name.
    """
    version = _version(path, config := read_pyvenv_config(path.parent.parent / "pyvenv.cfg")) or ""
    for folder in _libraries(path, version, config):
        places = (folder / f"{name}.py", folder / name / "__init__.py", *folder.glob(f"{name}.*.so"))
        if any(place.is_file() for place in places):
            return not _is_local(folder, name)
    return False


def _is_local(folder: Path, name: str) -> bool:
    """Say whether a module was installed from a folder or file of this machine, as its distribution records it."""
    for origin in folder.glob("*.dist-info/direct_url.json"):
        try:
            record = (origin.parent / "RECORD").read_text("utf-8", "replace")
            if "file://" in origin.read_text("utf-8", "replace") and re.search(
                rf"^{re.escape(name)}(?:/|\.)", record, re.MULTILINE
            ):
                return True
        except OSError:
            continue
    return False


def _pytest_major(folders: Iterable[Path]) -> str | None:
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            if found := _PYTEST.match(name):
                return found[1]
    return None


SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
