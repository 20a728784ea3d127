"""What a dask worker runs, by key: whether an action is still wanted, and its reply for a build that comes back.

A build that was killed cannot say whether the next one will want its actions. So they go on for a lease. A build that
ends by itself cancels them.
"""

import threading
from collections.abc import Callable, Iterable
from time import monotonic

from msgspec import Struct

LEASE_S = 120.0
"""How long an action goes on, and its reply is kept, while no build asks for it."""
_MAX_KEPT = 500
RUNNING = b""
"""The reply of an action that has none yet."""


class _Run(Struct):
    topic: str
    wanted_s: float
    is_cancelled: bool = False
    reply: bytes = RUNNING
    has_ended: bool = False


class WorkerRuns:
    """The actions of a process. Safe for calls from several threads."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start with none. `clock` returns seconds."""
        self._clock = clock
        self._lock = threading.RLock()
        self._runs: dict[str, _Run] = {}

    def begin(self, key: str, topic: str) -> None:
        """Note an action that starts; its lines are for a topic."""
        with self._lock:
            was_cancelled = key in self._runs and self._runs[key].is_cancelled
            self._runs[key] = _Run(topic, self._clock(), is_cancelled=was_cancelled)

    def topic(self, key: str) -> str:
        """Return the topic for the lines of an action."""
        with self._lock:
            return self._runs[key].topic

    def is_wanted(self, key: str, *, by_dask: bool) -> bool:
        """Return whether an action has to go on. dask wants it while the client that submitted it is there."""
        with self._lock:
            run, now_s = self._runs[key], self._clock()
            if by_dask:
                run.wanted_s = now_s
            return not run.is_cancelled and now_s < run.wanted_s + LEASE_S

    def end(self, key: str, reply: bytes) -> None:
        """Keep the reply of an action for a lease, and no more than some of them."""
        with self._lock:
            run = self._runs.pop(key)
            run.reply, run.has_ended, run.wanted_s = reply, True, self._clock()
            self._runs[key] = run  # as the newest one
            self.remove_old()

    def join(self, key: str, topic: str) -> bytes | None:
        """Return the reply of an action, RUNNING if it has none yet, or None if it is not here.

        A build that waits for it calls this again and again: it goes on, and its lines are for the topic of the build.
        """
        with self._lock:
            self.remove_old()
            run = self._runs.get(key)
            if run is None or run.is_cancelled:
                return None
            run.topic, run.wanted_s = topic, self._clock()
            return run.reply

    def cancel(self, keys: Iterable[str]) -> None:
        """Let actions end, also those that dask starts later."""
        with self._lock:
            for key in keys:
                self._runs.setdefault(key, _Run("", self._clock(), has_ended=True)).is_cancelled = True
            self.remove_old()

    def remove_old(self) -> None:
        """Forget what has ended and was not asked for during a lease."""
        with self._lock:
            oldest_s = self._clock() - LEASE_S
            ended = [key for key, run in self._runs.items() if run.has_ended]
            for number, key in enumerate(ended):
                if number < len(ended) - _MAX_KEPT or self._runs[key].wanted_s <= oldest_s:
                    del self._runs[key]
