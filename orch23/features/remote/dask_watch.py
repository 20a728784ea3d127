"""Find workers of a dask cluster that are frozen: their connection is open, but the scheduler hears nothing of them."""

from collections.abc import Callable, Mapping
from time import monotonic

from msgspec import Struct

FROZEN_S = 60.0
"""dask itself notices it after `distributed.scheduler.worker-ttl`, which is five minutes if it is not set."""
_LOOKS = 12


class _Seen(Struct):
    heartbeat_s: float
    silent_s: float = 0.0


class WorkerWatch:
    """Compares the times of the last heartbeats that the scheduler reports, one look after the other.

    Only differences count, so the clocks of the machines may differ. A look that comes late, since this process or the
    scheduler was stopped, counts as little as one that comes in time.
    """

    def __init__(self, frozen_s: float = FROZEN_S, clock: Callable[[], float] = monotonic) -> None:
        """Take workers as frozen after some seconds without a heartbeat; they have one each half second or so."""
        self._frozen_s, self._clock = frozen_s, clock
        self.each_s = frozen_s / _LOOKS
        """How long to wait between two looks."""
        self._looked_s = clock()
        self._seen: dict[str, _Seen] = {}

    def silent_s(self, address: str) -> float:
        """Return for how many seconds a worker had sent no heartbeat at the last look; 0 if it is not known."""
        seen = self._seen.get(address)
        return 0.0 if seen is None else seen.silent_s

    def frozen(self, heartbeats_s: Mapping[str, float]) -> tuple[str, ...]:
        """Return the addresses of workers that are frozen, from the time of the last heartbeat by address."""
        now_s = self._clock()
        passed_s, self._looked_s = min(now_s - self._looked_s, 2 * self.each_s), now_s
        for address in self._seen.keys() - heartbeats_s.keys():
            del self._seen[address]
        for address, heartbeat_s in heartbeats_s.items():
            seen = self._seen.get(address)
            if seen is not None and seen.heartbeat_s == heartbeat_s:
                seen.silent_s += passed_s
            else:
                self._seen[address] = _Seen(heartbeat_s)
        return tuple(address for address, seen in self._seen.items() if seen.silent_s > self._frozen_s)
