"""Queue stages until their pools have a free place, and run their work in threads.

A stage that waits for a pool does not block others: a later one with free places goes first.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from orch23.model.pipeline import Stage

_JOBS = ""
"""The pool that `jobs` limits. A pipeline cannot declare it: names of pools are not empty."""

_CALLS = "llm"


class StagePools(Struct):
    """The places of a build. `sizes` has those of the pipeline's pools: of a step kind, or of a name.

    `jobs` limits all stages. If the pipeline has a pool for llm stages, that pool limits them instead: they only wait
    for a server, and must not block stages that compute. The executor limits the processes that verify a response.
    """

    sizes: Mapping[str, int]
    jobs: int
    _taken: dict[str, int] = field(default_factory=dict)
    _inside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _queues: dict[tuple[str, ...], deque[tuple[int, str]]] = field(default_factory=dict)
    _arrivals: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no stage can be admitted."""
        return not self._has_free_place((_JOBS,)) and not (_CALLS in self.sizes and self._has_free_place((_CALLS,)))

    @property
    def waiting(self) -> frozenset[str]:
        """The names of the queued stages."""
        return frozenset(name for queue in self._queues.values() for _, name in queue)

    def enqueue(self, stage: Stage) -> None:
        """Queue a stage until its pools have a place."""
        self._arrivals += 1
        self._queues.setdefault(self._pools_of(stage), deque()).append((self._arrivals, stage.name))

    def admit(self) -> str | None:
        """Return the first queued stage with a place in each of its pools, and take these places."""
        # One queue for each combination of pools: a stage that waits for a full pool does not block others.
        heads = [(queue[0][0], pools) for pools, queue in self._queues.items() if queue and self._has_free_place(pools)]
        if not heads:
            return None
        pools = min(heads)[1]
        _, name = self._queues[pools].popleft()
        self._inside[name] = pools
        for pool in pools:
            self._taken[pool] = self._taken.get(pool, 0) + 1
        return name

    def release(self, name: str) -> None:
        """Free the places of a stage, if it has any."""
        for pool in self._inside.pop(name, ()):
            self._taken[pool] -= 1

    def _pools_of(self, stage: Stage) -> tuple[str, ...]:
        named = {name for name in (stage.kind, *stage.pools) if name in self.sizes}
        only_waits = stage.kind == _CALLS and _CALLS in named
        return tuple(sorted(named if only_waits else named | {_JOBS}))

    def _has_free_place(self, pools: tuple[str, ...]) -> bool:
        return all(self._taken.get(pool, 0) < (self.jobs if pool == _JOBS else self.sizes[pool]) for pool in pools)


_IDLE = "orch23-idle"


class WorkerThreads(Struct):
    """Threads for stages. Only the loop thread calls this: it knows when work is finished."""

    _work: "queue.SimpleQueue[tuple[str, Callable[[], Callable[[], None]]] | None]" = field(
        default_factory=queue.SimpleQueue
    )
    _idle: int = 0
    _count: int = 0

    def submit(self, name: str, work: Callable[[], Callable[[], None]]) -> None:
        """Run work in a thread; the function that it returns is called last, and informs the loop thread."""
        self._work.put((name, work))
        # A thread is started only if all others are busy, so there are never more than stages at once.
        if self._idle:
            self._idle -= 1
            return
        self._count += 1
        # Daemon threads: a thread that hangs in a library must not keep the process alive after Ctrl-C.
        threading.Thread(target=self._take, name=_IDLE, daemon=True).start()

    def finished(self) -> None:
        """Note that work has finished."""
        self._idle += 1

    def shutdown(self) -> None:
        """End each thread when its work is finished. Does not wait: a thread that hangs goes on."""
        for _ in range(self._count):
            self._work.put(None)

    def _take(self) -> None:
        this = threading.current_thread()
        while (piece := self._work.get()) is not None:
            this.name, work = piece
            report = work()
            this.name = _IDLE
            report()
