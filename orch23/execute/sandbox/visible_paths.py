"""Determine what a step may see of the machine: system folders, settings, its interpreter."""

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from orch23.execute.interpreters import read_pyvenv_config
from orch23.store.safe_files import FileStamp, stamp_of

SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
"""Folders of programs and libraries. A step sees a link among them as a link."""

SETTINGS_FILES: Final = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/protocols", "/etc/services"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls", "/etc/pki/ca-trust", "/etc/crypto-policies"),
    "/etc/fonts",
    # Links of Java and Maven in /usr lead there.
    *(*(f"/etc/java-{version}-openjdk" for version in (8, 11, 17, 21, 25)), "/etc/java", "/etc/maven", "/etc/m2.conf"),
)
"""The files of /etc that programs need. All users can read them. Each costs a mount."""

OPTIONAL_SETTINGS: Final = (
    *("/etc/gitconfig", "/etc/bash.bashrc", "/etc/profile", "/etc/inputrc", "/etc/terminfo", "/etc/login.defs"),
    *("/etc/npmrc", "/etc/pip.conf", "/etc/networks", "/etc/rpc", "/etc/shells", "/etc/host.conf", "/etc/gai.conf"),
    *("/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/mime.types", "/etc/magic"),
    *("/etc/os-release", "/etc/debian_version", "/etc/ca-certificates", "/etc/ca-certificates.conf"),
)
"""Settings that programs can do without. But they fail on one that exists and cannot be read, as with Landlock."""

NETWORK_SETTINGS: Final = ("/etc/resolv.conf",)
"""The settings for looking up the names of other machines."""

PROCESSORS_FOLDER = "/sys/devices/system/cpu"
"""Where programs count processors."""

# The first letters of the names in the folders of an installed interpreter.
_INSTALLATION_NAMES: Final = {
    "": ("bin", "include", "lib", "lib64", "share", "BUILD", "LICENSE", "README"),
    "lib": ("python", "libpython", "pkgconfig", "tcl", "tk", "itcl", "thread", "lib"),
    "share": ("man", "doc", "python", "terminfo"),
}


@lru_cache(maxsize=16)
def readable_paths(closed: tuple[Path, ...] = ()) -> tuple[str, ...]:
    """Return the existing system paths, without those inside another one.

    A folder with a closed path in it, such as a project below /usr, is replaced by the entries beside that path. The
    result is cached: a path that is created later cannot be read, which is safe.
    """
    folders = tuple(path for path in SYSTEM_FOLDERS if os.path.isdir(path))
    whole = {path for path in folders if os.path.realpath(path) == path}
    inside = tuple(f"{path}/" for path in whole)
    outer = [path for path in folders if path in whole or not f"{os.path.realpath(path)}/".startswith(inside)]
    parts = (part for path in outer for part in _beside(path, closed_in_system(closed)))
    settings = (*SETTINGS_FILES, *OPTIONAL_SETTINGS, PROCESSORS_FOLDER)
    return (*parts, *filter(os.path.exists, settings))


def closed_in_system(closed: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the real paths of the closed folders that are in a system folder."""
    folders = tuple(f"{os.path.realpath(path)}/" for path in SYSTEM_FOLDERS if os.path.isdir(path))
    found = {os.path.realpath(path) for path in closed}
    return tuple(sorted(path for path in found if path.startswith(folders) and os.path.isdir(path)))


def _beside(path: str, closed: tuple[str, ...]) -> Iterator[str]:
    """Yield a path that has no closed path in it, or else the entries beside the closed paths."""
    if path in closed:
        return
    if not any(one.startswith(f"{os.path.realpath(path)}/") for one in closed):
        yield path
        return
    for name in sorted(os.listdir(path)):
        # The target of a link is readable by its own path, or not at all.
        if not os.path.islink(f"{path}/{name}"):
            yield from _beside(f"{path}/{name}", closed)


def interpreter_paths(interpreter: Path, closed: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the paths outside of system folders that an interpreter needs: its virtual environment and its base.

    A prefix is replaced by the interpreter and its libraries if it contains a closed path, such as the user's home, or
    if it is in a closed path and contains more than an interpreter, such as ~/.local.
    """
    beside = interpreter.parent.parent
    read = (interpreter, beside / "pyvenv.cfg", *(beside / name for name in _INSTALLATION_NAMES))
    return _prefixes(interpreter, closed, (_stamp(interpreter, follow=False), *map(_stamp, read)))


def add_paths(found: tuple[Path, ...], reads: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths of an interpreter and further ones, without those below another one or in system folders.

    Those of the interpreter stay: one below a system folder is in a closed path, such as a project in `/usr/src`.
    """
    more = (path for path in reads if not any(path.is_relative_to(one) for one in map(Path, SYSTEM_FOLDERS)))
    wanted = tuple(dict.fromkeys((*found, *more)))
    return tuple(path for path in wanted if not any(path != one and path.is_relative_to(one) for one in wanted))


def _stamp(path: Path, *, follow: bool = True) -> FileStamp | None:
    try:
        return stamp_of(os.stat(path, follow_symlinks=follow))
    except OSError:
        return None


@lru_cache(maxsize=64)
def _prefixes(interpreter: Path, closed: tuple[Path, ...], _: tuple[FileStamp | None, ...]) -> tuple[Path, ...]:
    """Find the prefixes. Cached by stamps, since it takes about 200 system calls, and every process needs it."""
    found: dict[Path, None] = {}
    for program in link_chain(interpreter):
        for prefix in (program.parent.parent, *_home(program)):
            parts = [prefix]
            if not _is_open(prefix, program, closed):
                parts = [program, *sorted(prefix.glob("lib/python3*")), *sorted(prefix.glob("lib/libpython3*"))]
            found |= dict.fromkeys(parts)
    hidden = closed_in_system(closed)
    paths = [path for path in found if path.exists() and not _is_of_system(path, hidden)]
    return tuple(path for path in paths if not any(path != other and path.is_relative_to(other) for other in paths))


def _is_of_system(path: Path, hidden: tuple[str, ...]) -> bool:
    is_hidden = any(path.is_relative_to(folder) for folder in hidden)
    return any(path.is_relative_to(system) for system in SYSTEM_FOLDERS) and not is_hidden


def link_chain(program: Path) -> Iterator[Path]:
    """Yield a program's path and the target of each link to its file, each also with the folder's links resolved."""
    seen: set[Path] = set()
    path = Path(os.path.normpath(program))
    while path not in seen:
        seen.add(path)
        yield path
        yield path.parent.resolve() / path.name
        if path.is_symlink():
            path = Path(os.path.normpath(path.parent.resolve() / path.readlink()))


def _home(program: Path) -> Iterator[Path]:
    """Yield the base of a virtual environment, as its pyvenv.cfg names it and as its real path."""
    home = read_pyvenv_config(program.parent.parent / "pyvenv.cfg").get("home")
    if home:
        base = Path(os.path.normpath(home)).parent
        yield base
        yield base.resolve()


def _is_open(prefix: Path, program: Path, closed: tuple[Path, ...]) -> bool:
    """Return whether a whole prefix may be read: it has no closed path, or is in one and has only an interpreter."""
    if any(path.is_relative_to(prefix) for path in closed):
        return False
    if not any(prefix.is_relative_to(path) for path in closed):
        return True
    if (prefix / "pyvenv.cfg").exists() or (prefix / "conda-meta").is_dir():
        return True
    if program.is_symlink() and not program.resolve().is_relative_to(prefix.resolve()):
        return False
    return all(_holds_only(prefix / folder, names) for folder, names in _INSTALLATION_NAMES.items())


def _holds_only(folder: Path, names: tuple[str, ...]) -> bool:
    try:
        return all(name.startswith(names) for name in os.listdir(folder))
    except OSError:
        return not folder.exists()
