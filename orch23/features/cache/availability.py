"""Repeat calls of a shared cache, and switch it off when it has cost a build too much time."""

import threading
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field

from orch23.features.cache.bounds import BlobFault, FileFault
from orch23.model.errors import CacheFault

_Result = TypeVar("_Result")


class CacheLimits(Struct, frozen=True, kw_only=True):
    """How much of a shared cache a build uses.

    Calls may lose `patience_s`: then the cache is switched off. Each reply gives `usual_s` back, bytes what they take
    at `slowest_bytes_per_s`. A build notices it `check_each_s` later at most: one that waits for replies of 0.07 s or
    more, one after another, loses 10 s at most. Maximum numbers are `pending` of results that wait for their
    upload, `batch` of digests in one request, `damaged` of blobs with wrong bytes, and of refused ones.
    """

    delays_s: tuple[float, ...] = (0.2, 1.0)
    patience_s: float = 6.0
    check_each_s: float = 0.5
    usual_s: float = 0.025
    slowest_bytes_per_s: int = 128 << 10
    downloads: int = 8
    uploads: int = 6
    pending: int = 10_000
    batch: int = 1000
    damaged: int = 10


class Patience:
    """The time that a shared cache may still lose in a run. Safe for calls from several threads.

    While any call runs, all of the time is lost. Replies, bytes that move, and results that are found give time back,
    so that a cache that is fast, or worth its time, loses none; but never more than was lost before.
    """

    def __init__(self, limits: CacheLimits, clock: Callable[[], float]) -> None:
        """Start with all of the patience."""
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._running, self._since_s, self._lost_s = 0, 0.0, 0.0

    def _update(self, calls: int = 0, gained_s: float = 0.0) -> None:
        with self._lock:
            now_s = self._clock()
            self._lost_s += now_s - self._since_s if self._running else 0.0
            self._lost_s = max(0.0, self._lost_s - gained_s)
            self._since_s, self._running = now_s, self._running + calls

    def moved(self, size_bytes: int, replies: int = 0) -> None:
        """Note that bytes were moved, and how many requests for which no one waits alone had a reply."""
        self._update(gained_s=size_bytes / self._limits.slowest_bytes_per_s + replies * self._limits.usual_s)

    def saved(self, seconds: float) -> None:
        """Note how long the stage took whose result was found."""
        self._update(gained_s=max(0.0, seconds))

    def timed(self, call: Callable[[], _Result]) -> _Result:
        """Return the result of a call for which the build waits."""
        self._update(calls=1)
        try:
            return call()
        finally:
            self._update(calls=-1, gained_s=self._limits.usual_s)

    def left_s(self) -> float:
        """Return what is left."""
        self._update()
        return self._limits.patience_s - self._lost_s


class Availability(Struct, eq=False):
    """Whether a shared cache is used, and how often its calls are repeated. Safe for calls from several threads.

    `on_off` is called once at most, with the reason. `refusal` is the message of the first fault of one file, or empty.
    Reading and writing share the `patience`.
    """

    limits: CacheLimits
    on_off: Callable[[str], None]
    patience: Patience
    clock: Callable[[], float]
    pause: Callable[[float], object]
    refusal: str = ""
    is_on: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refused: int = 0

    def switch_off(self, reason: str = "") -> None:
        """Use the cache no more. The reason is reported if this is the first; none is reported without one."""
        with self._lock:
            was_on, self.is_on = self.is_on, False
        if was_on and reason:
            self.on_off(reason)

    def check(self) -> None:
        """Switch the cache off if there is no patience left."""
        if self.patience.left_s() <= 0:
            self.switch_off(f"it is too slow, and has cost {self.limits.patience_s:g} s")

    def tried(self, call: Callable[[], _Result]) -> _Result:
        """Return the result of a call. After a transient fault it is repeated, unless that took long.

        Raises:
            CacheFault: it failed for good: the cache is switched off. Or it was switched off meanwhile.
            BlobFault: only one blob failed; the cache is switched off after some of these, unless it is a FileFault.
        """
        until_s = self.clock() + self.limits.patience_s
        for number in range(len(self.limits.delays_s) + 1):
            if not self.is_on:
                break
            try:
                return call()
            except CacheFault as fault:
                delays_s = self.limits.delays_s[number : number + 1] if fault.transient else ()
                if not delays_s or self.clock() + delays_s[0] >= until_s:
                    if isinstance(fault, FileFault):
                        self.refusal = self.refusal or fault.message
                    with self._lock:
                        self._refused += isinstance(fault, BlobFault) and not isinstance(fault, FileFault)
                    if not isinstance(fault, BlobFault) or self._refused >= self.limits.damaged:
                        self.switch_off(f"{fault.message} (after {number + 1} tries)" if number else fault.message)
                    raise
                self.pause(delays_s[0])
        message = "the cache is switched off"
        raise CacheFault(message)
