"""Anthropic's prompt cache as its documentation describes it, for requests of the Messages API: no model behind it.

`tests/test_simulated_cache.py` has its rules as a table. A token is four characters.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.loopback import Asked, Reply, Scripted, json_reply, message_events

MINIMUMS = {"claude-opus-5": 512, "claude-sonnet-5": 1024, "claude-opus-4-7": 2048, "claude-haiku-4-5": 4096}
LIFETIMES_S = {"5m": 300.0, "1h": 3600.0}
MAX_MARKS = 4
LOOKBACK = 20
"""So many positions are compared for each mark, its own included."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The input tokens of one request, by price."""

    plain: int = 0
    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    def in_units(self) -> float:
        """Return the price in prices of one plain token."""
        return self.plain + 0.1 * self.read + 1.25 * self.written_5m + 2 * self.written_1h

    def usage(self) -> dict[str, Any]:
        """Return the `usage` object of the API."""
        return {
            "input_tokens": self.plain,
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": self.written_5m + self.written_1h,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written_5m,
                "ephemeral_1h_input_tokens": self.written_1h,
            },
        }


@dataclass(slots=True)
class _Block:
    """A block of a request with all that is before it: identity, tokens, and the lifetime of its mark."""

    prefix: str
    tokens: int
    ttl: str | None


@dataclass(slots=True)
class _Entry:
    ttl: str
    expires_s: float


class RefusedError(Exception):
    """A request that the API refuses with 400."""


class PromptCache:
    """The cache of one account. `count` returns what a request costs; `publish` makes its writes visible."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def count(self, body: Mapping[str, Any]) -> tuple[Counted, Callable[[], None]]:
        """Return the tokens of a request, and what to call when its first event is sent."""
        with self._lock:
            return self._count(body)

    def _count(self, body: Mapping[str, Any]) -> tuple[Counted, Callable[[], None]]:
        blocks = list(_blocks(body))
        marks = [at for at, block in enumerate(blocks) if block.ttl is not None]
        _check(blocks, marks)
        least = MINIMUMS[body["model"]]
        hit = self._hit(blocks, marks)
        read = blocks[hit].tokens if hit is not None else 0
        counted, upto, writes = Counted(read=read), read, dict[str, str]()
        for at in marks:
            ttl = blocks[at].ttl
            assert ttl is not None
            if blocks[at].tokens < least or (hit is not None and at <= hit):
                continue
            name = f"written_{ttl}"
            counted = replace(counted, **{name: getattr(counted, name) + blocks[at].tokens - upto})
            upto, writes[blocks[at].prefix] = blocks[at].tokens, ttl
        counted = replace(counted, plain=blocks[-1].tokens - upto)

        def publish() -> None:
            with self._lock:
                now = self._clock()
                self._entries |= {prefix: _Entry(ttl, now + LIFETIMES_S[ttl]) for prefix, ttl in writes.items()}

        return counted, publish

    def _hit(self, blocks: list[_Block], marks: list[int]) -> int | None:
        """Return the longest cached prefix, and keep it for longer."""
        now = self._clock()
        for mark in reversed(marks):
            for at in range(mark, max(-1, mark - LOOKBACK), -1):
                entry = self._entries.get(blocks[at].prefix)
                if entry is not None and entry.expires_s > now:
                    entry.expires_s = now + LIFETIMES_S[entry.ttl]
                    return at
        return None


def _check(blocks: list[_Block], marks: list[int]) -> None:
    if len(marks) > MAX_MARKS:
        message = f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}."
        raise RefusedError(message)
    lifetimes = [blocks[at].ttl for at in marks]
    if lifetimes != sorted(lifetimes, key=lambda ttl: ttl != "1h"):
        message = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        raise RefusedError(message)


def _blocks(body: Mapping[str, Any]) -> Iterator[_Block]:
    """Yield the blocks in the order in which the API puts them: system, then messages."""
    config = body.get("output_config") or {}
    # A schema becomes part of the system text; thinking changes the messages only.
    identity = hashlib.sha256(json.dumps([body["model"], config.get("format")], sort_keys=True).encode())
    characters = 0
    system, thinking = _content(body.get("system") or []), json.dumps(body.get("thinking"))
    said = [(message["role"], part) for message in body["messages"] for part in _content(message["content"])]
    for role, part in [*(("system", part) for part in system), *said]:
        if not part["text"].strip():
            message = "text content blocks must contain non-whitespace text"
            raise RefusedError(message)
        identity.update(json.dumps([role, part["text"], "" if role == "system" else thinking]).encode())
        characters += len(part["text"])
        mark = part.get("cache_control")
        yield _Block(identity.hexdigest(), characters // 4, mark and mark.get("ttl", "5m"))


def _content(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@dataclass(slots=True)
class Call:
    """One request of a build: its body, and its tokens as the server counted them."""

    body: dict[str, Any]
    counted: Counted


@dataclass
class CachedServer:
    """The rule of a loopback server with a prompt cache. `respond` returns the text of the response to a request.

    `before` is called in the thread of each request before its first event is sent; a test can hold it there.
    """

    respond: Callable[[str], str]
    clock: Callable[[], float]
    before: Callable[[str], None] = lambda _text: None
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = PromptCache(self.clock)

    def __call__(self, asked: Asked) -> Scripted:
        body = asked.json()
        try:
            counted, publish = self.cache.count(body)
        except RefusedError as error:
            said = {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}}
            return json_reply(said, 400)
        self.calls.append(Call(body, counted))
        text = text_of(body)
        events = message_events(self.respond(text), model=body["model"], usage=counted.usage())

        def pieces() -> Iterator[bytes]:
            self.before(text)
            publish()
            for event in events:
                assert not isinstance(event, bytes)
                yield f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode()

        return Reply(200, {"content-type": "text/event-stream"}, pieces())

    def in_units(self) -> float:
        """Return the price of all input, in prices of one plain token."""
        return sum(call.counted.in_units() for call in self.calls)


def text_of(body: Mapping[str, Any]) -> str:
    """Return the text of the first message of a request."""
    return "".join(part["text"] for part in _content(body["messages"][0]["content"]))
