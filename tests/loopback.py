"""A server on this machine that gives replies from a list, byte by byte as written, and remembers what it was asked."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_END_OF_HEAD = b"\r\n\r\n"
_REASONS = {200: "OK", 401: "Unauthorized", 429: "Too Many Requests", 500: "Internal Server Error"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came; names of headers in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: status, headers, and the pieces of the body, each sent on its own.

    `hold` keeps the connection open and silent after the last piece, until the server is closed or the client is gone.
    `whole` says that the body ends as HTTP has it; without, the connection is cut in the middle of it.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] = ()
    hold: bool = False
    whole: bool = True


@dataclass(frozen=True, slots=True)
class NoReply:
    """The connection is closed without a word (`hold`: kept open without one)."""

    hold: bool = False


Scripted: TypeAlias = Reply | NoReply


def json_reply(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a reply that is JSON."""
    return Reply(status, {"content-type": "application/json", **(headers or {})}, (json.dumps(body).encode(),))


def events_reply(events: Sequence[tuple[str, Any] | bytes], *, hold: bool = False, whole: bool = True) -> Reply:
    """Return a stream of events: name and data each, or raw bytes."""
    pieces = tuple(
        one if isinstance(one, bytes) else f"event: {one[0]}\ndata: {json.dumps(one[1])}\n\n".encode() for one in events
    )
    return Reply(200, {"content-type": "text/event-stream"}, pieces, hold, whole)


class Loopback:
    """The server. `rule` replies to requests beyond the list; without it, they get a 500 that says so."""

    def __init__(self, replies: Sequence[Scripted] = (), rule: Callable[[Asked], Scripted] | None = None) -> None:
        self._rule = rule
        self.asked: list[Asked] = []
        self.arrived = threading.Event()
        self.changed = threading.Condition()
        self.given_up = 0
        self.ended = 0
        self._replies = list(replies)
        self._closed = threading.Event()
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def add(self, *replies: Scripted) -> None:
        """Put further replies at the end of the list."""
        with self._lock:
            self._replies.extend(replies)

    def wait_for(self, wanted: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until something is so that a request, or a client that gives up, may bring about."""
        with self.changed:
            assert self.changed.wait_for(wanted, timeout_s), f"{len(self.asked)} asked, {self.given_up} given up"

    def close(self) -> None:
        """Stop, and end all that is held."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            still_open = list(self._open)
        for one in still_open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        """Answer one request; the connection is not kept for a second."""
        with contextlib.suppress(OSError), connection:
            asked = _read(connection)
            if asked is None:
                return
            with self._lock:
                self.asked.append(asked)
                out_of_replies = json_reply({"error": {"message": "the list of replies is used up"}}, 500)
                listed = self._replies.pop(0) if self._replies else None
            reply = listed or (self._rule(asked) if self._rule else out_of_replies)
            self.arrived.set()
            with self.changed:
                self.changed.notify_all()
            with contextlib.suppress(ConnectionError):  # the client is gone, perhaps before it was told a word
                if isinstance(reply, Reply):
                    _send(connection, reply)
                if reply.hold:
                    connection.recv(1)  # until the client, or the server, has had enough
            if reply.hold:
                with self.changed:
                    self.given_up += not self._closed.is_set()
                    self.changed.notify_all()
        with self.changed:
            self.ended += 1
            self.changed.notify_all()


@contextlib.contextmanager
def loopback(*replies: Scripted, rule: Callable[[Asked], Scripted] | None = None) -> Iterator[Loopback]:
    """Serve these replies."""
    server = Loopback(replies, rule)
    try:
        yield server
    finally:
        server.close()


def _read(connection: socket.socket) -> Asked | None:
    data = b""
    while _END_OF_HEAD not in data:
        more = connection.recv(65_536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(_END_OF_HEAD)
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        more = connection.recv(65_536)
        if not more:
            return None
        body += more
    method, path, _ = first.split(" ", 2)
    return Asked(method, path, headers, body)


def _send(connection: socket.socket, reply: Reply) -> None:
    headers = {"connection": "close", "transfer-encoding": "chunked", **reply.headers}
    first = f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Reply')}"
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    connection.sendall("\r\n".join(lines).encode("latin-1") + _END_OF_HEAD)
    for piece in reply.pieces:
        connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    if reply.whole and not reply.hold:
        connection.sendall(b"0\r\n\r\n")


# ---- what Anthropic's Messages API says ---------------------------------------------------------


def message_events(
    *texts: str,
    stop: str | None = "end_turn",
    model: str = "claude-test-1",
    usage: Mapping[str, Any] | None = None,
    output_tokens: int = 7,
    **delta: Any,
) -> list[tuple[str, Any] | bytes]:
    """Return the events of one answer, its text in these pieces."""
    counted = {"input_tokens": 11, "output_tokens": 1, **(usage or {})}
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": counted,
    }  # fmt: skip
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    events: list[tuple[str, Any] | bytes] = [
        ("message_start", {"type": "message_start", "message": message}),
        ("content_block_start", block),
        ("ping", {"type": "ping"}),
    ]
    events += [
        ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}})
        for t in texts
    ]
    end = {"stop_reason": stop, "stop_sequence": None, **delta}
    events += [
        ("content_block_stop", {"type": "content_block_stop", "index": 0}),
        ("message_delta", {"type": "message_delta", "delta": end, "usage": {"output_tokens": output_tokens}}),
        ("message_stop", {"type": "message_stop"}),
    ]
    return events


def message_reply(*texts: str, **more: Any) -> Reply:
    """Return one answer of the Messages API."""
    return events_reply(message_events(*texts, **more))


def error_reply(status: int, kind: str, message: str = "no", headers: Mapping[str, str] | None = None) -> Reply:
    """Return an error of the Messages API."""
    return json_reply({"type": "error", "error": {"type": kind, "message": message}}, status, headers)
