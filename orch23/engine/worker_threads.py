"""Queue stages until their pools have a free place, and run their work in threads.

A stage that waits for a pool does not block others: a later one with free places goes first.
"""

import math
import threading
from _queue import SimpleQueue
from collections import Counter, deque
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from orch23.model.parsing import json_at
from orch23.model.pipeline import ForeachStage, Pipeline, Stage

_JOBS = ""
"""The pool that `jobs` limits. A pipeline cannot declare it: names of pools are not empty."""

_CALLS = "llm"
_RECHECK_S = 0.2


def executor_of(node: Stage | ForeachStage, pipeline: Pipeline, usual: str) -> str:
    """Return the executor of a stage: of a pool that it names, else of the pool of its kind, else the usual one."""
    executors = pipeline.pool_executors
    return next((executors[name] for name in _pools_of(node) if name in executors), usual) if executors else usual


def resources_of(node: Stage | ForeachStage, pipeline: Pipeline) -> dict[str, float]:
    """Return what each step of a stage takes of the resources of its worker: the sum of its pools, by name."""
    total: dict[str, float] = {}
    for pool in dict.fromkeys(_pools_of(node)) if pipeline.pool_resources else ():
        for name, amount in pipeline.pool_resources.get(pool, {}).items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _pools_of(node: Stage | ForeachStage) -> tuple[str, ...]:
    named = node.pools if isinstance(node, Stage) else json_at(node.body, "pools")
    return (*(map(str, named) if isinstance(named, list | tuple) else ()), node.kind)


class StagePools(Struct):
    """The places of a build. `sizes` has those of the pipeline's pools: of a step kind, or of a name.

    `jobs` limits all stages; None does not. If the pipeline has a pool for llm stages, that pool limits them instead:
    they only wait for a server, and must not block stages that compute. The executor limits the processes that verify
    a response.

    `places` has a function for each place, such as an executor, that returns its maximum of stages, which may change
    while stages run. `place_of` returns the place of a stage. One that is not in `places` has no limit of its own.
    """

    sizes: Mapping[str, int]
    jobs: int | None
    places: Mapping[str, Callable[[], int]] = {}
    place_of: Callable[[Stage], str] = lambda _: ""
    _taken: Counter[str] = field(default_factory=Counter)
    _inside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _queues: dict[tuple[str, ...], deque[tuple[int, str]]] = field(default_factory=dict)
    _arrivals: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no stage can be admitted."""
        # Without `jobs`, each stage has a place.
        limits = (_JOBS,) if self.jobs is not None else [f"{_PLACE}{one}" for one in self.places]
        return not any(map(self._has_place, (*limits, *({_CALLS} & self.sizes.keys()))))

    @property
    def recheck_s(self) -> float:
        """How soon there may be more places although no stage has ended."""
        return _RECHECK_S if self.places else math.inf

    def enqueue(self, stage: Stage) -> None:
        """Queue a stage until its pools have a place."""
        self._arrivals += 1
        self._queues.setdefault(self._pools_of(stage), deque()).append((self._arrivals, stage.name))

    def admit(self) -> str | None:
        """Return the first queued stage with a place in each of its pools, and take these places."""
        # One queue for each combination of pools: a stage that waits for a full pool does not block others.
        queues = ((pools, queue) for pools, queue in self._queues.items() if queue)
        heads = [(queue[0][0], pools) for pools, queue in queues if all(map(self._has_place, pools))]
        if not heads:
            return None
        pools = min(heads)[1]
        _, name = self._queues[pools].popleft()
        self._inside[name] = pools
        self._taken.update(pools)
        return name

    def release(self, name: str) -> None:
        """Free the places of a stage, if it has any."""
        self._taken.subtract(self._inside.pop(name, ()))

    def _pools_of(self, stage: Stage) -> tuple[str, ...]:
        named = {name for name in (stage.kind, *stage.pools) if name in self.sizes}
        if stage.kind == _CALLS and _CALLS in named:  # it only waits
            return tuple(sorted(named))
        place = self.place_of(stage)
        return tuple(sorted(named | {_JOBS} | ({f"{_PLACE}{place}"} if place in self.places else set())))

    def _has_place(self, pool: str) -> bool:
        # One stage always has a place, so that a cluster is not asked before something runs on it.
        return not self._taken[pool] or self._taken[pool] < self._limit(pool)

    def _limit(self, pool: str) -> float:
        if pool == _JOBS:
            return math.inf if self.jobs is None else self.jobs
        return self.sizes[pool] if pool in self.sizes else self.places[pool.removeprefix(_PLACE)]()


_PLACE = "@"
"""Before the name of a place, as a pool. Names of pools in a pipeline have no such character."""


_IDLE = "orch23-idle"


class WorkerThreads(Struct):
    """Threads for stages. Only the loop thread calls this: it knows when work is finished."""

    _work: "SimpleQueue[tuple[str, Callable[[], Callable[[], None]]] | None]" = field(default_factory=SimpleQueue)
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
