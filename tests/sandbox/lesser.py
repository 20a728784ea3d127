"""Run a program on a machine that has less: `python -m tests.sandbox.lesser WITHOUT USER PROGRAM ARGUMENT...`.

WITHOUT is a list, with commas, of `bubblewrap`, `namespaces` (of users), `mount_setattr` (a system call that orch23's
own namespaces need, and bubblewrap does not) and `landlock`, or `nothing`. What is missing is missing for whatever
looks: nothing of orch23 is patched. USER is a number, as whom it goes on; only root can become another.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from orch23.execute.sandbox.bubblewrap import BWRAP_PATHS
from orch23.execute.sandbox.system_calls import call_number, system_call
from orch23.execute.supervisor_child import check_result, install_filter

_NEW_MOUNTS, _NEW_USER = 0x0002_0000, 0x1000_0000
_BIND, _RECURSIVE, _PRIVATE = 1 << 12, 1 << 14, 1 << 18
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000


def hide_bubblewrap() -> None:
    """Lay a device that nobody can execute over each bwrap, in a tree of mounts of our own."""
    user, group = os.getuid(), os.getgid()
    if user:
        system_call("unshare", ctypes.c_int(_NEW_USER | _NEW_MOUNTS))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    else:
        system_call("unshare", ctypes.c_int(_NEW_MOUNTS))
    _mount("none", "/", _RECURSIVE | _PRIVATE)
    for program in {os.path.realpath(name) for name in BWRAP_PATHS if os.path.exists(name)}:
        _mount(os.devnull, program, _BIND)


def hide_call(name: str) -> None:
    """Let the kernel say that it does not have a system call, as an old one does."""
    this = call_number(name)
    assert this is not None
    code = (
        (_LOAD, 0, 0, 0),
        (_EQUAL, 0, 1, this),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_RETURN, 0, 0, _ALLOW),
    )
    _install(code)


def hide_namespaces() -> None:
    """Let the kernel refuse new namespaces of users, by which all others are had: as a container does."""
    unshare, clone = call_number("unshare"), call_number("clone")
    assert unshare is not None
    assert clone is not None
    code = (
        (_LOAD, 0, 0, 0),
        (_EQUAL, 1, 0, unshare),
        (_EQUAL, 0, 3, clone),
        (_LOAD, 0, 0, 16),  # the flags
        (_ANY_BIT, 0, 1, _NEW_USER),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    _install(code)


def become(user: int) -> None:
    """Go on as a user who owns nothing but what was given to him."""
    if user != os.getuid():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def _install(code: Iterable[tuple[int, int, int, int]]) -> None:
    install_filter(b"".join(struct.pack("=HBBI", *instruction) for instruction in code))


def _mount(source: str, target: str, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    check_result("mount", libc.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None))


def main() -> None:
    """Take away, become, go on."""
    without, user, *argv = sys.argv[1:]
    if "bubblewrap" in without:
        hide_bubblewrap()
    become(int(user))
    if "namespaces" in without:
        hide_namespaces()
    if "landlock" in without:
        hide_call("landlock_create_ruleset")
    if "mount_setattr" in without:
        hide_call("mount_setattr")
    os.chdir("/")
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
