"""What a process gives up, before it becomes a step, where it gets no namespaces of its own.

Imported by the supervisor, which starts steps: it must load fast.
"""

import ctypes
import fcntl
import socket
import struct

from orch23.execute.sandbox import landlock, seccomp
from orch23.execute.sandbox.system_calls import call, machine

_CLONE_NEWNET = 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_CAPABILITY_VERSION = 0x2008_0522


def prepare() -> None:
    """Build the filters, so that what is forked from now on has them."""
    for sockets in (seccomp.Sockets.SHARED, seccomp.Sockets.NONE):
        seccomp.program(sockets, machine(), alone=False)


def confine(rules: int, *, network: bool) -> None:
    """Restrict this thread, and all that it starts, by a Landlock ruleset and a filter of system calls.

    Raises:
        OSError: the kernel has no Landlock or no such filters.

    """
    own = not network and _own_network()
    sockets = seccomp.Sockets.SHARED if own or network else seccomp.Sockets.NONE
    _drop_capabilities()
    seccomp.give_up_privileges()
    landlock.restrict(rules)
    seccomp.install(seccomp.program(sockets, machine(), alone=False))


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
