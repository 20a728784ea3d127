"""Connections, clients and TLS contexts of a run. Deadlines and the end of a build shut connections down."""

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from orch23.model.server_url import is_loopback
from orch23.providers.adapter import Closable
from orch23.providers.faults import build_ended_error

if TYPE_CHECKING:
    import ssl
    from http.cookiejar import CookieJar


CONNECT_S = 15.0
# The timeout after a deadline: it must be more than 0.
LEAST_S = 0.001
# Servers close idle connections, uvicorn and Node.js after 5 s. A request must not arrive at that time.
_MAX_IDLE_S = 4.0
_LONGEST_WAIT_S = 1.0


class Deadlines(Struct):
    """Calls functions when their time is up, from one thread, which ends when none is left.

    A thread for each call would cost more than a short call itself.
    """

    clock: Callable[[], float] = time.monotonic
    _due: dict[int, tuple[float, Callable[[], None]]] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _wakes_at: float | None = None

    @contextlib.contextmanager
    def call_after(self, seconds: float, act: Callable[[], None]) -> Iterator[None]:
        """Call a function if the body of the `with` statement takes longer than this."""
        number, until = next(self._numbers), self.clock() + seconds
        with self._changed:
            self._due[number] = until, act
            if self._wakes_at is None:
                self._wakes_at = until
                threading.Thread(target=self._watch, name="orch23-deadlines", daemon=True).start()
            elif until < self._wakes_at:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._due.pop(number, None)

    def _watch(self) -> None:
        while (over := self._wait()) is not None:
            for act in over:
                act()

    def _wait(self) -> list[Callable[[], None]] | None:
        """Return the functions whose time is up, none if it looked too early, or None if nothing is left."""
        with self._changed:
            if not self._due:
                self._wakes_at = None
                return None
            now = self.clock()
            over = [number for number, (until, _) in self._due.items() if until <= now]
            if not over:
                # A call that has ended wakes no one, so the thread looks again after a while.
                self._wakes_at = min(now + _LONGEST_WAIT_S, *(until for until, _ in self._due.values()))
                self._changed.wait(self._wakes_at - now)
            return [self._due.pop(number)[1] for number in over]


class CallSockets(Struct):
    """The connections of one call, which another thread can shut down.

    Closing a socket does not wake a thread that reads from it; shutting it down does. Each connection is kept as a
    duplicated descriptor, since TLS takes over the socket object.
    """

    deadlines: Deadlines = field(default_factory=Deadlines)
    is_shut_down: bool = False
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, connection: socket.socket) -> None:
        """Keep a connection, so that it can be shut down."""
        kept = _duplicate(connection)
        with self._lock:
            self._open.append(kept)
            if self.is_shut_down:
                _shut(kept)

    def shut_down(self) -> None:
        """Shut down all connections, also those that open later. After `close`, no connection is affected."""
        # Under the lock: `close` must not return before this has ended, since the next call may use the connection.
        with self._lock:
            self.is_shut_down = True
            for one in self._open:
                _shut(one)

    def shut_down_after(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Shut down all connections if the body of the `with` statement takes longer than this."""
        return self.deadlines.call_after(seconds, self.shut_down)

    def close(self) -> None:
        """Close the descriptors: the call is over."""
        with self._lock:
            sockets, self._open = self._open, []
        for one in sockets:
            one.close()


class OpenCalls(Struct):
    """The open calls of a run. `close` ends all of them and refuses new ones."""

    _deadlines: Deadlines = field(default_factory=Deadlines)
    _under_way: list[CallSockets] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def track(self, seconds: float) -> Iterator[CallSockets]:
        """Yield the connections of one call. They are shut down after `seconds`, and at the end of the build.

        Raises:
            ProviderError: the build has ended, before the call or during it.
        """
        sockets = CallSockets(self._deadlines)
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
            raise build_ended_error()

    def close(self) -> None:
        """End all open calls and refuse new ones."""
        with self._lock:
            self._ended.set()
            calls = list(self._under_way)
        for sockets in calls:
            sockets.shut_down()


class ClientConnection(Struct):
    """The connection of a client that serves one call at a time. `call` has the connections of that call."""

    call: CallSockets = field(default_factory=CallSockets)
    _socket: socket.socket | None = None

    def begin(self, call: CallSockets) -> None:
        """Begin a call, which may use the open connection."""
        self.call = call
        if self._socket is not None:
            call.add(self._socket)

    def trace(self, name: str, info: Any) -> None:
        """Handle a trace event of the HTTP library: keep a connection as soon as it is open."""
        stream = info.get("return_value") if name.endswith("connect_tcp.complete") else None
        found = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(found, socket.socket):
            self.close()
            self._socket = _duplicate(found)
            self.call.add(found)

    def close(self) -> None:
        """Close the descriptor: otherwise the server would not see that the client has closed the connection."""
        kept, self._socket = self._socket, None
        if kept is not None:
            kept.close()


# A client of a vendor's library.
AnyClient = TypeVar("AnyClient", bound=Closable)


class _IdleClient(Struct, frozen=True):
    client: Any
    connection: ClientConnection
    since: float

    def close(self) -> None:
        self.client.close()
        self.connection.close()


class ClientPool(Struct):
    """The clients of a run, each with one connection. They stay open for `max_idle_s` between two calls."""

    max_idle_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _idle: dict[Hashable, list[_IdleClient]] = field(default_factory=dict)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def client_for(
        self, server: Hashable, call: CallSockets, make: Callable[[ClientConnection], AnyClient]
    ) -> Iterator[AnyClient]:
        """Yield a client for one call: an idle one of the same library, server and key, or a new one.

        `server` identifies these three. The client serves another call only if this one raises no exception and is
        not shut down. A request is never sent twice here: the server may have read the first one and may bill it, so
        a broken connection is an error of the call, and the budget counts it.
        """
        found = self._take(server)
        connection = ClientConnection() if found is None else found.connection
        connection.begin(call)
        client: AnyClient = make(connection) if found is None else found.client
        has_succeeded = False
        try:
            yield client
            has_succeeded = True
        finally:
            call.close()  # a deadline from now on must not end the next call
            is_reusable = has_succeeded and not call.is_shut_down
            if found is not None and not has_succeeded:
                # Whatever broke this idle connection may have broken the others: a retry must not try them in turn.
                self._drop(server)
            self._put(server, _IdleClient(client, connection, self.clock()), is_reusable=is_reusable)

    def close(self) -> None:
        """Close all idle clients, and keep no others."""
        with self._lock:
            self._closed = True
            clients = [one for each in self._idle.values() for one in each]
            self._idle.clear()
        for one in clients:
            one.close()

    def _take(self, server: Hashable) -> _IdleClient | None:
        """Return the client of a server that was used last, and close those of all servers that are idle for long."""
        oldest = self.clock() - self.max_idle_s
        with self._lock:
            old = [one for idle in self._idle.values() for one in idle if one.since < oldest]
            kept = {name: [one for one in idle if one.since >= oldest] for name, idle in self._idle.items()}
            self._idle = {name: idle for name, idle in kept.items() if idle}
            found = self._idle[server].pop() if server in self._idle else None
        for one in old:
            one.close()
        return found

    def _drop(self, server: Hashable) -> None:
        with self._lock:
            idle = self._idle.pop(server, [])
        for one in idle:
            one.close()

    def _put(self, server: Hashable, client: _IdleClient, *, is_reusable: bool) -> None:
        with self._lock:
            if is_reusable and self.max_idle_s and not self._closed:
                self._idle.setdefault(server, []).append(client)
                return
        client.close()


def no_cookies() -> "CookieJar":
    """Return a cookie jar that stores nothing: a call must not send what a server set in an earlier one."""
    import http.cookiejar  # noqa: PLC0415 - only a run that calls a server needs it

    return http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=()))


def clients_of_run() -> ClientPool:
    """Return the pool of a run; `close` must be called at its end."""
    return ClientPool(max_idle_s=_MAX_IDLE_S)


def shared_connections(share: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return the fields of `RunConnections`, the same ones for all providers. `share` makes each once a run."""
    return {
        "calls": share(OpenCalls, OpenCalls),
        "trust": share(TlsContexts, TlsContexts),
        "clients": share(ClientPool, clients_of_run),
    }


def _duplicate(connection: socket.socket) -> socket.socket:
    return socket.socket(fileno=os.dup(connection.fileno()))


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


class RunConnections(Struct, frozen=True, kw_only=True):
    """What the calls of a run share, and the clock of all deadlines."""

    calls: OpenCalls = field(default_factory=OpenCalls)
    trust: TlsContexts = field(default_factory=TlsContexts)
    clients: ClientPool = field(default_factory=ClientPool)
    clock: Callable[[], float] = time.monotonic
