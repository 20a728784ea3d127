"""The supervisor of steps that Landlock and seccomp restrict."""

import ctypes
from collections.abc import Sequence

from orch23.execute import supervisor_child
from orch23.execute.sandbox import seccomp
from orch23.execute.sandbox.system_calls import machine, system_call
from orch23.execute.supervisor_child import Isolation, Message, drop_capabilities, install_filter, raise_loopback

_CLONE_NEWNET = 0x4000_0000


def main() -> None:
    """Serve requests."""
    # Before any fork, so that all children have the filters.
    for sockets in (seccomp.AllowedSockets.SHARED, seccomp.AllowedSockets.NONE):
        seccomp.build_filter(sockets, machine(), alone=False)
    supervisor_child.serve(lambda _: LandlockIsolation())


class LandlockIsolation(Isolation):
    """Restrict a step by the Landlock ruleset that comes with its request, and a seccomp filter."""

    def enter(self, request: Message, descriptors: Sequence[int]) -> None:
        """Restrict this process. The request says whether it has the network.

        Raises:
            OSError: the kernel has no Landlock or no seccomp filters.
        """
        (network,), (rules,) = request, descriptors
        # Without a network namespace a step may have no sockets at all: Landlock cannot keep it from this machine's
        # ports.
        own = not network and _own_network()
        sockets = seccomp.AllowedSockets.SHARED if own or network else seccomp.AllowedSockets.NONE
        drop_capabilities()
        install_filter(seccomp.build_filter(sockets, machine(), alone=False))
        system_call("landlock_restrict_self", ctypes.c_int(rules), ctypes.c_uint32(0))


def _own_network() -> bool:
    """Move this thread to an empty network namespace with a loopback; return False if that is not allowed."""
    try:
        system_call("unshare", ctypes.c_int(_CLONE_NEWNET))
    except OSError:
        return False
    raise_loopback()
    return True
