"""Run a process restricted by Landlock and seccomp, without namespaces: access to files, signals and sockets."""

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute.launch import Launch
from orch23.execute.sandbox import visible_paths
from orch23.execute.sandbox.system_calls import system_call
from orch23.execute.sandbox_tree import writable_parts
from orch23.execute.supervisor import Confinement
from orch23.model.action import LANDLOCK_TIER

MIN_ABI = 3
"""The first version that can forbid truncation (Linux 6.2). With an older one a step could empty files outside."""

_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_RULE: Final = struct.Struct("=Qi")

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
# By version of the interface. Later versions have no new rights.
_ALL_RIGHTS: Final = {3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_NO_PORTS = 0
_SIGNALS_AND_ABSTRACT_SOCKETS, _ABI_OF_SCOPES = 0b11, 6

READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIRECTORY
WRITE_RIGHTS = ((1 << 15) - 1) & ~_MAKE_DEVICES


def abi() -> int:
    """Return the version of Landlock's interface; 0 if the kernel does not have it or it is disabled."""
    try:
        return system_call("landlock_create_ruleset", None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    except OSError:
        return 0


@contextlib.contextmanager
def ruleset(rules: Iterable[tuple[str, int]]) -> Iterator[int]:
    """Yield the descriptor of a ruleset: these rights below these paths, if they exist, and no other rights.

    It does not restrict TCP, of which Landlock knows only ports: the seccomp filter does.

    Raises:
        OSError: the kernel has no Landlock.
    """
    version = abi()
    handled = _ALL_RIGHTS.get(min(version, max(_ALL_RIGHTS)), 0)
    fields = [handled]
    if version >= _ABI_OF_SCOPES:
        fields += [_NO_PORTS, _SIGNALS_AND_ABSTRACT_SOCKETS]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    size, no_flags = ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)
    descriptor = system_call("landlock_create_ruleset", attributes, size, no_flags)
    try:
        for path, rights in rules:
            _allow(descriptor, path, rights & handled)
        yield descriptor
    finally:
        os.close(descriptor)


def _allow(ruleset_fd: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        # The kernel refuses a rule for a file with rights that only folders can have.
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = _RULE.pack(rights, descriptor)
        numbers = (ctypes.c_int(ruleset_fd), ctypes.c_int(_RULE_PATH_BENEATH))
        system_call("landlock_add_rule", *numbers, rule, ctypes.c_uint32(0))
    finally:
        os.close(descriptor)


# Not /dev/shm: it is shared with all processes of the machine, and counts for no limit.
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full")
_RANDOM_DEVICES: Final = ("/dev/random", "/dev/urandom")


def confinement(rules: int, *, network: bool) -> Confinement:
    """Return the confinement by the ruleset of this descriptor."""
    return Confinement(program="orch23.execute.sandbox.landlock_child", request=(network,), descriptors=(rules,))


class LandlockLauncher(Struct, frozen=True):
    """Let a supervisor start processes, which restrict themselves before they become the step.

    `closed` are the user's home and the project: no process gets access to them.
    """

    closed: tuple[Path, ...] = ()
    tier = LANDLOCK_TIER

    @contextlib.contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Yield the launch with the restrictions of its process.

        Raises:
            OSError: the kernel has no Landlock, or no descriptor is left.
        """
        # A ruleset for each launch: it contains the sandbox directory, and rules cannot be removed.
        with ruleset(self._rules(launch)) as rules:
            yield replace(launch, confinement=confinement(rules, network=launch.network))

    def _rules(self, launch: Launch) -> Iterator[tuple[str, int]]:
        read, write = READ_RIGHTS, WRITE_RIGHTS
        for path in (
            *visible_paths.readable_paths(self.closed),
            *(visible_paths.NETWORK_SETTINGS if launch.network else ()),
            *("/proc", *_RANDOM_DEVICES),
            *visible_paths.interpreter_paths(launch.interpreter, self.closed),
            *launch.reads,
            launch.sandbox_dir.tools,
        ):
            yield str(path), read
        yield from ((path, read | write) for path in _DEVICES)
        yield from ((str(one.files), write if one.is_writable else read) for one in launch.sandbox_dir.caches)
        yield str(launch.sandbox_dir.root), write if launch.writable is None else read
        if launch.writable is not None:
            yield from ((str(part), write) for part in writable_parts(launch.sandbox_dir, launch.writable))
