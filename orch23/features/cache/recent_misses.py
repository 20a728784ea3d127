"""Entries that a cache was asked for a moment ago and did not have: before a put, it need not be asked again."""

import threading
import time
from collections.abc import Callable

from orch23.model.digest import Digest

RECENT_S = 5.0
"""A stage that takes longer pays for another question: meanwhile, another machine may have stored its result."""
_MOST = 10_000


class RecentMisses:
    """The misses of the last seconds. Safe for calls from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any."""
        self._clock, self._lock = clock, threading.Lock()
        self._noted_s: dict[Digest, float] = {}

    def note(self, digest: Digest) -> None:
        """Note that the cache has no such entry now."""
        now_s = self._clock()
        with self._lock:
            if len(self._noted_s) >= _MOST:
                self._noted_s.clear()
            self._noted_s[digest] = now_s

    def take(self, digest: Digest) -> bool:
        """Return whether an entry was missing a moment ago, only once: the next put asks."""
        with self._lock:
            noted_s = self._noted_s.pop(digest, None)
        return noted_s is not None and self._clock() - noted_s <= RECENT_S
