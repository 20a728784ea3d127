"""Open connections and TLS contexts of a run. Deadlines and the end of a build cut them."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.server_url import is_loopback
from orch23.providers import codes

if TYPE_CHECKING:
    import ssl


class CallSockets(Struct):
    """The connections of one call, to be cut from another thread: closing a socket would not wake its reader.

    Each is kept as a descriptor of its own, since TLS takes the socket of the connection over.
    """

    is_shut_down: bool = False
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def trace(self, name: str, info: Any) -> None:
        """Take what the HTTP library tells of a request, and keep each connection as soon as there is one."""
        stream = info.get("return_value") if name.endswith("connect_tcp.complete") else None
        found = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(found, socket.socket):
            self.add(found)

    def add(self, connection: socket.socket) -> None:
        """Keep a connection, so that it is cut in time."""
        kept = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._open.append(kept)
            is_cut = self.is_shut_down
        if is_cut:
            _shut(kept)

    def shut_down(self) -> None:
        """Cut all connections, also those that come about later."""
        with self._lock:
            self.is_shut_down = True
            sockets = list(self._open)
        for one in sockets:
            _shut(one)

    def close(self) -> None:
        """Give the descriptors back; the call is over."""
        with self._lock:
            sockets, self._open = self._open, []
        for one in sockets:
            one.close()


class OpenCalls(Struct):
    """The calls of a run; closed, it breaks all of them off, and lets no further one begin."""

    _under_way: list[CallSockets] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def track(self, seconds: float) -> Iterator[CallSockets]:
        """Give a place for the connections of one call: cut after so many seconds, and at the end of the build.

        Raises:
            ProviderError: the build has ended, before the call or during it.

        """
        sockets = CallSockets()
        with self._lock:
            self._under_way.append(sockets)
        watch = threading.Timer(seconds, sockets.shut_down)
        watch.daemon = True
        watch.start()
        try:
            self.wait(0)
            yield sockets
        except Exception:
            self.wait(0)
            raise
        finally:
            watch.cancel()
            with self._lock:
                self._under_way = [one for one in self._under_way if one is not sockets]
            sockets.close()

    def wait(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the build.

        Raises:
            ProviderError: the build has ended.

        """
        if self._ended.wait(seconds):
            hint = "build again to go on"
            raise ProviderError(
                Diagnostic(codes.PROVIDER_FAILED, "the build ended before there was an answer", hint=hint)
            )

    def close(self) -> None:
        """Break off what is under way, and let nothing more begin."""
        with self._lock:
            self._ended.set()
            calls = list(self._under_way)
        for sockets in calls:
            sockets.shut_down()


def _shut(one: socket.socket) -> None:
    """Wake whoever reads. Under TLS too the plain connection is meant: no farewell is waited for."""
    with contextlib.suppress(OSError):  # it is closed already
        one.shutdown(socket.SHUT_RDWR)


class TlsContexts(Struct):
    """The TLS contexts of a run. One is used by many connections at once; it is never changed once it is made."""

    _machine: "ssl.SSLContext | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def context_for(self, url: str) -> "ssl.SSLContext":
        """Return what a connection to an address is held to: what the machine trusts.

        Plain HTTP on this machine knows no certificates, and none are read for it.
        """
        import ssl  # noqa: PLC0415 - only a run that asks somebody needs it

        if is_loopback(url) and url.startswith("http://"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        import httpx2  # noqa: PLC0415 - heavy

        with self._lock:
            if self._machine is None:
                self._machine = httpx2.create_ssl_context()
            return self._machine

    def close(self) -> None:
        """Forget them."""
        with self._lock:
            self._machine = None
