"""Find the Python interpreter of a project and its version, from files, without starting it."""

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from orch23.model.action import Interpreter
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.patterns import lazy_pattern

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_VERSION_IN_NAME = lazy_pattern(r"(?:python|pypy)(\d+\.\d+)t?$")
_VERSION = lazy_pattern(r"(\d+\.\d+)(?:\.|$)")
_PYTEST = lazy_pattern(r"pytest-(\d++)\..*\.(?:dist-info|egg-info)$")


class InterpreterFacts(Struct, frozen=True):
    """The facts that staleness depends on: the version as X.Y, and the major version of pytest, or an empty text."""

    version: str
    pytest_major: str


def find_interpreter(declared: str | None, root: Path, environ: Mapping[str, str]) -> Path:
    """Return the declared interpreter, else the active virtual environment's, else `.venv`'s, else orch23's own.

    `declared` is a path (relative to the root), a virtual environment's folder, or a name on PATH. Links are not
    resolved: Python finds its virtual environment by the path of the link.

    Raises:
        ConfigurationError: the declared interpreter, or the active environment's, does not exist.
    """
    if declared is not None:
        return _declared(declared, root, environ)
    active = environ.get("VIRTUAL_ENV")
    found = _in_environment(root / (active or ".venv"))
    if found is None and active:
        raise _missing(active, "VIRTUAL_ENV names it", "deactivate it, create it again, or set `python:`")
    return found or Path(sys.executable)


def matching_interpreter(wanted: Interpreter, root: Path, environ: Mapping[str, str]) -> Path:
    """Return the interpreter of this machine for an action that was planned on another one.

    A path or a virtual environment of the other machine is replaced by the default interpreter of the same version.

    Raises:
        ConfigurationError: there is none, or it has another version.
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
    """Check that an interpreter has the versions that an action needs.

    Raises:
        ConfigurationError: it has others.
    """
    if wanted.version in ("", facts.version) and wanted.pytest in ("", facts.pytest_major):
        return
    needed, found = (
        f"Python {version} with pytest {major}" if major else f"Python {version}"
        for version, major in ((wanted.version or facts.version, wanted.pytest), (facts.version, facts.pytest_major))
    )
    name = str(path) if wanted.declared is None or wanted.is_by_path else wanted.declared
    raise _missing(name, f"the stage needs {needed}, this is {found}", "install it")


def interpreter_facts(path: Path) -> InterpreterFacts:
    """Return the facts of an interpreter.

    Raises:
        ConfigurationError: its version cannot be read from its files.
    """
    config = read_pyvenv_config(path.parent.parent / "pyvenv.cfg")
    version = _version(path, config)
    if version is None:
        message = f"the version of the interpreter {path} cannot be read from its files"
        hint = "name pythonX.Y itself in `python:`, not a script that starts it"
        raise ConfigurationError(Diagnostic("E481", message, hint=hint))
    return InterpreterFacts(version, _pytest_major(_libraries(path, version, config)))


def interpreter_candidates(declared: str | None, root: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield every path that decides what `find_interpreter` returns, whether it exists or not."""
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
    """Yield the files and folders that `interpreter_facts` reads."""
    yield from (path, path.parent.parent / "pyvenv.cfg")
    yield from package_folders(path)


def tool_digest(name: str, path_dirs: Iterable[str | Path]) -> str | None:
    """Return the sha256, in hex, of the program with this name in these folders; None if there is none."""
    found = find_program(name, os.pathsep.join(map(str, path_dirs)))
    return None if found is None else sha256_of(Path(found))


def sha256_of(path: Path) -> str:
    """Return the sha256, in hex, of a file.

    Raises:
        OSError: it cannot be read.
    """
    import hashlib  # noqa: PLC0415 - takes long to load, and few builds need it

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_program(name: str, path: str) -> str | None:
    """Return the path of the program with this name in a search path; None if there is none."""
    import shutil  # noqa: PLC0415 - loads compression libraries

    return shutil.which(name, path=path)


def _declared(declared: str, root: Path, environ: Mapping[str, str]) -> Path:
    if "/" not in declared and not (root / declared).is_dir():
        on_path = find_program(declared, environ.get("PATH", os.defpath))
        if on_path is None:
            raise _missing(declared, "it is not on PATH", "install it, or give its path in `python:`")
        return Path(on_path).absolute()
    path = Path(os.path.normpath(root / Path(declared).expanduser()))
    if path.is_dir():
        if (found := _in_environment(path)) is None:
            raise _missing(declared, "it is a folder without bin/python", "create a virtual environment there")
        return found
    if not is_program(path):
        raise _missing(declared, "there is no program at that path", "create the environment, or correct `python:`")
    return path


def _missing(name: str, why: str, hint: str) -> ConfigurationError:
    return ConfigurationError(Diagnostic("E480", f"no Python interpreter {name!r}: {why}", hint=hint))


def _in_environment(folder: Path) -> Path | None:
    found = folder.absolute() / "bin" / "python"
    return found if is_program(found) else None


def is_program(path: Path) -> bool:
    """Return whether a path is a file that can be executed."""
    # Unlike `Path.is_file`, this raises nothing below a folder that is closed.
    return os.path.isfile(path) and os.access(path, os.X_OK)


def read_pyvenv_config(path: Path) -> dict[str, str]:
    """Return the settings of a pyvenv.cfg; {} if there is no such file."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, sign, value in pairs if sign and "\0" not in value}


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


def package_folders(path: Path) -> list[Path]:
    """Return the folders of installed packages of an interpreter, in the order of `sys.path`; some may not exist."""
    config = read_pyvenv_config(path.parent.parent / "pyvenv.cfg")
    return _libraries(path, _version(path, config) or "", config)


def _libraries(path: Path, version: str, config: Mapping[str, str]) -> list[Path]:
    if not config:
        return _system_libraries(path.resolve().parent.parent, version)
    prefix = path.parent.parent
    own = [prefix / lib / f"python{version}" / "site-packages" for lib in ("lib", "lib64")]
    if config.get("include-system-site-packages", "false").lower() == "true" and "home" in config:
        own.extend(_system_libraries(Path(config["home"]).parent, version))
    return own


def _system_libraries(prefix: Path, version: str) -> list[Path]:
    """Return the package folders of an interpreter outside of environments. Those with `dist-packages` are Debian's."""
    python = f"python{version}"
    return [
        *(prefix / lib / python / "site-packages" for lib in ("lib", "lib64")),
        prefix / "local" / "lib" / python / "dist-packages",
        prefix / "lib" / python / "dist-packages",
        prefix / "lib" / "python3" / "dist-packages",
    ]


def has_module(path: Path, name: str) -> bool:
    """Return whether an interpreter has a module of this name, of the standard library or installed."""
    return name in sys.stdlib_module_names or any(
        (folder / f"{name}.py").is_file() or (folder / name).is_dir() or any(folder.glob(f"{name}.*.so"))
        for folder in package_folders(path)
    )


def is_namespace(path: Path, name: str) -> bool:
    """Return whether a name is an installed directory of packages without an `__init__.py`, as `google` is."""
    found = [folder for folder in package_folders(path) if _holds_code(folder / name)]
    return bool(found) and not any((one / name / "__init__.py").is_file() or _is_local(one, name) for one in found)


def _holds_code(folder: Path) -> bool:
    return any(folder.rglob("*.py")) or any(folder.rglob("*.so"))


def has_installed_module(path: Path, name: str) -> bool:
    """Return whether an interpreter has a module of this name installed, but not from a folder of this machine.

    A project that is installed from its own folder is such a module too, and does not count.
    """
    for folder in package_folders(path):
        candidates = (folder / f"{name}.py", *folder.glob(f"{name}.*.so"))
        if any(path.is_file() for path in candidates) or _holds_code(folder / name):
            return not _is_local(folder, name)
    return False


def _is_local(folder: Path, name: str) -> bool:
    """Return whether the records of a distribution say that a module came from a folder or file of this machine."""
    for origin in folder.glob("*.dist-info/direct_url.json"):
        with contextlib.suppress(OSError):
            record = (origin.parent / "RECORD").read_text("utf-8", "replace")
            is_here = re.search(rf"^{re.escape(name)}(?:/|\.)", record, re.MULTILINE) is not None
            if is_here and "file://" in origin.read_text("utf-8", "replace"):
                return True
    return False


def _pytest_major(folders: Iterable[Path]) -> str:
    for folder in folders:
        with contextlib.suppress(OSError):
            for found in filter(None, map(_PYTEST.match, sorted(os.listdir(folder)))):
                return found[1]
    return ""
