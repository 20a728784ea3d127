"""Calls of a gRPC server with messages of REAPI: one try each, with a deadline and the headers that log in."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from msgspec import Struct, field

from orch23.features.cache.bounds import MAX_ENTRY_BYTES
from orch23.features.cache.client_certificate import tls_fault
from orch23.features.cache.reapi.messages import GetCapabilitiesRequest, ServerCapabilities
from orch23.features.cache.reapi.wire import DecodeError, Proto, decode, encode
from orch23.model.errors import CacheFault
from orch23.model.text import one_line

if TYPE_CHECKING:
    import grpc

    from orch23.features.cache.client_certificate import CertificateFiles

M = TypeVar("M", bound=Proto)

_CAPABILITIES = "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities"

_CALL_S = 10.0
"""The deadline of a call without its blobs."""
_SLOWEST_BYTES_PER_S = 128 << 10
# An entry, or a part of a blob; a longer message is refused before it is in memory.
_MAX_REPLY_BYTES = MAX_ENTRY_BYTES + (1 << 20)
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_REPLY_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.primary_user_agent", "orch23"),
    # The client above repeats calls, and soon.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # For executions that take long. Servers close a connection with pings more often than each five minutes.
    ("grpc.keepalive_time_ms", 330_000),
    # As for HTTP, and no server sets how it is called.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
)
_TRANSIENT = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL", "UNKNOWN"})
_LOGIN = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})


class AbsentError(Exception):
    """The server replied NOT_FOUND."""


class TooLargeError(Exception):
    """A message is larger than this machine or the server accepts."""


class StatusFault(CacheFault):
    """A status of gRPC: its name, and the bytes of a google.rpc.Status if the server has sent one."""

    def __init__(self, message: str, name: str, details: bytes = b"") -> None:
        """Store the text with the status."""
        super().__init__(message, transient=name in _TRANSIENT)
        self.name, self.details = name, details

    @property
    def number(self) -> int:
        """Return the code of the status of a call."""
        import grpc  # noqa: PLC0415 - an extra

        return int(grpc.StatusCode[self.name].value[0])


def deadline_s(size_bytes: int) -> float:
    """Return the deadline of a call with some bytes of blobs."""
    return _CALL_S + size_bytes / _SLOWEST_BYTES_PER_S


class GrpcServer(Struct, eq=False):
    """An instance of a server at an address. Threads and connections of the library start with the first call.

    The `name` of the instance may be empty. `root_certificates` returns the certificates to trust; None for no
    encryption. A server may demand the `certificate` of this client.
    """

    target: str
    name: str
    headers: Callable[[], Mapping[str, str]]
    root_certificates: Callable[[], bytes | None] | None
    certificate: "CertificateFiles | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: "grpc.Channel | None" = None
    _is_closed: bool = False

    @property
    def prefix(self) -> str:
        """Return the beginning of the names of its resources."""
        return f"{self.name}/" if self.name else ""

    def capabilities(self) -> ServerCapabilities:
        """Return what the server can do: nothing if it does not say so.

        Raises:
            CacheFault: it cannot be reached, or its reply makes no sense.
        """
        try:
            return self.unary(_CAPABILITIES, GetCapabilitiesRequest(instance_name=self.name), ServerCapabilities)
        except (AbsentError, TooLargeError):
            return ServerCapabilities()

    def unary(self, method: str, request: Proto, reply: type[M], size_bytes: int = 0) -> M:
        """Return the reply to a request with some bytes of blobs.

        Raises:
            AbsentError, TooLargeError, CacheFault: there is none, or it makes no sense.
        """
        return _decoded(method, reply, self.unary_bytes(method, request, size_bytes))

    def call(self, method: str, request: Proto, reply: type[M], size_bytes: int = 0) -> M:
        """Return the reply to a request as `unary`, but an instance that is not there is a fault.

        Raises:
            TooLargeError, CacheFault: there is none, or it makes no sense.
        """
        try:
            return self.unary(method, request, reply, size_bytes)
        except AbsentError:
            raise status_fault(method, "NOT_FOUND", f"instance {self.name!r}") from None

    def unary_bytes(self, method: str, request: Proto, size_bytes: int = 0) -> bytes:
        """Return the bytes of the reply to a request; raises as `unary`."""
        call, limit_s = self._channel().unary_unary(method), deadline_s(size_bytes)
        return bytes(_guarded(method, lambda: call(encode(request), timeout=limit_s, metadata=self._metadata())))

    def read(self, method: str, request: Proto, reply: type[M], limit_s: float) -> Generator[M, None, None]:
        """Yield the replies to a request; raises as `unary`. The call ends when the iterator is closed."""
        replies, cancel = self.open_stream(method, request, reply, limit_s)
        try:
            # No name keeps a part of a blob while the next one comes.
            yield from replies
        finally:
            cancel()

    def open_stream(
        self, method: str, request: Proto, reply: type[M], limit_s: float
    ) -> tuple[Iterator[M], Callable[[], object]]:
        """Return the replies to a request, and what ends the call, also from another thread; both raise as `unary`."""
        start = self._channel().unary_stream(method)
        call = _guarded(method, lambda: start(encode(request), timeout=limit_s, metadata=self._metadata()))
        replies = iter(lambda: _guarded(method, lambda: next(call, None)), None)
        return map(partial(_decoded, method, reply), replies), call.cancel

    def write(self, method: str, requests: Iterable[Proto], reply: type[M], limit_s: float) -> M:
        """Return the reply to some requests. The library iterates over them in another thread.

        Raises:
            AbsentError, TooLargeError, CacheFault: as for `unary`.
            Exception: the requests raised it. The server gets no end of the requests.
        """
        call: Any = None
        failed: list[Exception] = []
        started = threading.Event()

        def messages() -> Iterator[bytes]:
            # An exception that leaves this iterator would be logged by the library.
            try:
                yield from map(encode, requests)
            except Exception as error:  # noqa: BLE001 - it is raised below
                failed.append(error)
                started.wait()
                if call is not None:
                    call.cancel()

        try:
            start = self._channel().stream_unary(method)
            call = _guarded(method, lambda: start.future(messages(), timeout=limit_s, metadata=self._metadata()))
        finally:
            started.set()
        try:
            data = _guarded(method, call.result)
        finally:
            call.cancel()
            if failed:
                raise failed[0]
        return _decoded(method, reply, data)

    def close(self) -> None:
        """Cancel all calls and close the connections."""
        with self._lock:
            channel, self._made, self._is_closed = self._made, None, True
        if channel is not None:
            channel.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple((name.lower(), value) for name, value in self.headers().items())

    def _channel(self) -> "grpc.Channel":
        import grpc  # noqa: PLC0415 - an extra

        with self._lock:
            if self._is_closed:
                message = "the cache is closed"
                raise CacheFault(message)
            if self._made is not None:
                return self._made
            if self.root_certificates is None:
                self._made = grpc.insecure_channel(self.target, _OPTIONS)
            else:
                own = () if self.certificate is None else (self.certificate.key, self.certificate.certificate)
                trusted = grpc.ssl_channel_credentials(self.root_certificates(), *own)
                self._made = grpc.secure_channel(self.target, trusted, _OPTIONS)
            return self._made


def _decoded(method: str, reply: type[M], data: bytes) -> M:
    try:
        return decode(reply, data)
    except DecodeError as error:
        no_sense(method, str(error))


def _guarded(method: str, call: Callable[[], Any]) -> Any:
    import grpc  # noqa: PLC0415 - an extra

    try:
        return call()
    except (grpc.RpcError, grpc.FutureCancelledError) as error:
        name = error.code().name if isinstance(error, grpc.RpcError) else "CANCELLED"
        detail = (error.details() or "") if isinstance(error, grpc.RpcError) else ""
        sent = dict(error.trailing_metadata() or ()) if isinstance(error, grpc.RpcError) else {}
        if name == "NOT_FOUND":
            raise AbsentError from None
        # The servers and the library of each language have these words in their texts.
        if name == "RESOURCE_EXHAUSTED" and "larger than max" in detail:
            raise TooLargeError from None
        raise status_fault(method, name, detail, sent.get("grpc-status-details-bin", b"")) from error


def status_fault(method: str, name: str, detail: str, details: bytes = b"") -> StatusFault:
    """Return the fault that is a status of gRPC, with the text of the server."""
    shown = one_line(tls_fault(detail) or detail)
    text = f"{_short(method)} failed: {name}" + (f", {shown}" if shown else "")
    if name in _LOGIN:
        text = f"the server refused the login ({name})"
    return StatusFault(text, name, details)


def status_name(code: int) -> str:
    """Return the name of the code of a status."""
    import grpc  # noqa: PLC0415 - an extra

    return next((one.name for one in grpc.StatusCode if one.value[0] == code), f"status {code}")


def no_sense(method: str, why: str) -> NoReturn:
    """Raise the fault of a reply that is not one to the request."""
    message = f"the reply to {_short(method)} makes no sense: {why}"
    raise CacheFault(message)


def _short(method: str) -> str:
    return method.rpartition("/")[2]
