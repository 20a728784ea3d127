"""Tier B: a process that Landlock, a seccomp filter and no privileges hold, without namespaces."""

import contextlib
import ctypes
import fcntl
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orch23.execute.launch import Launch
from orch23.execute.rooms import Room
from orch23.execute.sandbox import landlock, places, seccomp
from orch23.execute.sandbox.system_calls import call, machine

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full")
_CHANCE: Final = ("/dev/random", "/dev/urandom")
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a place of the system
_CLONE_NEWNET = 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_CAPABILITY_VERSION = 0x2008_0522


@dataclass(frozen=True, slots=True)
class Restricted:
    """Starts processes that have restricted themselves. `closed` are places that are opened to none: home and project.

    What Landlock and seccomp hold is a thread, and what it starts: so a thread of its own restricts itself, starts the
    process and ends. The kernel forks the thread that asks, and orch23's other threads stay as they are.
    """

    closed: tuple[Path, ...] = ()
    tier = "landlock"

    def seen(self, room: Room) -> Room:
        """Return the room as it is: without namespaces there is one tree for all."""
        return room

    @contextlib.contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Give the launch with what its thread has to give up first.

        Raises:
            OSError: the kernel has no Landlock, or no descriptor is left.

        """
        with landlock.ruleset(self._places(launch)) as rules:

            def confine() -> None:
                own = not launch.network and _own_network()
                sockets = seccomp.Sockets.SHARED if own or launch.network else seccomp.Sockets.NONE
                _drop_capabilities()
                seccomp.give_up_privileges()
                landlock.restrict(rules)
                seccomp.install(seccomp.program(sockets, machine(), alone=False))

            yield replace(launch, confine=confine)

    def _places(self, launch: Launch) -> Iterator[tuple[str, int]]:
        read, write = landlock.READ, landlock.WRITE
        for path in (
            *places.readable(),
            *(places.NETWORK_SETTINGS if launch.network else ()),
            *("/proc", *_CHANCE),
            *places.prefixes(launch.interpreter, self.closed),
            *launch.reads,
        ):
            yield str(path), read
        for path in _DEVICES:
            yield path, read | write
        if not any(place.resolve().is_relative_to(_SHARED_MEMORY) for place in (*self.closed, launch.room.root)):
            yield str(_SHARED_MEMORY), write  # named semaphores are files there
        yield str(launch.room.own / "reporter"), read
        yield str(launch.room.root), write


def _own_network() -> bool:
    """Move this thread to a network where nobody else is, with a loopback; False where that is not allowed."""
    try:
        call("unshare", ctypes.c_int(_CLONE_NEWNET))
    except OSError:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, name))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    return True


def _drop_capabilities() -> None:
    """Leave root without its privileges; with no_new_privs no program gives them back."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0), 8)
    call("capset", header, ctypes.create_string_buffer(24))
