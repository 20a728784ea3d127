"""Restrict a thread with Landlock: access to files, signals and abstract sockets."""

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from orch23.execute.sandbox.system_calls import system_call

MIN_ABI = 3
"""The first that can forbid to truncate (Linux 6.2); with an older one a file outside could be emptied."""

_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_RULE: Final = struct.Struct("=Qi")

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_ALL_RIGHTS: Final = {3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}  # and no new ones since
_NO_PORTS = 0
_SIGNALS_AND_ABSTRACT_SOCKETS, _ABI_OF_SCOPES = 0b11, 6

READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIRECTORY
WRITE_RIGHTS = ((1 << 15) - 1) & ~_MAKE_DEVICES


def abi() -> int:
    """Return the version of Landlock's interface, 0 where the kernel has none or has it switched off."""
    try:
        return system_call("landlock_create_ruleset", None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    except OSError:
        return 0


@contextlib.contextmanager
def ruleset(places: Iterable[tuple[str, int]]) -> Iterator[int]:
    """Give the descriptor of a ruleset: these rights below these places, as far as they are there, and no others.

    It has no say in TCP, of which it knows ports alone: a filter of system calls has.

    Raises:
        OSError: the kernel has no Landlock.

    """
    version = abi()
    handled = _ALL_RIGHTS.get(min(version, max(_ALL_RIGHTS)), 0)
    fields = [handled]
    if version >= _ABI_OF_SCOPES:
        fields += [_NO_PORTS, _SIGNALS_AND_ABSTRACT_SOCKETS]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    rules = system_call("landlock_create_ruleset", attributes, ctypes.c_size_t(8 * len(fields)), ctypes.c_uint32(0))
    try:
        for path, rights in places:
            _allow(rules, path, rights & handled)
        yield rules
    finally:
        os.close(rules)


def restrict(rules: int) -> None:
    """Hold this thread, and what it starts, to a ruleset; it must have given up new privileges.

    Raises:
        OSError: there are more than sixteen rulesets over each other.

    """
    system_call("landlock_restrict_self", ctypes.c_int(rules), ctypes.c_uint32(0))


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        attributes = _RULE.pack(rights, place)
        system_call(
            "landlock_add_rule", ctypes.c_int(rules), ctypes.c_int(_RULE_PATH_BENEATH), attributes, ctypes.c_uint32(0)
        )
    finally:
        os.close(place)
