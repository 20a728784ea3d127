"""The vendor's prompt cache: what is marked for it, and which call writes a prefix before others read it (ADR 38)."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.digest import Json, digest_json
from orch23.model.llm import CachePolicy, Message, Provider, Request, Response
from orch23.model.media import split_text
from orch23.providers.faults import build_ended_error
from orch23.providers.model_facts import ModelFacts, facts_of
from orch23.providers.shared_beginnings import NOTHING_SHARED, SharedBeginnings

if TYPE_CHECKING:
    from orch23.model.media import Media

# The vendors take at most 64 characters.
_KEY_LENGTH = 40
_MOST_MARKS = 4


class CacheMarks(Struct, frozen=True):
    """The ends of cached prefixes: of the system text, in the first message, of a later message. At most four in all.

    `turn` is the position of that message; 0 for none.
    """

    system: bool = False
    ends: tuple[int, ...] = ()
    turn: int = 0

    def ends_in(self, request: Request, at: int) -> tuple[int, ...]:
        """Return the ends in one message, in characters, ascending."""
        whole = len(request.messages[at].content)
        last = (whole,) if self.turn and at == self.turn else ()
        return (*(self.ends if at == 0 else ()), *last)


NO_MARKS = CacheMarks()


def marked_content(
    message: Message, ends: Sequence[int], part: "Callable[[str | Media], Mapping[str, Json]]", mark: Mapping[str, Json]
) -> str | list[dict[str, Json]]:
    """Return the text of a message, or parts if it has pictures, PDFs or ends of cached prefixes.

    `part` makes a part of the vendor's interface, and `mark` is added to each part that ends such a prefix.
    """
    if not ends and not message.media:
        return message.content
    parts = split_text(message.content, message.media, ends)
    return [{**part(one), **(mark if ends_here else {})} for one, ends_here in parts]


def cache_marks(request: Request, facts: ModelFacts) -> CacheMarks:
    """Return the marks that pay: each ends a prefix that is long enough, and that another request will send again.

    The API puts the system text first. It adds more text, such as a schema, so a prefix is at least as long as
    it is counted here.
    """
    cache = request.cache
    if cache is None or not facts.has_breakpoints or not request.messages:
        return NO_MARKS
    before = len(request.system)
    is_shared = request.system_users == "attempts" or (request.system_users == "stages" and cache.share)
    text = request.messages[0].content
    wanted = {*(_shared_ends(request) if cache.share else ()), request.stable if request.is_repeated else 0}
    ends = _block_ends(text, [end for end in sorted(wanted) if end and facts.caches(before + end)])
    system = is_shared and bool(request.system.strip()) and facts.caches(before)
    turn = _marked_turn(request, facts)
    return CacheMarks(system=system, ends=ends[system + bool(turn) - _MOST_MARKS :], turn=turn)


def _shared_ends(request: Request) -> list[int]:
    """Return the ends, ascending, of the beginnings of the first message that other stages of the run send too."""
    return sorted({*request.beginnings, request.family} - {0})


def _marked_turn(request: Request, facts: ModelFacts) -> int:
    """Return the position of the later message that ends a cached prefix: the last one, which the next attempt repeats.

    The last attempt marks the end of the request before it: that reads what is there, and writes nothing.
    """
    at = len(request.messages) - (3 if request.is_final else 1)
    if at < 1 or not request.messages[at].content.strip():
        return 0
    length = len(request.system) + sum(len(message.content) for message in request.messages[: at + 1])
    return at if facts.caches(length) else 0


def _block_ends(text: str, wanted: list[int]) -> tuple[int, ...]:
    """Return ends between which there is more than blanks: the API refuses a block of blanks.

    Blanks after an end are sent in the block before it, with its mark.
    """
    ends: list[int] = []
    for end in wanted:
        if text[ends[-1] if ends else 0 : end].strip():
            ends.append(end)
    if ends and text[ends[-1] :].isspace():
        ends[-1] = len(text)
    return tuple(ends)


def shared_prefixes(request: Request, facts: ModelFacts) -> dict[str, int]:
    """Return the cached prefixes that other stages of the run send too, ascending: identity, and length in characters.

    The length is of the system text and of the beginning of the first message.
    """
    cache = request.cache
    if cache is None or not cache.share or not request.messages:
        return {}
    text, before = request.messages[0].content, len(request.system)
    ends = [*([0] if request.system_users == "stages" else []), *_shared_ends(request)]
    return {_identity(request, text[:end], cache): before + end for end in ends if facts.caches(before + end)}


def cache_key(request: Request) -> str | None:
    """Return the key by which the vendor sends requests with the same beginning to the same cache; None for none.

    It is the same for all stages that share a beginning, and all attempts of a stage. Without `share` it is of the
    stage alone.
    """
    cache = request.cache
    ends = _shared_ends(request)
    if cache is None or not request.messages or not (ends or request.stable or request.system_users):
        return None
    length = next(iter(ends), 0) if cache.share else request.stable
    return _identity(request, request.messages[0].content[:length], cache)[:_KEY_LENGTH]


def cache_fields(request: Request) -> dict[str, Json]:
    """Return the fields of a request to OpenAI's own server for its prompt cache.

    The key keeps the beginning of the request in the cache of one machine. The vendor finds cached prefixes of earlier
    models without marks. Later ones read a prefix only to a breakpoint, and a write costs more than input: then
    `explicit` prevents the breakpoint that the vendor would set itself.
    """
    facts = facts_of("openai", request.model)
    key = cache_key(request) if facts.has_cache_key else None
    is_long = key is not None and request.writes_for_an_hour and facts.has_retention
    return {
        **({} if key is None else {"prompt_cache_key": key}),
        **({"prompt_cache_retention": "24h"} if is_long else {}),
        **({"prompt_cache_options": {"mode": "explicit"}} if facts.has_breakpoints else {}),
    }


def _identity(request: Request, head: str, cache: CachePolicy) -> str:
    return digest_json([request.endpoint, request.model, request.system, head, cache.ttl])


_LIFETIMES_S = {"5m": 300.0, "1h": 3600.0}
# The share of failing attempts above which a write for the next attempt pays: it costs 0.25 of the price of input more,
# and a read 0.9 less.
_WORTH_A_WRITE = 0.25 / 0.9


def pays_to_write(judged: int, failed: int) -> bool:
    """Return whether a first attempt should write for the next one, after so many attempts, of which some failed.

    Without any it does, as if one of three had failed: a needless write costs at most a quarter of the prompt.
    """
    return (failed + 1) / (judged + 3) > _WORTH_A_WRITE


class CachedPrefixes(Struct):
    """The prefixes of a run that the vendor caches: those that a call is writing, and when each was last used.

    `shared` are the beginnings that several stages of the run will send.
    """

    clock: Callable[[], float] = time.monotonic
    shared: SharedBeginnings = NOTHING_SHARED
    _writing: set[str] = field(default_factory=set)
    _used: dict[str, float] = field(default_factory=dict)
    _closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def begin(self, prefixes: Sequence[str], lifetime_s: float, most_s: float) -> tuple[str, ...]:
        """Wait at most `most_s` seconds while another call writes one of these; return those that this call writes.

        Raises:
            ProviderError: the build has ended.
        """
        until = self.clock() + most_s
        with self._changed:
            while not self._writing.isdisjoint(prefixes) and not self._closed and (left := until - self.clock()) > 0:
                self._changed.wait(left)
            if self._closed:
                raise build_ended_error()
            if not self._writing.isdisjoint(prefixes):
                return ()
            written = tuple(one for one in prefixes if not self.is_written(one, lifetime_s))
            self._writing.update(written)
            return written

    def is_written(self, prefix: str, lifetime_s: float) -> bool:
        """Return whether a call of this run has written or read a prefix, so lately that it is in the cache."""
        used = self._used.get(prefix)
        return used is not None and self.clock() - used < lifetime_s

    def use(self, prefixes: Sequence[str]) -> None:
        """Note that a response has begun: from now on the prefixes of its request are in the cache."""
        with self._changed:
            self._used.update(dict.fromkeys(prefixes, self.clock()))
            self._writing.difference_update(prefixes)
            self._changed.notify_all()

    def abandon(self, prefixes: Sequence[str]) -> None:
        """Note that the call that was to write these has failed: another may."""
        with self._changed:
            self._writing.difference_update(prefixes)
            self._changed.notify_all()

    def close(self) -> None:
        """End all waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class WarmingProvider(Struct, frozen=True, kw_only=True):
    """A provider whose calls with the same cached prefix wait for the first event of the first of them.

    What a call writes can be read from its first event on. Calls at the same time would each write the prefix, for
    more than the price of input. The inner provider reports its first event as an empty text.

    `expects_retry` says whether another attempt of the stage is likely enough to write for it what only this stage
    sends; what an earlier attempt of the run has written is read in any case.
    """

    inner: Provider
    prefixes: CachedPrefixes
    expects_retry: Callable[[Request], bool] = lambda _request: True

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response. Half of the time is left for the call, however long the wait is.

        Raises:
            ProviderError: the provider failed, or the build has ended.
        """
        cache = request.cache
        if cache is None or not request.messages:
            return self.inner.complete(request, deadline_s, on_text)
        until, lifetime_s = self.prefixes.clock() + deadline_s, _LIFETIMES_S[cache.ttl]
        request = self.prefixes.shared.marked(request)
        own = _identity(request, request.messages[0].content[: request.stable], cache)
        is_repeated = self.prefixes.is_written(own, lifetime_s) or (request.stable > 0 and self.expects_retry(request))
        request = replace(request, is_repeated=is_repeated)
        shared = tuple(shared_prefixes(request, facts_of(request.provider, request.model)))
        writes = self.prefixes.begin(shared, lifetime_s, deadline_s / 2)
        has_begun = False

        def hear(text: str) -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                self.prefixes.use((*shared, own) if is_repeated else shared)
            on_text(text)

        try:
            return self.inner.complete(request, until - self.prefixes.clock(), hear)
        finally:
            if writes:
                self.prefixes.abandon(writes)
