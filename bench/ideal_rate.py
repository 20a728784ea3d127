"""The time that calls take at least under a rate limit: a client that knows the token bucket of the server."""

import heapq
from collections.abc import Sequence


def ideal_s(
    calls: int,
    jobs: int,
    call_s: float,
    size: float,
    per_s: float,
    *,
    down_s: float = 0.0,
    arrivals: Sequence[float] = (),
) -> float:
    """Return the seconds until the last of the calls ends, if each starts as soon as a job and a token are free.

    The bucket has `size` tokens at first, and gets `per_s` more each second; until `down_s` it gives none.
    `arrivals` are the times at which the calls are there, in order; by default all at the start.
    """
    free = [0.0] * jobs
    level, at, end = float(size), 0.0, 0.0
    for number in range(calls):
        start = max(heapq.heappop(free), arrivals[number] if arrivals else 0.0, at, down_s)
        level, at = min(size, level + (start - at) * per_s), start
        if level < 1:
            at = start + (1 - level) / per_s
            level = 1.0
        level -= 1
        end = max(end, at + call_s)
        heapq.heappush(free, at + call_s)
    return end
