"""Let one call write a prefix to the vendor's cache before the calls that read it (ADR 38)."""

import threading
import time
from collections.abc import Callable

from msgspec import Struct, field

from orch23.model.llm import Provider, Request, Response
from orch23.providers.cache_marks import shared_prefix
from orch23.providers.faults import build_ended_error
from orch23.providers.model_facts import facts_of

_LIFETIMES_S = {"5m": 300.0, "1h": 3600.0}


class CachedPrefixes(Struct):
    """The prefixes of a run that the vendor caches: those that a call is writing, and when each was last used."""

    clock: Callable[[], float] = time.monotonic
    _writing: set[str] = field(default_factory=set)
    _used: dict[str, float] = field(default_factory=dict)
    _closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def begin(self, prefix: str, lifetime_s: float, most_s: float) -> bool:
        """Wait while another call writes a prefix, for at most `most_s` seconds; return whether this call writes it.

        Raises:
            ProviderError: the build has ended.
        """
        until = self.clock() + most_s
        with self._changed:
            while prefix in self._writing and not self._closed and (left := until - self.clock()) > 0:
                self._changed.wait(left)
            if self._closed:
                raise build_ended_error()
            used = self._used.get(prefix)
            if prefix in self._writing or (used is not None and self.clock() - used < lifetime_s):
                return False
            self._writing.add(prefix)
            return True

    def use(self, prefix: str) -> None:
        """Note that a response has begun: from now on its prefix is in the cache."""
        with self._changed:
            self._used[prefix] = self.clock()
            self._writing.discard(prefix)
            self._changed.notify_all()

    def abandon(self, prefix: str) -> None:
        """Note that the call that was to write a prefix has failed: another may."""
        with self._changed:
            self._writing.discard(prefix)
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
    """

    inner: Provider
    prefixes: CachedPrefixes

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response. Half of the time is left for the call, however long the wait is.

        Raises:
            ProviderError: the provider failed, or the build has ended.
        """
        prefix = shared_prefix(request, facts_of(request.provider, request.model))
        if prefix is None or request.cache is None:
            return self.inner.complete(request, deadline_s, on_text)
        until = self.prefixes.clock() + deadline_s
        writes = self.prefixes.begin(prefix, _LIFETIMES_S[request.cache.ttl], deadline_s / 2)
        has_begun = False

        def hear(text: str) -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                self.prefixes.use(prefix)
            on_text(text)

        try:
            return self.inner.complete(request, until - self.prefixes.clock(), hear)
        finally:
            if writes:
                self.prefixes.abandon(prefix)
