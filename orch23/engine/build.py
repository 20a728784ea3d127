"""The build loop: decide what is ready, run it in threads, and commit what comes back. One thread changes state."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from orch23.engine.attempt import Attempted
from orch23.engine.commit import Committer
from orch23.engine.frontier import Frontier
from orch23.engine.outlook import expand_now, needs_intermediate
from orch23.engine.running import CancelledBuildError, Executor
from orch23.engine.session import Session
from orch23.engine.work import InputsChangedError, Worker
from orch23.model.decision import Decision, Edited, Fresh, Restore, Run, VerifyOnly
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import (
    ConfigurationError,
    ExitCode,
    LimitError,
    MissingBytesError,
    ProviderError,
    SafetyError,
)
from orch23.model.event import Event, Observer
from orch23.model.manifest import Reason
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.record import Record
from orch23.plan.graph import extend
from orch23.plan.select import EVERYTHING, Selection
from orch23.resolve.resolution import Resolved

_GRAVITY = (ExitCode.SAFETY, ExitCode.CORRUPT, ExitCode.PROVIDER, ExitCode.CONFIG, ExitCode.LIMIT, ExitCode.DECISION, ExitCode.FAILED)
_MAX_RESTARTS = 5
_LAST_WORDS_S = 1.0
_GREEN = frozenset({"built", "restored", "verified", "fresh"})
_PASSABLE = _GREEN | {"passed_over"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What a build is asked for."""

    selection: Selection = EVERYTHING
    jobs: int = 1
    keep_going: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEnd:
    """How one stage ended in this run: `status` is that of the event `stage_finished`."""

    status: str
    code: ExitCode = ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """How every stage ended, and the exit code of the run."""

    stages: Mapping[str, StageEnd]
    exit_code: ExitCode
    status: str


@dataclass(frozen=True, slots=True)
class _Finished:
    name: str
    resolved: Resolved
    outcome: "Outcome"


@dataclass(frozen=True, slots=True)
class _Stop:
    signum: int


Outcome: TypeAlias = Attempted | Exception
Clock: TypeAlias = Callable[[], float]


@dataclass(slots=True, kw_only=True)
class Build:
    """One run over one session. `interrupt` may be called from a signal handler; all else from one thread."""

    session: Session
    worker: Worker
    committer: Committer
    executor: Executor
    observer: Observer
    clock: Clock
    options: BuildOptions
    _ends: dict[str, StageEnd] = field(default_factory=dict)
    _running: set[str] = field(default_factory=set)
    _messages: "queue.SimpleQueue[_Finished | _Stop]" = field(default_factory=queue.SimpleQueue)
    _stopped: ExitCode | None = None
    _failed: int = 0
    _began: dict[str, float] = field(default_factory=dict)
    _wanted: frozenset[str] = frozenset()
    _restarts: dict[str, int] = field(default_factory=dict)
    _frontier: Frontier = field(init=False)

    def interrupt(self, signum: int) -> None:
        """Ask the build to stop: kill what runs, start nothing more, keep what there is."""
        self._messages.put(_Stop(signum))

    def __post_init__(self) -> None:
        """Start with nothing done."""
        self._frontier = Frontier(self.session.world.plan)

    def run(self) -> BuildResult:
        """Build until nothing more can be done; return how every stage ended."""
        began = self.clock()
        limit = self.session.pipeline.stop.max_wall_s
        self._wanted = self.options.selection.nodes(self.session.world.plan)
        while True:
            self._start_ready()
            if not self._running:
                break
            timeout = None if limit is None else max(0.0, began + limit - self.clock())
            try:
                message = self._messages.get(timeout=timeout)
            except queue.Empty:
                self._stop(ExitCode.LIMIT, f"stop condition reached: max_wall {limit:g} s")
                limit = None
                continue
            if isinstance(message, _Stop):
                self._stop(ExitCode.SIGINT if message.signum == ExitCode.SIGINT - 128 else ExitCode.SIGTERM, "interrupted")
                self._take_last()
                break
            self._finish(message)
        return self._result()

    def _take_last(self) -> None:
        """Take what still arrives within a moment: killed processes report, finished ones are kept."""
        until = self.clock() + _LAST_WORDS_S
        while self._running and (left := until - self.clock()) > 0:
            try:
                message = self._messages.get(timeout=left)
            except queue.Empty:
                return
            if isinstance(message, _Stop):
                return
            self._finish(message)

    # ---- starting -------------------------------------------------------------------------

    def _start_ready(self) -> None:
        """Settle and start all that is ready, until nothing more is, or every job is taken."""
        while self._stopped is None and len(self._running) < self.options.jobs:
            name = self._frontier.take()
            if name is None:
                return
            self._take(name)

    def _take(self, name: str) -> None:
        world = self.session.world
        node = world.plan.nodes[name]
        bad = tuple(u for u in world.plan.upstream[name] if u in self._ends and self._ends[u].status not in _PASSABLE)
        if bad and not (isinstance(node, Stage) and self.session.appraiser.is_edited_chain(node)):
            self._end(name, "blocked", f"blocked by {', '.join(bad)}", by=bad)
        elif isinstance(node, ForeachStage):
            self._expand(node)
        elif name not in self._wanted:
            self._pass_over(name)
        elif self.options.keep_going or not self._over_failure_limit():
            self._decide(name)
        else:
            self._end(name, "blocked", "not run: another stage failed")

    def _over_failure_limit(self) -> bool:
        limit = self.session.pipeline.stop.max_failed_stages
        return limit is not None and self._failed >= limit

    def _pass_over(self, name: str) -> None:
        """Take a stage that was not asked for as its last record says."""
        record = self.session.lock.records.get(name)
        if record is not None:
            self.session.world.settle(name, record)
        self._set_end(name, StageEnd(status="passed_over" if record is not None else "not_built"))

    def _expand(self, node: ForeachStage) -> None:
        world = self.session.world
        expansion = expand_now(self.session.appraiser, node)
        problems = expansion.problems if expansion else ()
        plan = None
        if expansion is not None and not problems:
            plan, problems = extend(world.plan, node.name, expansion.stages)
        if plan is None or expansion is None:
            self._failed += 1
            text = "\n".join(str(d) for d in problems) or "the bytes of its list are lost"
            self._end(node.name, "failed", text, code=ExitCode.INVALID, failure=text)
            return
        world.extend(plan)
        self._wanted = self.options.selection.nodes(plan)
        self._frontier.replan(plan, self._ends.keys() | self._running, self._ends.keys())
        names = [stage.name for stage in expansion.stages]
        self._tell("stages_added", f"{node.name} has {len(names)} items", node.name, {"items": names})

    def _decide(self, name: str) -> None:
        appraiser = self.session.appraiser
        stage = self.session.world.plan.nodes[name]
        if isinstance(stage, ForeachStage):
            return
        appraised = appraiser.appraise(name, need_intermediate=needs_intermediate(appraiser, stage))
        decision, resolved = appraised.decision, appraised.resolved
        self._tell_decision(name, decision, resolved)
        match decision:
            case Fresh(record=record):
                self.session.world.settle(name, self.committer.fresh(resolved, record))
                self._end(name, "fresh", "fresh", key=resolved.key)
            case Restore(record=record):
                self._restore(name, resolved, record)
            case Edited(paths=paths):
                self._end(name, "edited", f"edited by hand: {', '.join(paths)}", code=ExitCode.DECISION, paths=paths)
            case Run() | VerifyOnly():
                self._launch(name, resolved, decision)
            case _:
                message = f"BUG: {type(decision).__name__} in a build"
                raise TypeError(message)

    def _restore(self, name: str, resolved: Resolved, record: Record) -> None:
        promoted = self.committer.restore(resolved, record)
        self._tell("stage_restored", "restored", name, {"files": list(promoted.written), "removed": list(promoted.removed)})
        self._end_promoted(name, "restored", "restored from the store", resolved, promoted.foreign)

    def _launch(self, name: str, resolved: Resolved, decision: Run | VerifyOnly) -> None:
        self._tell("stage_started", "started", name, {"key": resolved.key})
        self._began[name] = self.clock()
        self._running.add(name)
        recorded = decision.record if isinstance(decision, VerifyOnly) else None

        def work() -> None:
            try:
                outcome: Outcome = self.worker.work(resolved, recorded)
            except Exception as error:  # noqa: BLE001 - handed to the loop thread, which raises what it does not know
                outcome = error
            self._messages.put(_Finished(name, resolved, outcome))

        threading.Thread(target=work, name=f"orch23-stage-{name}", daemon=True).start()

    # ---- finishing ------------------------------------------------------------------------

    def _finish(self, message: _Finished) -> None:
        name, resolved, outcome = message.name, message.resolved, message.outcome
        self._running.discard(name)
        match outcome:
            case Attempted(failure=None):
                self._succeed(name, resolved, outcome)
            case Attempted():
                self._fail(name, resolved, outcome)
            case InputsChangedError(paths=paths):
                self._decide_again(name, resolved, paths)
            case MissingBytesError():
                text = f"the bytes of {outcome.sha256} are lost: neither the store nor the transcripts have them"
                self._fail_early(name, resolved, Diagnostic("E710", text, hint="restore the file, or build with --force"))
            case CancelledBuildError():
                self._end(name, "cancelled", "cancelled", key=resolved.key)
            case LimitError():
                self._end(name, "cancelled", "a stop condition was reached", key=resolved.key)
                self._stop(ExitCode.LIMIT, str(outcome))
            case ProviderError() | ConfigurationError() | SafetyError():
                self._fail_early(name, resolved, *outcome.diagnostics, code=outcome.exit_code)
            case _:
                raise outcome

    def _decide_again(self, name: str, resolved: Resolved, paths: tuple[str, ...]) -> None:
        """Start over with a stage of which inputs changed before anything was done; a few times, not for ever."""
        self.session.store.workspace.invalidate(paths)
        self._tell("warning", f"inputs changed while the stage was prepared: {', '.join(paths)}", name, {})
        self._restarts[name] = self._restarts.get(name, 0) + 1
        if self._restarts[name] <= _MAX_RESTARTS:
            self._decide(name)
            return
        text = f"{', '.join(paths)} changed {self._restarts[name]} times while the stage was prepared"
        self._fail_early(name, resolved, Diagnostic("E711", text, hint="stop what writes there, and build again"))

    def _fail_early(
        self, name: str, resolved: Resolved, *problems: Diagnostic, code: ExitCode = ExitCode.FAILED
    ) -> None:
        text = "\n".join(str(d) for d in problems)
        self._failed += 1
        self._end(name, "failed", text, code=code, key=resolved.key, failure=text)

    def _succeed(self, name: str, resolved: Resolved, done: Attempted) -> None:
        status = "verified" if done.note == "verified" else "built"
        record, promoted = self.committer.commit(resolved, done)
        self._tell("promoted", "promoted", name, {"files": list(promoted.written), "removed": list(promoted.removed)})
        changed = self.committer.changed_inputs(resolved)
        if changed:
            text = f"inputs changed while it ran, so it is stale again: {', '.join(changed)}"
            self._tell("warning", text, name, {"paths": list(changed)})
        self._end_promoted(name, status, done.note or "built", resolved, promoted.foreign, done, record)

    def _end_promoted(  # noqa: PLR0913 - facts of one event
        self,
        name: str,
        status: str,
        text: str,
        resolved: Resolved,
        foreign: tuple[str, ...],
        done: Attempted | None = None,
        record: Record | None = None,
    ) -> None:
        if foreign:
            message = f"left as they are, since somebody edited them meanwhile: {', '.join(foreign)}"
            self._end(name, "edited", message, code=ExitCode.DECISION, key=resolved.key, paths=foreign)
            return
        self._end(name, status, text, key=resolved.key, done=done, record=record)

    def _fail(self, name: str, resolved: Resolved, done: Attempted) -> None:
        failure = done.failure
        if failure is None:
            return
        if resolved.stage.on_failure == "keep" and done.outputs:
            kept = self.committer.keep_failure(resolved, done)
            self._tell("promoted", "kept, although it failed", name, {"files": list(kept.written), "removed": []})
        self._failed += 1
        code = ExitCode.SAFETY if failure.safety else ExitCode.FAILED
        text = f"{failure.kind}{': ' + done.note if done.note else ''}"
        self._end(name, "failed", text, code=code, key=resolved.key, done=done, failure=failure.brief.excerpt, kind=failure.kind, command=failure.brief.command)

    def _end(  # noqa: PLR0913 - facts of one event
        self,
        name: str,
        status: str,
        text: str,
        *,
        code: ExitCode = ExitCode.OK,
        key: str = "",
        done: Attempted | None = None,
        record: Record | None = None,
        failure: str = "",
        kind: str = "",
        command: str = "",
        by: tuple[str, ...] = (),
        paths: tuple[str, ...] = (),
    ) -> None:
        self._set_end(name, StageEnd(status=status, code=code))
        began = self._began.get(name)
        self._tell(
            "stage_finished",
            text,
            name,
            {
                "status": status,
                "key": key,
                "duration_s": round(self.clock() - began, 3) if began is not None else 0.0,
                "attempts": done.attempts if done else 0,
                "calls": done.calls if done else 0,
                "input_tokens": done.input_tokens if done else 0,
                "output_tokens": done.output_tokens if done else 0,
                "outputs": list(record.outputs) if record else [],
                "unchanged": record is not None and self._is_unchanged(name, record),
                "failure": failure,
                "kind": kind,
                "command": command,
                "by": list(by),
                "paths": list(paths),
            },
        )

    def _is_unchanged(self, name: str, record: Record) -> bool:
        """Say whether a stage made the bytes that it had made before: what follows it may stay fresh."""
        former = self.session.lock.records.get(name)
        return former is not None and (former.outputs, former.deleted) == (record.outputs, record.deleted)

    def _set_end(self, name: str, end: StageEnd) -> None:
        self._ends[name] = end
        self._frontier.end(name)

    def _stop(self, code: ExitCode, text: str) -> None:
        if self._stopped is None:
            self._stopped = code
            self._tell("warning", text, "orch23", {"exit_code": int(code)})
            self.executor.cancel()

    def _result(self) -> BuildResult:
        world = self.session.world
        for name in world.plan.order:
            if name not in self._ends and name in self._wanted:
                self._end(name, "cancelled" if self._stopped else "blocked", "not run")
        ends = {name: end for name, end in self._ends.items() if name in self._wanted or end.code}
        green = all(end.status in _GREEN for end in ends.values()) and self._stopped is None
        removed = self.committer.bury(world.dead_files()) if green and self.options.selection.is_all else ()
        if removed:
            self._tell("promoted", "files of stages that are gone were taken away", "orch23", {"files": [], "removed": list(removed)})
        self.committer.write_lock(
            {name for name, end in ends.items() if end.status in _GREEN}, complete=green and self.options.selection.is_all
        )
        code = self._stopped or next((c for c in _GRAVITY if any(e.code == c for e in ends.values())), None)
        if code is None:
            code = ExitCode.OK if green else ExitCode.FAILED
        if any(e.code == ExitCode.INVALID for e in ends.values()) and code is ExitCode.FAILED:
            code = ExitCode.INVALID
        return BuildResult(stages=ends, exit_code=code, status=_status(code))

    # ---- telling --------------------------------------------------------------------------

    def _tell_decision(self, name: str, decision: Decision, resolved: Resolved) -> None:
        reasons = getattr(decision, "reasons", ())
        self._tell(
            "stage_decided",
            decision.label,
            name,
            {"decision": decision.label, "key": resolved.key, "reasons": [_reason(r) for r in reasons]},
        )

    def _tell(self, kind: str, text: str, role: str, data: Mapping[str, object]) -> None:
        self.observer.notice(Event(kind, text, role=role, data=data))  # type: ignore[arg-type]  # literals above


def _reason(reason: Reason) -> dict[str, object]:
    return {"code": reason.code, "subject": reason.subject}


def _status(code: ExitCode) -> str:
    match code:
        case ExitCode.OK:
            return "ok"
        case ExitCode.SIGINT | ExitCode.SIGTERM:
            return "interrupted"
        case ExitCode.LIMIT:
            return "limit"
        case ExitCode.DECISION:
            return "decision"
        case _:
            return "failed"


