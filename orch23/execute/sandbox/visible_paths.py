"""Determine what a step may see of the machine: system folders, settings, its interpreter."""

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from orch23.execute.interpreters import read_pyvenv_config

SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
"""Folders of programs and libraries; a link among them is given as a link."""

SETTINGS_FILES: Final = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/protocols", "/etc/services"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls", "/etc/pki/ca-trust", "/etc/crypto-policies"),
    "/etc/fonts",
)
"""What programs need of /etc; all of it can be read by everybody. Each costs a mount."""

OPTIONAL_SETTINGS: Final = (
    *("/etc/gitconfig", "/etc/bash.bashrc", "/etc/profile", "/etc/inputrc", "/etc/terminfo", "/etc/login.defs"),
    *("/etc/npmrc", "/etc/pip.conf", "/etc/networks", "/etc/rpc", "/etc/shells", "/etc/host.conf", "/etc/gai.conf"),
    *("/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/mime.types", "/etc/magic", "/etc/java"),
    *("/etc/os-release", "/etc/debian_version", "/etc/ca-certificates", "/etc/ca-certificates.conf"),
)
"""Settings without which programs go on, but not where they are there and cannot be read."""

NETWORK_SETTINGS: Final = ("/etc/resolv.conf",)
"""What names of other machines are looked up by."""

PROCESSORS_FOLDER = "/sys/devices/system/cpu"
"""Where programs count processors."""


_OF_AN_INSTALLATION: Final = {
    "": ("bin", "include", "lib", "lib64", "share", "BUILD", "LICENSE", "README"),
    "lib": ("python", "libpython", "pkgconfig", "tcl", "tk", "itcl", "thread", "lib"),
    "share": ("man", "doc", "python", "terminfo"),
}
"""How what is in the folders of an installed interpreter begins."""


@lru_cache(maxsize=16)
def readable_paths(closed: tuple[Path, ...] = ()) -> tuple[str, ...]:
    """Return all of the system that is there, once in a process; what lies in a folder that is named, not again.

    Of a folder with a closed place in it, such as a project below /usr, it names what is beside that. What an answer
    leaves out cannot be read, so that a path which comes later is only missed.
    """
    folders = tuple(path for path in SYSTEM_FOLDERS if os.path.isdir(path))
    whole = {path for path in folders if os.path.realpath(path) == path}
    inside = tuple(f"{path}/" for path in whole)
    closed_here = closed_in_system(closed)
    return (
        *(
            part
            for path in folders
            if path in whole or not f"{os.path.realpath(path)}/".startswith(inside)
            for part in _beside(path, closed_here)
        ),
        *(path for path in (*SETTINGS_FILES, *OPTIONAL_SETTINGS, PROCESSORS_FOLDER) if os.path.exists(path)),
    )


def closed_in_system(closed: tuple[Path, ...]) -> tuple[str, ...]:
    """Return where those closed places really are that are in one of the system's folders."""
    folders = tuple(f"{os.path.realpath(path)}/" for path in SYSTEM_FOLDERS if os.path.isdir(path))
    found = {os.path.realpath(place) for place in closed}
    return tuple(sorted(place for place in found if place.startswith(folders) and os.path.isdir(place)))


def _beside(path: str, closed: tuple[str, ...]) -> Iterator[str]:
    """Give a path where no closed place is in it; else what is in it, without that place."""
    if path in closed:
        return
    if not any(place.startswith(f"{os.path.realpath(path)}/") for place in closed):
        yield path
        return
    for name in sorted(os.listdir(path)):
        if not os.path.islink(f"{path}/{name}"):  # where it leads is given by its own name, or not at all
            yield from _beside(f"{path}/{name}", closed)


def interpreter_paths(interpreter: Path, closed: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return what an interpreter needs of the disk beyond the system's folders: its environment and its base.

    A prefix that holds a closed place, such as the user's home, is not given, nor is one in a closed place that holds
    more than an interpreter, such as ~/.local: then it is the interpreter alone and the libraries beside it.
    """
    beside = interpreter.parent.parent
    return _prefixes(
        interpreter,
        closed,
        (
            _stamp(interpreter, follow=False),
            *(
                _stamp(path)
                for path in (interpreter, beside / "pyvenv.cfg", *(beside / name for name in _OF_AN_INSTALLATION))
            ),
        ),
    )


def add_paths(found: tuple[Path, ...], reads: Iterable[Path]) -> tuple[Path, ...]:
    """Return prefixes with further paths: those that are not below another, nor in the system's folders.

    Prefixes stay: one below a system folder is in a place that is closed, such as a project in `/usr/src`.
    """
    more = (path for path in reads if not any(path.is_relative_to(one) for one in map(Path, SYSTEM_FOLDERS)))
    wanted = tuple(dict.fromkeys((*found, *more)))
    return tuple(path for path in wanted if not any(path != one and path.is_relative_to(one) for one in wanted))


def _stamp(path: Path, *, follow: bool = True) -> tuple[int, ...]:
    """Return what changes when a path is replaced or written; nothing where there is none."""
    try:
        status = os.stat(path, follow_symlinks=follow)
    except OSError:
        return ()
    return (status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _prefixes(interpreter: Path, closed: tuple[Path, ...], _: tuple[tuple[int, ...], ...]) -> tuple[Path, ...]:
    """Look for the prefixes; it takes some two hundred looks at the disk, and every process needs the answer."""
    found: dict[Path, None] = {}
    for program in _links(interpreter):
        for prefix in (program.parent.parent, *_home(program)):
            for path in _parts(prefix, program, closed):
                found.setdefault(path)
    hidden = closed_in_system(closed)
    paths = [path for path in found if path.exists() and not _is_of_system(path, hidden)]
    return tuple(path for path in paths if not any(path != other and path.is_relative_to(other) for other in paths))


def _is_of_system(path: Path, hidden: tuple[str, ...]) -> bool:
    """Return whether a path can be read anyway."""
    here = f"{path}/"
    return any(path.is_relative_to(system) for system in SYSTEM_FOLDERS) and not here.startswith(
        tuple(f"{p}/" for p in hidden)
    )


def _links(program: Path) -> Iterator[Path]:
    """Give a program's path, and where each link on the way to the file points; the folders' own links resolved too."""
    seen: set[Path] = set()
    path = Path(os.path.normpath(program))
    while path not in seen:
        seen.add(path)
        yield path
        yield path.parent.resolve() / path.name
        if path.is_symlink():
            path = Path(os.path.normpath(path.parent.resolve() / path.readlink()))


def _home(program: Path) -> Iterator[Path]:
    """Give the base of a virtual environment, as its pyvenv.cfg names it and where that really is."""
    home = read_pyvenv_config(program.parent.parent / "pyvenv.cfg").get("home")
    if home:
        base = Path(os.path.normpath(home)).parent
        yield base
        yield base.resolve()


def _parts(prefix: Path, program: Path, closed: tuple[Path, ...]) -> Iterator[Path]:
    if _is_open(prefix, program, closed):
        yield prefix
        return
    yield program
    yield from sorted(prefix.glob("lib/python3*"))
    yield from sorted(prefix.glob("lib/libpython3*"))


def _is_open(prefix: Path, program: Path, closed: tuple[Path, ...]) -> bool:
    """Return whether a prefix is given as a whole: it holds no closed place, and in one nothing but an interpreter."""
    if any(place.is_relative_to(prefix) for place in closed):
        return False
    if not any(prefix.is_relative_to(place) for place in closed):
        return True
    if (prefix / "pyvenv.cfg").exists() or (prefix / "conda-meta").is_dir():
        return True
    if program.is_symlink() and not program.resolve().is_relative_to(prefix.resolve()):
        return False
    return all(_holds_only(prefix / folder, names) for folder, names in _OF_AN_INSTALLATION.items())


def _holds_only(folder: Path, names: tuple[str, ...]) -> bool:
    try:
        return all(name.startswith(names) for name in os.listdir(folder))
    except OSError:
        return not folder.exists()
