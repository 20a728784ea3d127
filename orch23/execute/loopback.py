"""Listen on loopback, for programs of this machine."""

import socket

LOOPBACK = "127.0.0.1"


def loopback_listener(port: int) -> socket.socket:
    """Return a socket that listens on a port of loopback; port 0 is a free one.

    Raises:
        OSError: the port is in use.
    """
    return socket.create_server((LOOPBACK, port))
