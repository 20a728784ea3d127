"""Repeat calls of a shared cache, and switch it off when it has cost a build too much time."""

import threading
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from orch23.cache.bounds import BlobFault, FileFault
from orch23.model.errors import CacheFault

_Result = TypeVar("_Result")


class CacheLimits(Struct, frozen=True, kw_only=True):
    """How much of a shared cache a build uses.

    A call usually takes `usual_s`, and the time of the bytes that move meanwhile at `slowest_bytes_per_s`. A slower one
    loses time, `patience_s` in all: then the cache is switched off. A build notices it `check_each_s` later at most, so
    it loses less than 10 s. `pending` is the maximum number of results that wait for their upload, `batch` that of
    digests in one question, `damaged` that of blobs with wrong bytes, and that of blobs which the cache refuses.
    """

    delays_s: tuple[float, ...] = (0.2, 1.0)
    patience_s: float = 8.0
    check_each_s: float = 0.5
    usual_s: float = 0.5
    slowest_bytes_per_s: int = 128 << 10
    downloads: int = 8
    uploads: int = 6
    pending: int = 10_000
    batch: int = 1000
    damaged: int = 10


class Patience:
    """The time that a shared cache may still lose in a run. Safe for calls from several threads.

    What several calls lose at once counts once. A slow call that finds nothing loses all of its time, one that finds
    something only what it took longer than usual: its result is worth the rest.
    """

    def __init__(self, limits: CacheLimits, clock: Callable[[], float]) -> None:
        """Start with all of the patience."""
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._running: dict[object, tuple[float, int]] = {}
        self._lost: list[tuple[float, float]] = []
        self._moved_bytes = 0

    def moved(self, size_bytes: int, replies: float = 0.0) -> None:
        """Note that bytes were moved, and that some of several uploads at once were confirmed."""
        more = int(replies * self._limits.usual_s * self._limits.slowest_bytes_per_s)
        with self._lock:
            self._moved_bytes += size_bytes + more

    def timed(self, call: Callable[[], _Result]) -> _Result:
        """Return the result of a call for which the build waits. None and False are no result."""
        key, found = object(), False
        with self._lock:
            began = self._running[key] = (self._clock(), self._moved_bytes)
        try:
            result = call()
            found = result is not None and result is not False
            return result
        finally:
            with self._lock:
                del self._running[key]
                now_s, usual_s = self._clock(), self._usual_s(began)
                if now_s > usual_s:
                    self._lost = _merged([*self._lost, (usual_s if found else began[0], now_s)])

    def left_s(self) -> float:
        """Return what is left, as if the calls that are running found nothing."""
        with self._lock:
            now_s = self._clock()
            slow = [(began[0], now_s) for began in self._running.values() if now_s > self._usual_s(began)]
            return self._limits.patience_s - sum(end - start for start, end in _merged([*self._lost, *slow]))

    def _usual_s(self, began: tuple[float, int]) -> float:
        """Return until when a call is not slow."""
        since_s, moved_bytes = began
        return since_s + self._limits.usual_s + (self._moved_bytes - moved_bytes) / self._limits.slowest_bytes_per_s


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans of time without overlaps."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


class Availability:
    """Whether a shared cache is used, and how often its calls are repeated. Safe for calls from several threads.

    `refusal` is the message of the first fault of one file, or empty. Reading and writing share the `patience`.
    """

    def __init__(
        self,
        limits: CacheLimits,
        on_off: Callable[[str], None],
        patience: Patience,
        clock: Callable[[], float],
        pause: Callable[[float], object],
    ) -> None:
        """Switch the cache on. `on_off` is called once at most, with the reason."""
        self._limits, self._on_off, self._clock, self._pause = limits, on_off, clock, pause
        self.patience = patience
        self._lock = threading.Lock()
        self._refused = 0
        self.refusal = ""
        self.is_on = True

    def switch_off(self, reason: str = "") -> None:
        """Use the cache no more. The reason is reported if this is the first; none is reported without one."""
        with self._lock:
            was_on, self.is_on = self.is_on, False
        if was_on and reason:
            self._on_off(reason)

    def check(self) -> None:
        """Switch the cache off if there is no patience left."""
        if self.patience.left_s() <= 0:
            self.switch_off(f"it is too slow, and has cost {self._limits.patience_s:g} s")

    def tried(self, call: Callable[[], _Result]) -> _Result:
        """Return the result of a call. After a transient fault it is repeated, unless that took long.

        Raises:
            CacheFault: it failed for good: the cache is switched off. Or it was switched off meanwhile.
            BlobFault: only one blob failed; the cache is switched off after some of these, unless it is a FileFault.

        """
        until_s = self._clock() + self._limits.patience_s
        for number in range(len(self._limits.delays_s) + 1):
            if not self.is_on:
                break
            try:
                return call()
            except CacheFault as fault:
                delays_s = self._limits.delays_s[number : number + 1] if fault.transient else ()
                if not delays_s or self._clock() + delays_s[0] >= until_s:
                    if isinstance(fault, FileFault):
                        self.refusal = self.refusal or fault.message
                    with self._lock:
                        self._refused += isinstance(fault, BlobFault) and not isinstance(fault, FileFault)
                    if not isinstance(fault, BlobFault) or self._refused >= self._limits.damaged:
                        self.switch_off(f"{fault.message} (after {number + 1} tries)" if number else fault.message)
                    raise
                self._pause(delays_s[0])
        message = "the cache is switched off"
        raise CacheFault(message)
