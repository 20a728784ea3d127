"""What a server can make a provider read, hold in memory or wait for: against servers that keep to no rule."""

import contextlib
import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest

from orch23.features.vendors import server_replies
from orch23.features.vendors.anthropic_messages import AnthropicMessages
from orch23.features.vendors.server_replies import MAX_EVENT_BYTES, MAX_EVENT_LINES, MAX_REPLY_BYTES, split_events
from orch23.model.llm import Message, Provider, Request
from orch23.providers.faults import TransportError
from tests.loopback import Reply, loopback, message_reply

pytestmark = pytest.mark.slow  # each reply takes its time

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
LONG = 60.0
SLACK = 16 * 1_048_576  # what the buffers of two sockets may hold
MEBIBYTE = 1_048_576
STREAM_BYTES = MEBIBYTE // 8


def request() -> Request:
    return Request(
        provider="p", model="m", endpoint="e", messages=(Message("user", "hi"),), identity=(),
        params={"max_tokens": 100}, system="",
    )  # fmt: skip


def openai_client(interface: str, url: str) -> Provider:
    from orch23.features.vendors import openai_chat, openai_client, openai_responses  # noqa: PLC0415 - of the feature

    server = openai_client.ServerConnection(server=openai_client.ServerAccess(f"{url}/v1", "k"))
    if interface == "chat":
        return openai_chat.ChatCompletions(connection=server)
    return openai_responses.ResponsesApi(connection=server, stage="s", emit=lambda _event: None)


CLIENTS: dict[str, Callable[[str], Provider]] = {
    "anthropic": lambda url: AnthropicMessages(url=url, key="k"),
    "chat": partial(openai_client, "chat"),
    "responses": partial(openai_client, "responses"),
}
CHAT, RESPONSES = (pytest.param(name, marks=pytest.mark.needs("vendors")) for name in ("chat", "responses"))
every_client = pytest.mark.parametrize("client", ["anthropic", CHAT, RESPONSES])
every_stream = pytest.mark.parametrize("client", ["anthropic", CHAT])


def fault(client: str, url: str, deadline_s: float = LONG) -> TransportError:
    with pytest.raises(TransportError) as caught:
        CLIENTS[client](url).complete(request(), deadline_s, lambda _n: None)
    return caught.value


def fault_of(client: str, reply: Reply) -> TransportError:
    with loopback(reply) as server:
        return fault(client, server.url)


class Flood:
    """A server that sends a head and then one piece without end, and counts what it gets rid of."""

    def __init__(self, head: bytes, piece: bytes) -> None:
        self.sent = 0
        self.over = threading.Event()
        self._head, self._piece = head, piece
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(self._head)
                while True:
                    self.sent += connection.send(self._piece)
        self.over.set()


@contextlib.contextmanager
def flood(piece: bytes, status: str = "200 OK", **headers: str) -> Iterator[Flood]:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    server = Flood(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode(), piece)
    try:
        yield server
    finally:
        server.close()


# ---- compression ------------------------------------------------------------------------------------


@every_client
def test_an_uncompressed_reply_is_requested(client: str) -> None:
    with loopback() as server:
        fault(client, server.url)
    assert server.asked[0].headers["accept-encoding"] == "identity"


@cache
def bomb() -> bytes:
    """Return eight kilobytes that are eight mebibytes; it is decompressed by none, so it need not be larger."""
    return gzip.compress(b"data: " + b"a" * (8 * MEBIBYTE))


@every_client
@pytest.mark.parametrize("coding", ["gzip", "deflate", "GZIP", "br", "gzip, gzip", "made-up"])
@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "events"])
def test_a_compressed_reply_is_never_decompressed(
    client: str, coding: str, kind: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx2._decoders as decoders  # noqa: PLC0415 - heavy; it is what must not run

    def decompress(*_: object) -> Iterator[bytes]:
        pytest.fail("it was decompressed")

    monkeypatch.setattr(decoders.ZlibDecompressor, "decompress", decompress)
    found = fault_of(client, Reply(200, {**kind, "content-encoding": coding}, (bomb(),)))
    assert (found.diagnostic.code, found.transient, found.charged) == ("E421", False, True)
    assert f"compressed ({coding.lower()})" in found.diagnostic.message


@every_client
def test_a_compressed_error_keeps_its_status_and_its_wait(client: str) -> None:
    headers = {**JSON, "content-encoding": "gzip", "retry-after": "7"}
    found = fault_of(client, Reply(429, headers, (gzip.compress(b"{}"),)))
    assert (found.diagnostic.code, found.transient, found.charged) == ("E416", True, False)
    assert (found.status, found.retry_after_s) == (429, 7.0)


def test_a_reply_with_identity_encoding_is_read() -> None:
    reply = message_reply("text")
    with loopback(Reply(200, {**reply.headers, "content-encoding": "identity"}, reply.pieces)) as server:
        assert CLIENTS["anthropic"](server.url).complete(request(), LONG, lambda _n: None).text == "text"


@every_client
@pytest.mark.parametrize("charset", ["punycode", "zlib", "utf-7", "utf-16", "no-such"])
def test_an_error_is_utf_8_whatever_codec_it_names(client: str, charset: str) -> None:
    headers = {"content-type": f"application/json; charset={charset}"}
    found = fault_of(client, Reply(400, headers, (b'{"error": {"message": "caf\xc3\xa9-9z9z"}}',)))
    assert "caf\u00e9-9z9z" in found.diagnostic.message


# ---- bytes ------------------------------------------------------------------------------------------


@every_client
@pytest.mark.parametrize(
    ("piece", "limit"),
    [
        (b": x\n\n" * 10_000, STREAM_BYTES),
        (b"data: " + b"a" * 65_536, MAX_EVENT_BYTES),
        (b"a\r" * 10_000, MAX_EVENT_LINES * 2),
        (b"a\n" * 10_000, MAX_EVENT_LINES * 2),
        (b"a\r\n" * 10_000, MAX_EVENT_LINES * 3),
    ],
    ids=["comments", "a line", "lines of CR", "lines of LF", "lines of CRLF"],
)
def test_a_stream_without_end_is_read_no_further_than_its_limit(
    client: str, piece: bytes, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_replies, "MAX_STREAM_BYTES", STREAM_BYTES)  # the whole would take the SDKs a minute
    with flood(piece, content_type="text/event-stream") as server:
        found = fault(client, f"http://127.0.0.1:{server.port}")
        assert (found.diagnostic.code, found.transient, found.charged) == ("E408", False, True)
        assert server.over.wait(LONG)
    assert server.sent <= limit + SLACK


@pytest.mark.parametrize("client", ["anthropic", RESPONSES])
def test_a_reply_without_end_is_read_no_further_than_its_limit(client: str) -> None:
    with flood(b"a" * 65_536, content_type="application/json") as server:
        assert fault(client, f"http://127.0.0.1:{server.port}").diagnostic.code == "E408"
        assert server.over.wait(LONG)
    assert server.sent <= MAX_REPLY_BYTES + SLACK


@every_client
def test_an_error_without_end_is_read_as_far_as_it_is_shown(client: str) -> None:
    with flood(b"a" * 65_536, "503 Busy", content_type="text/plain", retry_after="7") as server:
        found = fault(client, f"http://127.0.0.1:{server.port}")
        assert (found.diagnostic.code, found.transient, found.retry_after_s) == ("E417", True, 7.0)
        assert server.over.wait(LONG)
    assert server.sent <= SLACK


@every_stream
def test_a_response_has_its_own_limit(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "anthropic_messages" if client == "anthropic" else "openai_chat"
    monkeypatch.setattr(f"orch23.features.vendors.{module}.MAX_RESPONSE_CHARACTERS", 9)
    parts = b'data: {"choices": [{"delta": {"content": "12345"}}]}\n\n'
    reply = message_reply("12345", "67890") if client == "anthropic" else Reply(200, EVENTS, (parts, parts))
    found = fault_of(client, reply)
    assert (found.diagnostic.code, found.charged) == ("E408", True)
    assert "more than 9 characters" in found.diagnostic.message


# ---- headers, depth ---------------------------------------------------------------------------------


@every_client
@pytest.mark.parametrize("status", [200, 500])
def test_headers_are_counted(client: str, status: int) -> None:
    found = fault_of(client, Reply(status, {f"a{number}": "" for number in range(5_000)}, (b"{}",)))
    assert found.diagnostic.code == "E408"
    assert "headers, more than 200" in found.diagnostic.message


@every_client
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
def test_an_event_is_not_nested_deeper_than_any_other_json(client: str, begin: bytes, end: bytes) -> None:
    data = begin * 65 + b"1" + end * 65
    found = fault_of(client, Reply(200, EVENTS, (b"event: message_start\ndata: " + data + b"\n\n",)))
    assert (found.diagnostic.code, found.charged) == ("E421", True)
    assert "deeper than 64 levels" in found.diagnostic.message


def test_brackets_in_a_text_are_no_levels() -> None:
    code = '[{("\\' * 1_000
    with loopback(message_reply(code)) as server:
        assert CLIENTS["anthropic"](server.url).complete(request(), LONG, lambda _n: None).text == code


# ---- time -------------------------------------------------------------------------------------------


@pytest.mark.stride(4)
@every_client
@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"a"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", b": x\n\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n", b" "),
        (b"HTTP/1.1 500 No\r\ncontent-type: application/json\r\n\r\n", b" "),
    ],
    ids=["a header", "interim replies", "comments", "a reply", "an error"],
)
def test_the_deadline_ends_a_call_of_which_each_byte_comes_soon_after_the_last(
    client: str, head: bytes, drop: bytes
) -> None:
    if client == "chat" and b"json" in head and b"200" in head:
        pytest.skip("it reads no reply that is not a stream")
    with dripping(head, drop) as port:
        assert fault(client, f"http://127.0.0.1:{port}", 1.0).diagnostic.code == "E402"


@contextlib.contextmanager
def dripping(head: bytes, drop: bytes) -> Iterator[int]:
    """Serve a head and then a drop every now and then, and fail if no one hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended, stop = threading.Event(), threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(head)
                while not stop.wait(0.05):
                    connection.sendall(drop)
        ended.set()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
        assert ended.wait(LONG), "the connection is still open"
    finally:
        stop.set()
        listener.close()


# ---- events -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1_000])
def test_events_come_whole_however_they_are_cut_into_pieces(end: bytes, size: int) -> None:
    lines = [b"event: a", b"data: 1", b"", b": c", b"", b"data: 2", b"data: 3", b"", b"data: half"]
    stream = end.join(lines)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    found = [event for event in split_events(pieces, "url") if event.strip()]
    assert [event.lstrip() for event in found] == [
        b"event: a\ndata: 1\n\n",
        b": c\n\n",
        b"data: 2\ndata: 3\n\n",
        b"data: half",
    ]


def test_an_event_is_given_as_soon_as_it_is_whole() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"data: 1\n\ndata: 2\n\nda"
        pytest.fail("it waits for more")

    events = split_events(pieces(), "url")
    assert [next(events), next(events)] == [b"data: 1\n\n", b"data: 2\n\n"]


def test_the_limits_allow_the_longest_responses() -> None:
    a_token_of_chat = 350
    assert 128_000 * a_token_of_chat < server_replies.MAX_STREAM_BYTES
