"""Open connections and TLS contexts of a run. Deadlines and the end of a build shut them down."""

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


CONNECT_S = 15.0
# What is left after a deadline: a timeout must be more than 0.
LEAST_S = 0.001


class CallSockets(Struct):
    """The connections of one call, which another thread can shut down.

    Closing a socket does not wake a thread that reads from it; shutting it down does. Each connection is kept as a
    duplicated descriptor, since TLS takes over the socket object.
    """

    is_shut_down: bool = False
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def trace(self, name: str, info: Any) -> None:
        """Handle a trace event of the HTTP library: keep each connection as soon as it is open."""
        stream = info.get("return_value") if name.endswith("connect_tcp.complete") else None
        found = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(found, socket.socket):
            self.add(found)

    def add(self, connection: socket.socket) -> None:
        """Keep a connection, so that it can be shut down."""
        kept = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._open.append(kept)
            is_cut = self.is_shut_down
        if is_cut:
            _shut(kept)

    def shut_down(self) -> None:
        """Shut down all connections, also those that open later."""
        with self._lock:
            self.is_shut_down = True
            sockets = list(self._open)
        for one in sockets:
            _shut(one)

    @contextlib.contextmanager
    def shut_down_after(self, seconds: float) -> Iterator[None]:
        """Shut down all connections if the body of the `with` statement takes longer than this."""
        timer = threading.Timer(seconds, self.shut_down)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Close the descriptors: the call is over."""
        with self._lock:
            sockets, self._open = self._open, []
        for one in sockets:
            one.close()


class OpenCalls(Struct):
    """The open calls of a run. `close` ends all of them and refuses new ones."""

    _under_way: list[CallSockets] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def track(self, seconds: float) -> Iterator[CallSockets]:
        """Yield the connections of one call. They are shut down after `seconds`, and at the end of the build.

        Raises:
            ProviderError: the build has ended, before the call or during it.

        """
        sockets = CallSockets()
        with self._lock:
            self._under_way.append(sockets)
        try:
            with sockets.shut_down_after(seconds):
                self.wait(0)
                yield sockets
        # If the build has ended, that is the cause: report it instead of the exception.
        except Exception:
            self.wait(0)
            raise
        finally:
            with self._lock:
                self._under_way = [one for one in self._under_way if one is not sockets]
            sockets.close()

    def wait(self, seconds: float) -> None:
        """Sleep, at most until the end of the build.

        Raises:
            ProviderError: the build has ended.

        """
        if self._ended.wait(seconds):
            message = "the build ended before the response"
            raise ProviderError(Diagnostic(codes.PROVIDER_FAILED, message, hint="build again to continue"))

    def close(self) -> None:
        """End all open calls and refuse new ones."""
        with self._lock:
            self._ended.set()
            calls = list(self._under_way)
        for sockets in calls:
            sockets.shut_down()


def _shut(one: socket.socket) -> None:
    """Wake the thread that reads. Also under TLS this is the plain connection, so nothing waits for the peer."""
    with contextlib.suppress(OSError):  # it is closed already
        one.shutdown(socket.SHUT_RDWR)


class TlsContexts(Struct):
    """The TLS context of a run. All connections share it; it does not change once it is made."""

    _machine: "ssl.SSLContext | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def context_for(self, url: str) -> "ssl.SSLContext":
        """Return the context for an address, with the certificates that the machine trusts.

        Plain HTTP to this machine needs no certificates, and none are read for it.
        """
        import ssl  # noqa: PLC0415 - only a run that calls a server needs it

        if is_loopback(url) and url.startswith("http://"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        import httpx2  # noqa: PLC0415 - heavy

        with self._lock:
            if self._machine is None:
                self._machine = httpx2.create_ssl_context()
            return self._machine

    def close(self) -> None:
        """Drop the context."""
        with self._lock:
            self._machine = None
