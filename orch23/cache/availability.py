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

    A call usually takes `usual_s` and the time of its bytes at `slowest_bytes_per_s`. All time beyond, of all calls of
    a run, is `patience_s` at most; then the cache is switched off. So a dead or slow cache costs this time once.
    `pending` is the maximum number of results that wait for their upload, `batch` that of digests in one question,
    `damaged` that of blobs with wrong bytes, and that of blobs which the cache refuses.
    """

    delays_s: tuple[float, ...] = (0.2, 1.0)
    patience_s: float = 20.0
    usual_s: float = 1.0
    slowest_bytes_per_s: int = 128 << 10
    downloads: int = 8
    uploads: int = 6
    pending: int = 10_000
    batch: int = 1000
    damaged: int = 10

    def usual_time_s(self, size_bytes: int) -> float:
        """Return the time after which a call with so many bytes loses time."""
        return self.usual_s + size_bytes / self.slowest_bytes_per_s


class Availability:
    """Whether a shared cache is used, and the time that it may still lose. Safe for calls from several threads.

    `refusal` is the message of the first fault of one file, or empty.
    """

    def __init__(
        self,
        limits: CacheLimits,
        on_off: Callable[[str], None],
        clock: Callable[[], float],
        pause: Callable[[float], object],
    ) -> None:
        """Switch the cache on. `on_off` is called once at most, with the reason."""
        self._limits, self._on_off, self._clock, self._pause = limits, on_off, clock, pause
        self._lock = threading.Lock()
        self._patience_s = limits.patience_s
        self._refused = 0
        self.refusal = ""
        self.is_on = True

    def switch_off(self, reason: str = "") -> None:
        """Use the cache no more. The reason is reported if this is the first; none is reported without one."""
        with self._lock:
            was_on, self.is_on = self.is_on, False
        if was_on and reason:
            self._on_off(reason)

    def overdue_s(self, began_s: float, usual_s: float) -> float:
        """Return after how long a call that is running has used up the patience; 0 or less if it has."""
        return began_s + usual_s + self._patience_s - self._clock()

    def lose(self, seconds: float) -> None:
        """Count lost time, and switch the cache off if there is no patience left."""
        if seconds <= 0:
            return
        with self._lock:
            self._patience_s -= seconds
            is_spent = self._patience_s <= 0
        if is_spent:
            self.switch_off(f"it took {self._limits.patience_s:g} s longer than usual")

    def tried(self, call: Callable[[], _Result], usual_s: float) -> _Result:
        """Return the result of a call that usually takes some time. After a transient fault, it is repeated.

        Raises:
            CacheFault: it failed for good: the cache is switched off. Or it was switched off meanwhile.
            BlobFault: only one blob failed; the cache is switched off after some of these, unless it is a FileFault.

        """
        began_s = self._clock()
        for number in range(len(self._limits.delays_s) + 1):
            if not self.is_on:
                break
            try:
                return call()
            except CacheFault as fault:
                delays_s = self._limits.delays_s[number : number + 1] if fault.transient else ()
                if not delays_s or self.overdue_s(began_s, usual_s) <= delays_s[0]:
                    if isinstance(fault, FileFault):
                        self.refusal = self.refusal or fault.message
                    elif not isinstance(fault, BlobFault) or self._is_refused_too_often():
                        self.switch_off(_after(fault.message, number + 1))
                    raise
                self._pause(delays_s[0])
        message = "the cache is switched off"
        raise CacheFault(message)

    def _is_refused_too_often(self) -> bool:
        with self._lock:
            self._refused += 1
            return self._refused >= self._limits.damaged


def _after(message: str, tries: int) -> str:
    return message if tries == 1 else f"{message} (after {tries} tries)"
