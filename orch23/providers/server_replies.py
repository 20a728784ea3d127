"""Read the reply of a server: limit its size, split its events, get values from its JSON.

The libraries have no limits of their own. They decompress a reply to any size, collect an event without end, append to
it line by line, and look at the time only between two events.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orch23.model.digest import Json
from orch23.model.parsing import MAX_JSON_DEPTH
from orch23.providers.connections import CallSockets
from orch23.providers.faults import (
    TransportError,
    incomplete_error,
    invalid_reply_diagnostic,
    status_error,
    too_long_error,
)

_MOST_TOKENS = 10**12  # far beyond any request: a number that is more is no count


def json_at(value: Json, *path: str | int) -> Json:
    """Return what lies at a path of a JSON value, None where there is nothing."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list | tuple) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def list_at(value: Json, *path: str | int) -> tuple[Json, ...]:
    """Return the list at a path, an empty one where there is none."""
    found = json_at(value, *path)
    return tuple(found) if isinstance(found, list | tuple) else ()


def text_at(value: Json, *path: str | int) -> str:
    """Return the text at a path, an empty one where there is none."""
    found = json_at(value, *path)
    return found if isinstance(found, str) else ""


def token_count_at(value: Json, *path: str | int) -> int:
    """Return the number of tokens at a path, 0 where there is none."""
    return token_count(json_at(value, *path))


def token_count(value: object) -> int:
    """Return a number of tokens; 0, as where nobody counted, for all that is none. Less would give money back."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else 0


_NOTHING = (b"", b"[DONE]")


def require_event_names(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pass the pieces on, as long as each event that has data has a name.

    Raises:
        ValueError: one has none. Its name was lost on the way, and a part of the answer would be lost with it.

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
    """Return the pieces of an answer as one text; a character of which each half came in a piece of its own is whole.

    Raises:
        ValueError: one half of a character never came: such a text cannot be written down.

    """
    text = "".join(texts)
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


MAX_REPLY_BYTES = 4 * 1_048_576
MAX_STREAM_BYTES = 64 * 1_048_576
"""Of a stream, which takes up to 350 bytes a token: 128,000 tokens are 45 MB."""

MAX_EVENT_BYTES = 4 * 1_048_576
MAX_EVENT_LINES = 1_000
MAX_RESPONSE_CHARACTERS = 4 * 1_048_576
MAX_HEADERS = 200
_MAX_ERROR_BYTES = 65_536
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[{\]}]")
_CLIENT_ERRORS = 400
_EVENT_STREAM = "text/event-stream"
_PLAIN = frozenset({"", "identity"})
_ENDS_OF_EVENTS = (b"\n\n", b"\n\r\n", b"\r\r")
_LONGEST_END = 3

IDENTITY_ENCODING = {"accept-encoding": "identity"}
"""The header that asks for plain replies. A compressed one is refused: 1 MiB of it may be 1 GiB of text."""


def limit_reply(response: Any, url: str, sockets: CallSockets) -> None:
    """Limit what a client library can read of a reply that has just begun; an event hook of the HTTP library.

    The body of an error is cut at its limit: its status says what matters. Reading any other beyond its limit raises
    TransportError. The text is UTF-8, whatever codec the reply names.

    Raises:
        TransportError: the reply has too many headers, or is compressed.

    """
    status, headers = response.status_code, response.headers
    if len(headers.raw) > MAX_HEADERS:
        raise too_long_error(url, f"{len(headers.raw):,} headers, more than {MAX_HEADERS}")
    coding = headers.get("content-encoding", "").strip().lower()
    if coding not in _PLAIN:
        said = f"the reply is compressed ({coding}), which was not asked for"
        raise status_error(url, status, said, dict(headers), charged=status < _CLIENT_ERRORS)
    response.encoding = "utf-8"
    pieces = _timely(response.iter_bytes(), url, sockets)
    if status >= _CLIENT_ERRORS:
        pieces = _first(pieces, _MAX_ERROR_BYTES)
    elif headers.get("content-type", "").startswith(_EVENT_STREAM):
        pieces = split_events(_at_most(pieces, MAX_STREAM_BYTES, url), url)
    else:
        pieces = _at_most(pieces, MAX_REPLY_BYTES, url)
    response.iter_bytes = lambda *_args, **_more: pieces


def split_events(pieces: Iterable[bytes], url: str) -> Iterator[bytes]:
    r"""Give a stream of server-sent events event by event, with `\n` as the end of each line.

    So no reader has to put an event together, piece by piece.

    Raises:
        TransportError: an event is too long, or nested too deeply.

    """
    held = bytearray()
    for piece in pieces:
        begin = max(0, len(held) - _LONGEST_END)
        held += piece
        end = max(at + len(mark) if (at := held.rfind(mark, begin)) >= 0 else 0 for mark in _ENDS_OF_EVENTS)
        if end:
            whole = bytes(held[:end])
            del held[:end]
            yield from _events(whole, url)
        if len(held) > MAX_EVENT_BYTES:
            raise too_long_error(url, f"an event of more than {MAX_EVENT_BYTES:,} bytes")
    if held:
        yield from _events(bytes(held), url)


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
    """Stop reading when the connections are cut: what had arrived may take long to read, and is not the whole."""
    for piece in pieces:
        if sockets.is_shut_down:
            break
        yield piece
    if sockets.is_shut_down:
        raise incomplete_error(url, "the time was up")


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
