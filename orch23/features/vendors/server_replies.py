"""Read the reply of a server: limit its size, split its events, get values from its JSON.

The client libraries have no limits. They decompress a reply to any size, collect an endless event, append to it line
by line, and check the time only between two events.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from orch23.model.digest import Json
from orch23.model.llm import token_count
from orch23.model.parsing import MAX_JSON_DEPTH, json_at
from orch23.model.server_url import is_loopback
from orch23.providers.connections import CallSockets, ClientConnection, TlsContexts, no_cookies
from orch23.providers.faults import (
    CLIENT_ERRORS,
    TransportError,
    incomplete_error,
    invalid_reply_diagnostic,
    status_error,
    too_long_error,
)
from orch23.providers.rate_limits import report_reply


def list_at(value: Json, *path: str | int) -> tuple[Json, ...]:
    """Return the list at a path; an empty one if there is none."""
    found = json_at(value, *path)
    return tuple(found) if isinstance(found, list | tuple) else ()


def text_at(value: Json, *path: str | int) -> str:
    """Return the text at a path; an empty one if there is none."""
    found = json_at(value, *path)
    return found if isinstance(found, str) else ""


def token_count_at(value: Json, *path: str | int) -> int:
    """Return the number of tokens at a path; 0 if there is none."""
    return token_count(json_at(value, *path))


_NOTHING = (b"", b"[DONE]")


def require_event_names(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces, as long as each event with data has a name.

    Raises:
        ValueError: an event has none. Its name was lost, and the library would drop a part of the response.
    """
    rest, named, filled = b"", False, False
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"event":
                named = bool(value.strip())
            elif field == b"data":
                filled = filled or value.strip() not in _NOTHING
            elif not field and not value:
                if filled and not named:
                    message = "an event has data and no name"
                    raise ValueError(message)
                named = filled = False
        yield piece


def join_text(texts: Iterable[str]) -> str:
    """Return the pieces of a response as one text; the two halves of a character may be in two pieces.

    Raises:
        ValueError: half of a character is missing: such a text cannot be stored.
    """
    text = "".join(texts)
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


MAX_REPLY_BYTES = 4 * 1_048_576
# The limit of a stream. It has up to 350 bytes for each token: 128,000 tokens are 45 MB.
MAX_STREAM_BYTES = 64 * 1_048_576

MAX_RESULTS_BYTES = 512 * 1_048_576

MAX_EVENT_BYTES = 4 * 1_048_576
MAX_EVENT_LINES = 1_000
MAX_RESPONSE_CHARACTERS = 4 * 1_048_576
MAX_HEADERS = 200
_MAX_ERROR_BYTES = 65_536
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[{\]}]")
# The stream of Amazon Bedrock, in binary frames.
AWS_STREAM = "application/vnd.amazon.eventstream"
EVENT_STREAM = "text/event-stream"
_PLAIN = frozenset({"", "identity"})
_ENDS_OF_EVENTS = (b"\n\n", b"\n\r\n", b"\r\r")
_LONGEST_END = 3
_LAST_EVENTS = (b"data: [DONE]", b"data:[DONE]")
# The end of a body follows `[DONE]` at once, unless the server keeps the stream open.
_END_S = 0.25

# The header that requests plain replies. Compressed ones are refused: 1 MiB may become 1 GiB of text.
IDENTITY_ENCODING = {"accept-encoding": "identity"}


def http_client(
    library: ModuleType, url: str, connection: ClientConnection, trust: TlsContexts, *, has_key: bool = True
) -> Any:
    """Return the HTTP client of a vendor's library: no redirects, and no proxy for addresses of this machine.

    Without a key, requests have no `Authorization`: a server that logs it would report a wrong key.
    """
    keyless = [] if has_key else [lambda request: request.headers.pop("authorization", None)]
    return library.DefaultHttpxClient(
        follow_redirects=False,
        trust_env=not is_loopback(url),
        verify=trust.context_for(url),
        headers=IDENTITY_ENCODING,
        cookies=no_cookies(),
        event_hooks={
            "request": [lambda request: request.extensions.update(trace=connection.trace), *keyless],
            "response": [lambda reply: limit_reply(reply, url, connection.call)],
        },
    )


def limit_reply(response: Any, url: str, sockets: CallSockets) -> None:
    """Limit what a client library can read of a reply; an event hook of the HTTP library.

    The body of an error reply is cut at its limit: the status is enough. Reading any other body beyond its limit raises
    TransportError. The text is UTF-8, whatever encoding the reply names.

    Raises:
        TransportError: the reply has too many headers, or is compressed.
    """
    status, headers = response.status_code, response.headers
    report_reply(status, headers)
    if len(headers.raw) > MAX_HEADERS:
        raise too_long_error(url, f"{len(headers.raw):,} headers, more than {MAX_HEADERS}")
    coding = headers.get("content-encoding", "").strip().lower()
    if coding not in _PLAIN:
        said = f"the reply is compressed ({coding}), which was not requested"
        raise status_error(url, status, said, dict(headers), charged=status < CLIENT_ERRORS)
    response.encoding = "utf-8"
    pieces = _timely(response.iter_bytes(), url, sockets)
    if status >= CLIENT_ERRORS:
        pieces = _first(pieces, _MAX_ERROR_BYTES)
    elif headers.get("content-type", "").startswith(AWS_STREAM):
        pieces = _at_most(pieces, MAX_STREAM_BYTES, url)
    elif headers.get("content-type", "").startswith(EVENT_STREAM):
        pieces = _to_end(split_events(_at_most(pieces, MAX_STREAM_BYTES, url), url), sockets)
    else:
        # The results of a batch are many responses in one reply.
        are_results = response.request.url.path.endswith(("/results", "/content"))
        pieces = _at_most(pieces, MAX_RESULTS_BYTES if are_results else MAX_REPLY_BYTES, url)
    response.iter_bytes = lambda *_args, **_more: pieces


def split_events(pieces: Iterable[bytes], url: str) -> Iterator[bytes]:
    r"""Yield a stream of server-sent events event by event, with `\n` as the end of each line.

    So no client library has to join an event from its pieces.

    Raises:
        TransportError: an event is too long, or nested too deeply.
    """
    buffered = bytearray()
    for piece in pieces:
        begin = max(0, len(buffered) - _LONGEST_END)
        buffered += piece
        end = max(at + len(mark) if (at := buffered.rfind(mark, begin)) >= 0 else 0 for mark in _ENDS_OF_EVENTS)
        if end:
            whole = bytes(buffered[:end])
            del buffered[:end]
            yield from _events(whole, url)
        if len(buffered) > MAX_EVENT_BYTES:
            raise too_long_error(url, f"an event of more than {MAX_EVENT_BYTES:,} bytes")
    if buffered:
        yield from _events(bytes(buffered), url)


def _events(data: bytes, url: str) -> Iterator[bytes]:
    *whole, half = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    for event in (*(one + b"\n\n" for one in whole), half):
        if event.count(b"\n") > MAX_EVENT_LINES:
            raise too_long_error(url, f"an event of more than {MAX_EVENT_LINES:,} lines")
        if event.count(b"[") + event.count(b"{") > MAX_JSON_DEPTH and _is_too_deep(event):
            message = f"{url} sent an event that is nested deeper than {MAX_JSON_DEPTH} levels"
            raise TransportError(invalid_reply_diagnostic(message), charged=True)
        if event:
            yield event


def _is_too_deep(event: bytes) -> bool:
    level = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub(b"", event)):
        level += 1 if bracket[0] in b"[{" else -1
        if level > MAX_JSON_DEPTH:
            return True
    return False


def _timely(pieces: Iterable[bytes], url: str, sockets: CallSockets) -> Iterator[bytes]:
    """Stop reading when the connections are shut down: what has arrived may take long to read and is incomplete."""
    for piece in pieces:
        if sockets.is_shut_down:
            break
        yield piece
    if sockets.is_shut_down:
        raise incomplete_error(url, "the time was up")


def _to_end(events: Iterable[bytes], sockets: CallSockets) -> Iterator[bytes]:
    """Read a stream to its end before `[DONE]` is yielded.

    The client library reads nothing after `[DONE]`, and a connection with unread bytes cannot serve another call.
    """
    left = iter(events)
    for event in left:
        if event.startswith(_LAST_EVENTS):
            # The response is complete: an error of what follows only ends the connection.
            with contextlib.suppress(Exception), sockets.shut_down_after(_END_S):
                for _ in left:
                    pass
        yield event


def _at_most(pieces: Iterable[bytes], limit: int, url: str) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit:
            raise too_long_error(url, f"more than {limit:,} bytes")
        yield piece


def _first(pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    for piece in pieces:
        yield piece[:limit]
        limit -= len(piece)
        if limit <= 0:
            return
