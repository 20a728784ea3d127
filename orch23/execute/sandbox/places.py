"""What a step may see of the machine: the system's programs and libraries, and its interpreter with its packages."""

import os
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from orch23.execute.interpreters import read_config

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
"""Folders of programs and libraries; a link among them is given as a link."""

SETTINGS: Final = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/protocols", "/etc/services"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls", "/etc/pki/ca-trust", "/etc/crypto-policies"),
    "/etc/fonts",
)
"""What programs need of /etc; all of it can be read by everybody. Each costs a mount."""

IN_THE_WAY: Final = (
    *("/etc/gitconfig", "/etc/bash.bashrc", "/etc/profile", "/etc/inputrc", "/etc/terminfo", "/etc/login.defs"),
    *("/etc/npmrc", "/etc/pip.conf", "/etc/networks", "/etc/rpc", "/etc/shells", "/etc/host.conf", "/etc/gai.conf"),
    *("/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/mime.types", "/etc/magic", "/etc/java"),
    *("/etc/os-release", "/etc/debian_version", "/etc/ca-certificates", "/etc/ca-certificates.conf"),
)
"""Settings without which programs go on, but not where they are there and cannot be read."""

NETWORK_SETTINGS: Final = ("/etc/resolv.conf",)
"""What names of other machines are looked up by."""

PROCESSORS = "/sys/devices/system/cpu"
"""Where programs count processors."""


@cache
def readable() -> tuple[str, ...]:
    """Return all of the system that is there, once in a process; what lies in a folder that is named, not again.

    What an answer leaves out cannot be read, so that a path which comes later is only missed.
    """
    folders = tuple(path for path in SYSTEM if os.path.isdir(path))
    whole = {path for path in folders if os.path.realpath(path) == path}
    within = tuple(f"{path}/" for path in whole)
    return (
        *(path for path in folders if path in whole or not f"{os.path.realpath(path)}/".startswith(within)),
        *(path for path in (*SETTINGS, *IN_THE_WAY, PROCESSORS) if os.path.exists(path)),
    )


def prefixes(interpreter: Path, closed: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return what an interpreter needs of the disk beyond the system's folders: its environment and its base.

    A prefix that holds a closed place, such as the user's home, is not given: then it is the interpreter alone and the
    libraries beside it.
    """
    beside = interpreter.parent.parent
    return _prefixes(
        interpreter,
        closed,
        (
            _stamp(interpreter, follow=False),
            *(_stamp(path) for path in (interpreter, beside / "pyvenv.cfg", beside / "lib")),
        ),
    )


def with_reads(found: tuple[Path, ...], reads: Iterable[Path]) -> tuple[Path, ...]:
    """Return prefixes with further paths: those that are not below another, nor in the system's folders."""
    wanted = tuple(dict.fromkeys((*found, *reads)))
    given = (*map(Path, SYSTEM), *wanted)
    return tuple(path for path in wanted if not any(path != one and path.is_relative_to(one) for one in given))


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
    paths = [path for path in found if not any(path.is_relative_to(system) for system in SYSTEM) and path.exists()]
    return tuple(path for path in paths if not any(path != other and path.is_relative_to(other) for other in paths))


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
    home = read_config(program.parent.parent / "pyvenv.cfg").get("home")
    if home:
        base = Path(os.path.normpath(home)).parent
        yield base
        yield base.resolve()


def _parts(prefix: Path, program: Path, closed: tuple[Path, ...]) -> Iterator[Path]:
    if not any(place.is_relative_to(prefix) for place in closed):
        yield prefix
        return
    yield program
    yield from sorted(prefix.glob("lib/python3*"))
    yield from sorted(prefix.glob("lib/libpython3*"))
