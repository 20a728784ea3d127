"""The build loop: start ready stages in threads and commit their results in one thread."""

import math
import threading
from _queue import Empty, SimpleQueue
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.attempt import StageResult
from orch23.attempt.ledger import Ledger, StageLimitError, wall_time_error
from orch23.attempt.process_runner import CancelledBuildError
from orch23.attempt.run_events import RunEvents
from orch23.attempt.stage_outcomes import BuildResult, RunStop, StageOutcome, blocked_by, run_outcome
from orch23.attempt.stage_work import Worker
from orch23.decide.decisions import DecidedStage
from orch23.decide.dry_run import walk_through
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.plan_walk import PlanWalk
from orch23.engine.promotions import Promotions
from orch23.engine.result_writer import ResultWriter
from orch23.engine.settling import NOT_RUN, Settling, Work, WorkOutcome
from orch23.engine.worker_threads import StagePools, WorkerThreads
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import (
    AwaitsResponseError,
    ExitCode,
    LimitError,
    ProviderError,
    custom_exit_code,
)
from orch23.model.event import Event, Observer, StageAwaiting, Warned
from orch23.model.event_data import EventLevel, StageStatus
from orch23.model.pipeline import Stage
from orch23.model.plan import Run, VerifyOnly
from orch23.model.record import Record
from orch23.plan.planner import ALL_STAGES, Selection
from orch23.resolve.resolution import ResolvedStage

if TYPE_CHECKING:
    from orch23.attempt.later_batches import LaterBatches
    from orch23.engine.deferred_stages import DeferredStages

# A response that arrives after Ctrl-C is paid for: the build waits this long for it.
_INTERRUPT_GRACE_S = 0.7
_SIGNAL_EXIT_BASE = 128  # the exit code is 128 + the number of the signal, as in a shell


class BuildOptions(Struct, frozen=True, kw_only=True):
    """The request of a build: which stages, how many at once, whether to go on after failures, and wait for batches.

    `jobs`, `places` and `place_of` are those of `StagePools`.
    """

    selection: Selection = ALL_STAGES
    jobs: int | None = 1
    places: Mapping[str, Callable[[], int]] = {}
    place_of: Callable[[Stage], str] = lambda _: ""
    keep_going: bool = False
    waits: bool = False


class _Finished(Struct, frozen=True):
    resolved: ResolvedStage
    decision: Work
    outcome: WorkOutcome | tuple[Record, ...]


class _Looked(Struct, frozen=True):
    """The end of a look at the batches: the requests whose stages can go on."""

    ready: frozenset[str] | Exception


class _LookedUp(Struct, frozen=True):
    """A lookup in the shared cache has made progress."""


class _Stop(Struct, frozen=True):
    signum: int


class Build(Struct, kw_only=True, dict=True):
    """One run of one pipeline. `interrupt` may be called from a signal handler, all other methods from one thread.

    `cancel_steps` kills running processes, and refuses new ones; `cancel_calls` does the same with model calls.
    `stop_waiting` ends waits for a rate limit. `later` has the requests in batches; None if there can be none.
    `failures` are the ends of stages that fail in any case: they end before a stage starts that may be paid for.
    `approval` limits a decision to the plan that the user has approved, if any.
    """

    opened: OpenPipeline
    worker: Worker
    writer: ResultWriter
    cancel_steps: Callable[[], None]
    ledger: Ledger
    observer: Observer
    clock: Callable[[], float]
    options: BuildOptions
    cancel_calls: Callable[[], None]
    stop_waiting: Callable[[], None]
    later: "LaterBatches | None"
    failures: Mapping[str, StageOutcome] = {}
    approval: Callable[[DecidedStage], DecidedStage] | None = None
    _ready: dict[str, tuple[ResolvedStage, Work]] = field(default_factory=dict)
    _running: set[str] = field(default_factory=set)
    _messages: "SimpleQueue[_Finished | _Looked | _LookedUp | _Stop]" = field(default_factory=SimpleQueue)
    _stopped: RunStop | None = None
    _threads: WorkerThreads = field(default_factory=WorkerThreads)
    _is_prepared: bool = False

    def interrupt(self, signum: int) -> None:
        """Stop the build: kill running processes, start nothing new, keep the results so far."""
        self._messages.put(_Stop(signum))

    @cached_property
    def _walk(self) -> PlanWalk:
        return walk_through(
            self.opened.decider,
            self.options.selection,
            blocks=lambda up, node: self._results.blocks(up, node),  # noqa: PLW0108 - the results have the walk
            is_over=self._over_failure_limit,
            wake=partial(self._messages.put, _LookedUp()),
        )

    @property
    def unaffected(self) -> frozenset[str]:
        """The stages that are not decided, since nothing has affected them."""
        return self._walk.unaffected

    @cached_property
    def _pools(self) -> StagePools:
        options = self.options
        return StagePools(self.opened.pipeline.pools, options.jobs, options.places, options.place_of)

    @cached_property
    def _deferred(self) -> "DeferredStages | None":
        """The stages whose requests are in batches; None if no request can be in one."""
        if self.later is None:
            return None
        from orch23.engine.deferred_stages import DeferredStages  # noqa: PLC0415 - most builds have no batch

        return DeferredStages(later=self.later, waits=self.options.waits, clock=self.clock)

    @property
    def _is_looking(self) -> bool:
        return self._deferred is not None and self._deferred.is_looking

    @property
    def _awaits_lookups(self) -> bool:
        return self._stopped is None and self._walk.is_waiting

    @property
    def _is_busy(self) -> bool:
        """Whether a message will come: from a stage, a look at the batches, or a lookup in the shared cache."""
        return bool(self._running) or self._is_looking or self._awaits_lookups

    @cached_property
    def _events(self) -> RunEvents:
        return RunEvents(self.observer, self.clock)

    @cached_property
    def _settling(self) -> Settling:
        return Settling(
            opened=self.opened,
            selection=self.options.selection,
            walk=self._walk,
            events=self._events,
            results=self._results,
            enqueue=self._enqueue,
            stop_at_limit=self._stop_at_limit,
            approval=self.approval,
        )

    @cached_property
    def _results(self) -> Promotions:
        return Promotions(
            writer=self.writer,
            events=self._events,
            walk=self._walk,
            clock=self.clock,
            cost_of=self.ledger.cost_of,
        )

    def run(self) -> BuildResult:
        """Build until nothing is left to do; return how every stage ended."""
        try:
            for name, end in self.failures.items():
                self._results.end(name, end)
            return self._run()
        finally:
            self._threads.shutdown()

    def _run(self) -> BuildResult:
        given_s = self.opened.pipeline.stop.max_wall_s
        limit_s = math.inf if given_s is None else given_s
        until = self.clock() + limit_s
        self._settling.skip()
        while True:
            # Ready stages start before results are promoted, so they run while the disk writes (ADR 16).
            self._start_ready()
            settled = self._results.settle(idle=not (self._running or self._awaits_lookups))
            is_over = self._is_busy or self._stopped is not None or self._over_failure_limit()
            if settled or (self._settling.checks is not None and not is_over and self._settling.checks.settle()):
                continue
            if self._is_busy:
                # While stages are looked up, it is not known whether a model is called at all.
                if self._running or self._is_looking:
                    self._prepare_calls()
                waits_s = min(until - self.clock(), self._results.may_wait_s, self._pools.recheck_s)
            elif self._stopped or self._deferred is None or (delay_s := self._deferred.delay_s()) is None:
                break  # there is no further look at the batches
            else:
                # The time of waiting does not count against `max_wall`.
                until += delay_s
                waits_s = delay_s
            try:
                message = self._messages.get(timeout=None if waits_s == math.inf else max(0.0, waits_s))
            except Empty:
                if self._deferred is not None and not self._is_busy:
                    self._deferred.look(self._threads, lambda ready: self._messages.put(_Looked(ready)))
                elif until <= self.clock():
                    # The loop still waits for responses in progress: they are paid for.
                    until = math.inf
                    self._stop_at_limit((wall_time_error(limit_s),))
                    self.cancel_steps()
                continue
            if isinstance(message, _Stop):
                self._stop(ExitCode(_SIGNAL_EXIT_BASE + message.signum), self._interrupted_text())
                self._take_last()
                break
            self._take(message)
        return self._result()

    def _go_on(self, looked: _Looked) -> None:
        """Start the stages again whose requests have results."""
        self._threads.finished()
        if isinstance(looked.ready, Exception):
            raise looked.ready
        for resolved, decision in self._deferred.looked(looked.ready) if self._deferred is not None else ():
            self._enqueue(resolved, decision)

    def _prepare_calls(self) -> None:
        """Load in a thread, once, what the model calls of stages need that wait for the first stages.

        A stage with a record may be fresh once it is decided, so nothing is loaded for it.
        """
        if self._is_prepared:
            return
        self._is_prepared = True
        plan, records = self.opened.state.plan, self.opened.lock.records
        started = self._results.outcomes.keys() | self._running
        stages = [
            node
            for name in plan.order
            if name in self._walk.wanted and name not in started and name not in records
            if isinstance(node := plan.nodes[name], Stage) and node.step.asks_model
        ]
        if stages:
            # A daemon thread: the process does not wait for an import when it exits.
            threading.Thread(target=self.worker.prepare, args=(stages,), name="orch23-prepare", daemon=True).start()

    def _interrupted_text(self) -> str:
        count = len(self._running)
        stages = "" if not count else " 1 stage is stopped," if count == 1 else f" {count:,} stages are stopped,"
        return f"interrupted:{stages} what has ended is kept, and the next build continues (Ctrl-C again ends at once)"

    def _take_last(self) -> None:
        """Kill processes, cancel calls, and keep results that arrive within `_INTERRUPT_GRACE_S`.

        A look at the batches ends too: it releases what was reserved for requests that were not sent.
        """
        self.cancel_steps()
        self.cancel_calls()
        until = self.clock() + _INTERRUPT_GRACE_S
        while (self._running or self._is_looking) and (left := until - self.clock()) > 0:
            try:
                message = self._messages.get(timeout=left)
            except Empty:
                return
            if isinstance(message, _Looked) and self._deferred is not None:
                self._deferred.is_looking = False
                continue
            if isinstance(message, _LookedUp):
                continue
            if not isinstance(message, _Finished):
                return
            # A cancelled call ends with a transport error: the provider did not fail.
            was_cancelled = isinstance(message.outcome, ProviderError)
            self._finish(replace(message, outcome=CancelledBuildError()) if was_cancelled else message)

    def _start_ready(self) -> None:
        """Settle and start ready stages until none is left or all pools are full."""
        while self._stopped is None and not self._pools.is_full:
            if (name := self._pools.admit()) is not None:
                self._launch(*self._ready.pop(name))
                continue
            if (step := self._walk.step()) is None:
                return
            self._settling.carry_out(step)

    def _enqueue(self, resolved: ResolvedStage, decision: Work) -> None:
        self._results.set_status(resolved.stage.name, StageStatus.READY)
        self._ready[resolved.stage.name] = (resolved, decision)
        self._pools.enqueue(resolved.stage)

    def _over_failure_limit(self) -> bool:
        limit = self.opened.pipeline.stop.max_failed_stages
        return not self.options.keep_going and limit is not None and self._results.failed >= limit

    def _launch(self, resolved: ResolvedStage, decision: Work) -> None:
        name = resolved.stage.name
        # Other stages may have failed since this one was queued.
        failed = self._over_failure_limit()
        stuck = () if failed else self._results.before(resolved.stage)
        if failed or stuck:
            self._pools.release(name)
            self._results.end(name, blocked_by(stuck) if stuck else NOT_RUN)
            return
        self._results.set_status(name, StageStatus.RUNNING)
        self._running.add(name)
        do = (
            partial(self.worker.compare, decision)
            if isinstance(decision, DecidedStage)
            else self._work(resolved, decision)
        )

        def work() -> Callable[[], None]:
            try:
                outcome: WorkOutcome | tuple[Record, ...] = do()
            # A plugin may call sys.exit: in a worker thread that would end the thread without a message to the loop.
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the loop thread raises what it does not know
                outcome = error
            return partial(self._messages.put, _Finished(resolved, decision, outcome))

        self._threads.submit(f"orch23-stage-{name}", work)

    def _work(self, resolved: ResolvedStage, decision: Run | VerifyOnly) -> Callable[[], StageResult]:
        self._events.started(resolved.stage.name, resolved.key)
        refused = self._settling.checks.take(resolved) if self._settling.checks is not None else None
        return partial(self.worker.work, resolved, decision if isinstance(decision, VerifyOnly) else refused)

    def _take(self, message: _Finished | _Looked | _LookedUp) -> None:
        """Handle what a thread reports."""
        if isinstance(message, _LookedUp):
            return  # the walk has what was found
        if isinstance(message, _Looked):
            self._go_on(message)
        elif (
            (awaited := self._awaited(message)) is not None
            and self._deferred is not None
            and not isinstance(message.decision, DecidedStage)
        ):
            name = message.resolved.stage.name
            self._stopped_running(name)
            self._results.set_status(name, StageStatus.WAITING)
            self._events.emit(StageAwaiting(fingerprint=awaited), "waits for a batch", name)
            self._deferred.add(message.resolved, message.decision, awaited)
        else:
            self._finish(message)

    def _awaited(self, message: _Finished) -> str | None:
        """Return the request in a batch that a stage waits for, empty if it is not its own; None if there is none."""
        outcome, name = message.outcome, message.resolved.stage.name
        if isinstance(outcome, AwaitsResponseError):
            return outcome.fingerprint
        # A batch that has ended holds a reservation until its result is collected.
        is_over = isinstance(outcome, LimitError) and not isinstance(outcome, StageLimitError)
        return "" if is_over and self._deferred is not None and self._deferred.may_free_budget(name) else None

    def _stopped_running(self, name: str) -> None:
        self._running.discard(name)
        self._threads.finished()
        self._pools.release(name)

    def _finish(self, message: _Finished) -> None:
        self._stopped_running(message.resolved.stage.name)
        if isinstance(message.outcome, tuple):
            self._settling.compared(message.resolved.stage.name, message.outcome)
        else:
            self._settling.finish(message.resolved, message.decision, message.outcome)

    def _stop_at_limit(self, reached: tuple[Diagnostic, ...]) -> None:
        self._stop(ExitCode.LIMIT, "; ".join(f"[{d.code}] {d.message} ({d.hint})" for d in reached), reached)

    def _stop(self, code: ExitCode, text: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        """Start no stage and call no model any more. Running processes continue unless the caller kills them."""
        if self._stopped is None:
            self._stopped = RunStop(code, diagnostics)
            # Threads that wait for budget must wake up and end: no call starts any more.
            self.ledger.close()
            # After the budget is closed: it refuses the requests that waited for a rate limit.
            self.stop_waiting()
            level: EventLevel = "error" if diagnostics else "warning"
            self.observer.notice(Event(Warned(exit_code=int(code)), text, level=level))

    def _result(self) -> BuildResult:
        """Close the build: end the remaining stages, write the lock file and choose the exit code."""
        state, everything = self.opened.state, self.options.selection.selects_all
        if self._settling.checks is not None:
            self._settling.checks.end()
        rest = StageStatus.BLOCKED if self._stopped is None else StageStatus.CANCELLED
        if self._deferred is not None:
            for name, awaiting in self._deferred.outcomes().items():
                self._results.end(name, awaiting)
            self._deferred.later.report()
        ends = {
            name: end
            for name, end in self._results.close(StageOutcome(status=rest, text="not run")).items()
            if name in self._walk.wanted or name in state.plan.idle or end.code
        }
        green = self._stopped is None and all(end.is_green for end in ends.values())
        # A partial or failed build does not know every result, so it must not remove files of ended stages (ADR 19).
        if green and everything:
            self.writer.end_ownership(self._events)
        done = {name for name, end in ends.items() if end.status.has_result}
        self.writer.write_lock(done, complete=green and everything)
        # A stage can end after its response was accepted without a result to store, as one that another pipeline owns.
        self.opened.store.write_exchanges()
        how = run_outcome(ends, self._stopped)
        number = custom_exit_code(how.code, how.diagnostics, self.opened.pipeline.exit_codes)
        return BuildResult(stages=ends, exit_code=how.code, exit_number=number)
