"""Stages whose requests are in batches: which they are, when to look at the batches, which can go on."""

from collections.abc import Callable, Collection, Iterator
from functools import partial

from msgspec import Struct, field

from orch23.attempt.later_batches import LaterBatches
from orch23.attempt.stage_outcomes import StageOutcome
from orch23.engine.worker_threads import WorkerThreads
from orch23.model.errors import ExitCode
from orch23.model.event_data import StageStatus
from orch23.model.plan import Run, VerifyOnly
from orch23.resolve.resolution import ResolvedStage

_FIRST_DELAY_S = 1.0
_LONGEST_DELAY_S = 60.0
_SLOWER = 1.5


class _Deferred(Struct, frozen=True):
    resolved: ResolvedStage
    decision: Run | VerifyOnly
    fingerprint: str


class DeferredStages(Struct, kw_only=True):
    """The deferred stages of a build. With `waits`, their batches are looked at until all have ended.

    The delay between two looks grows; it starts again when one has brought something.
    """

    later: LaterBatches
    waits: bool
    clock: Callable[[], float]
    _stages: dict[str, _Deferred] = field(default_factory=dict)
    # How many stages went on with a response, and how many had when the budget last refused a stage.
    _went_on: int = 0
    _refused: dict[str, int] = field(default_factory=dict)
    _looks: int = 0
    _due: float = 0.0
    is_looking: bool = False

    def may_free_budget(self, name: str) -> bool:
        """Return whether a request of a stage that does not fit into the budget now may fit after the next look.

        A look settles reservations. So does a stage that goes on with its response, after this one was refused.
        """
        is_first = self._looks == 0 and not self.later.is_empty
        return is_first or self._refused.get(name, 0) < self._went_on

    def add(self, resolved: ResolvedStage, decision: Run | VerifyOnly, fingerprint: str) -> None:
        """Defer a stage until there is a response to a request; without a fingerprint, until after the next look."""
        if not fingerprint:
            self._refused[resolved.stage.name] = self._went_on
        self._stages[resolved.stage.name] = _Deferred(resolved, decision, fingerprint)

    def delay_s(self) -> float | None:
        """Return how long to wait until the next look; None if there is nothing to wait for."""
        if self.later.has_unsent or any(not one.fingerprint for one in self._stages.values()):
            return 0.0
        if self.later.is_empty:
            return None
        if self._looks == 0:
            return 0.0
        return max(0.0, self._due - self.clock()) if self.waits and self._stages else None

    def look(self, threads: WorkerThreads, report: Callable[[frozenset[str] | Exception], None]) -> None:
        """Send requests and collect responses in a thread, since a signal must not wait for it; `report` gets the end.

        That is the requests whose stages can go on.
        """
        self.is_looking = True

        def work() -> Callable[[], None]:
            try:
                ready: frozenset[str] | Exception = self.later.advance()
            except Exception as error:  # noqa: BLE001 - the loop thread raises it
                ready = error
            return partial(report, ready)

        threads.submit("orch23-batches", work)

    def looked(self, ready: Collection[str]) -> Iterator[tuple[ResolvedStage, Run | VerifyOnly]]:
        """Note the end of a look, and yield the stages that can go on."""
        self.is_looking = False
        going = [name for name, one in self._stages.items() if not one.fingerprint or one.fingerprint in ready]
        # Only for stages of this build: a batch that cannot be read would be looked at again and again.
        answered = sum(bool(self._stages[name].fingerprint) for name in going)
        self._went_on += answered
        self._looks = 0 if answered else self._looks + 1
        self._due = self.clock() + min(_LONGEST_DELAY_S, _FIRST_DELAY_S * _SLOWER**self._looks)
        for name in going:
            one = self._stages.pop(name)
            yield one.resolved, one.decision

    def outcomes(self) -> dict[str, StageOutcome]:
        """Return the outcomes of the stages that are still deferred."""
        text = "its request is in a batch"
        return {
            name: StageOutcome(status=StageStatus.AWAITING, text=text, code=ExitCode.WAITING, key=one.resolved.key)
            for name, one in self._stages.items()
            if one.fingerprint
        }
