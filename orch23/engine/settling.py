"""Carry out what is decided about the stages of a build, and settle how they end."""

from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, assert_never

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from orch23.attempt.attempt import StageResult
from orch23.attempt.failures import Failure
from orch23.attempt.ledger import StageLimitError
from orch23.attempt.process_runner import CancelledBuildError
from orch23.attempt.run_events import RunEvents
from orch23.attempt.stage_outcomes import (
    StageOutcome,
    blocked_by,
    edited_outcome,
    missing_bytes_outcome,
    stopped_by,
)
from orch23.attempt.stage_work import InputsChangedError
from orch23.decide.decisions import DecidedStage
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.plan_walk import HeldBack, ItemsAdded, Kept, NextStep, NotExpanded, PassedOver, PlanWalk, Undecided
from orch23.decide.stage_view import files_at_stake
from orch23.engine.preflight import place_errors
from orch23.engine.promotions import Promotions
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import (
    AwaitsResponseError,
    ExitCode,
    LimitError,
    MissingBytesError,
    Orch23Error,
    ProviderError,
)
from orch23.model.event import StagesAdded
from orch23.model.event_data import StageStatus
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Done, Edited, Fresh, Restore, Run, Skipped, VerifyOnly
from orch23.model.plugins import plugin_error_of
from orch23.model.record import Reason, Record
from orch23.plan.planner import Selection
from orch23.resolve.resolution import ResolvedStage

if TYPE_CHECKING:
    from orch23.engine.group_checks import GroupChecks

# An input that changes while a stage is prepared makes the build decide the stage again, at most so often (ADR 4).
_MAX_RESTARTS = 5
NOT_RUN = StageOutcome(status=StageStatus.BLOCKED, text="not run: another stage failed")

WorkOutcome: TypeAlias = StageResult | Exception | SystemExit

Work: TypeAlias = Run | VerifyOnly | DecidedStage
"""What a thread does: run a stage, verify a result, or compare edited files with a result before the decision holds."""


class Settling(Struct, kw_only=True, dict=True):
    """Settles the stages of a build. Only the loop thread calls this.

    `enqueue` takes the stages that run, `stop_at_limit` the errors of a limit of the run that was reached. `approval`
    is the one of `Build`.
    """

    opened: OpenPipeline
    selection: Selection
    walk: PlanWalk
    events: RunEvents
    results: Promotions
    enqueue: Callable[[ResolvedStage, Work], None]
    stop_at_limit: Callable[[tuple[Diagnostic, ...]], None]
    approval: Callable[[DecidedStage], DecidedStage] | None
    # A file that changes again and again would otherwise restart its stage for ever.
    _restarts: dict[str, int] = field(default_factory=dict)

    @cached_property
    def checks(self) -> "GroupChecks | None":
        """What ends the stages of promotion groups and those with `approve`; None if there are none."""
        plan = self.opened.state.plan
        if not plan.groups and not any(
            one.approve if isinstance(one, Stage) else "approve" in one.body for one in plan.pipeline.stages
        ):
            return None
        from orch23.engine.group_checks import GroupChecks  # noqa: PLC0415 - few pipelines have groups

        return GroupChecks(results=self.results)

    def carry_out(self, step: NextStep) -> None:
        """Settle a stage, or give it to `enqueue`."""
        match step:
            case Kept(name=name):
                self.results.skip(name, StageStatus.FRESH)
            case PassedOver(name=name, record=record):
                self.results.skip(name, StageStatus.NOT_BUILT if record is None else StageStatus.NOT_SELECTED)
            case HeldBack(name=name, by=by):
                self.results.end(name, blocked_by(by) if by else NOT_RUN)
            case Undecided(name=name, error=error):
                self.results.end(name, stopped_by("", *error.diagnostics, code=error.exit_code))
            case ItemsAdded(node=node, items=items, unaffected=unaffected):
                self._report_items(node, items, unaffected)
            case NotExpanded(node=node, problems=problems):
                text = "\n".join(str(d) for d in problems) or "the bytes of its list are lost"
                failed, invalid = StageStatus.FAILED, ExitCode.INVALID
                end = StageOutcome(status=failed, text=text, code=invalid, failure=text, problems=problems)
                self.results.end(node.name, end)
            case DecidedStage():
                self._carry_out_decision(step)
            case never:
                assert_never(never)

    def _report_items(self, node: ForeachStage, items: tuple[Stage, ...], unaffected: Collection[str]) -> None:
        names = tuple(stage.name for stage in items if stage.name not in unaffected)
        added = StagesAdded(items=names, at_rest={"fresh": len(unaffected)} if unaffected else UNSET)
        self.events.emit(added, f"{node.name} has {len(items)} items", node.name)
        if files := files_at_stake(self.opened.state, node, items):
            way = f"stop this build and run `{self.opened.pipeline.command_line('release', node.name)}`"
            self.events.warn(f"its new list replaces or removes {', '.join(files)}; to keep them, {way}", node.name)
        self.skip()
        self.results.extended()

    def _carry_out_decision(self, decided: DecidedStage) -> None:
        decided = decided if self.approval is None else self.approval(decided)
        name = decided.resolved.stage.name
        decision, resolved = decided.decision, decided.resolved
        if self.checks is not None and name in self.checks.refused and not isinstance(decision, Edited):
            decision = Run((Reason("previous_failed"),))
        if decided.maybe_formatted:
            self.enqueue(resolved, decided)
            return
        self.events.decided(name, decision, resolved.key)
        match decision:
            case Done():
                self.results.done(name)
            case Fresh(record=record):
                self.results.fresh(resolved, record)
            case Restore(record=record):
                self._restore(name, resolved, record)
            case Edited():
                self.results.end(name, edited_outcome(decision))
            # The items of a list that a stage has made were not known at the start.
            case Run() if resolved.stage.step.asks_model and (
                errors := [*place_errors(self.opened.state, resolved.stage)]
            ):
                self.results.end(name, replace(stopped_by(resolved.key, *errors), kind="preflight"))
            case Run() | VerifyOnly():
                self.enqueue(resolved, decision)

    def _decide(self, name: str) -> None:
        if (step := self.walk.decide(name)) is not None:
            self.carry_out(step)

    def skip(self) -> None:
        """Report the stages and items that are switched off, and empty lists; no stage waits for them."""
        plan = self.opened.state.plan
        for name in self.selection.skipped(plan):
            if name not in self.results.outcomes:
                text = str(Skipped(plan.idle[name].condition))
                self.results.end(name, StageOutcome(status=StageStatus.SKIPPED, text=text))

    def _restore(self, name: str, resolved: ResolvedStage, record: Record) -> None:
        """Restore a result. If bytes turn out to be damaged, the store drops them and the stage is decided again."""
        try:
            self.results.restore(resolved, record)
        except MissingBytesError as lost:
            self.events.warn(f"{lost.sha256} was damaged in the store and is dropped", name)
            self.opened.state.unsettle(name)
            self.opened.store.workspace.invalidate((*record.outputs, *record.deleted))
            self._decide(name)

    def compared(self, name: str, results: Collection[Record]) -> None:
        """Decide a stage whose edited files were compared; `results` have those that only formatting made different."""
        self.opened.decider.settle_formatted(name, map(self.results.writer.with_blob_ids, results))
        self.results.set_status(name, StageStatus.WAITING)
        self._decide(name)

    def finish(self, resolved: ResolvedStage, decision: Work, outcome: WorkOutcome) -> None:  # noqa: C901, PLR0912 - one case for each way to end
        """End a stage that has run, or decide it again."""
        name = resolved.stage.name
        edits = decision.edits if isinstance(decision, Run) else None
        match outcome:
            case StageResult(failure=Failure() as failure):
                # No file of a failed run replaces the bytes of a user.
                failed = outcome if edits is None else replace(outcome, outputs={})
                (self.checks or self.results).fail(resolved, failed, failure)
            case StageResult() if edits is not None and (differing := self._differing(edits, outcome)):
                self.results.end(name, edited_outcome(edits.only(differing), resolved.key))
            case StageResult() if copied := self._copied_over(resolved, outcome):
                text = f"its command would replace what you wrote: {', '.join(copied)}"
                self.results.end(name, replace(edited_outcome(Edited(copied), resolved.key), text=text))
            case StageResult():
                (self.checks or self.results).finish(resolved, outcome)
            case InputsChangedError(args=paths):
                self._decide_again(name, resolved, paths)
            case MissingBytesError():
                self.results.end(name, missing_bytes_outcome(name, resolved.key, outcome))
            # No batch has its request: the build may not call models.
            case AwaitsResponseError():
                status, text, code = StageStatus.AWAITING, "it would call a model", ExitCode.WAITING
                self.results.end(name, StageOutcome(status=status, text=text, code=code, key=resolved.key))
            case CancelledBuildError():
                self.results.end(name, StageOutcome(status=StageStatus.CANCELLED, text="cancelled", key=resolved.key))
            # A limit of the run: this stage did not fail, and the build stops.
            case LimitError() if not isinstance(outcome, StageLimitError):
                text = "a stop condition was reached"
                self.results.end(name, StageOutcome(status=StageStatus.CANCELLED, text=text, key=resolved.key))
                self.stop_at_limit(outcome.diagnostics)
            # Also a missing consent that only the results before this stage showed: the run ends with its exit code.
            case Orch23Error():
                end = stopped_by(resolved.key, *outcome.diagnostics, code=outcome.exit_code)
                if isinstance(outcome, ProviderError):
                    from orch23.attempt.stage_errors import provider_errors  # noqa: PLC0415 - only for failures

                    end = replace(end, problems=provider_errors(self.opened.pipeline, name, end.problems))
                self.results.end(name, end)
            case Exception() | SystemExit():
                fault = plugin_error_of(outcome)
                # A defect of orch23 must end the build with its traceback, and not look like a failed stage.
                if fault is None:
                    outcome.add_note(f"in the stage `{name}`")
                    raise outcome
                self.results.end(name, stopped_by(resolved.key, *fault.diagnostics, code=fault.exit_code))

    def _differing(self, edits: Edited, done: StageResult) -> list[str]:
        workspace = self.opened.store.workspace
        workspace.invalidate(edits.paths)
        return [path for path in edits.paths if workspace.entry(path) not in (None, done.outputs.get(path))]

    def _copied_over(self, resolved: ResolvedStage, done: StageResult) -> tuple[str, ...]:
        """Return edits since the last run that a program replaced by a copy of another file, or by what it created."""
        last, base, made = self.opened.state.former.get(resolved.stage.name), resolved.base, done.outputs
        if last is None or not resolved.stage.is_editor or self.opened.decider.overwrite_edited:
            return ()
        new = {p: e for p, e in base.items() - {*last.starts} if p in last.outputs and p in made}
        created = {p for p in new if f"base:{p}" not in last.manifest and not last.failed}
        copies = {p for p in new if made[p] in base.values() or (p in created and made[p] == last.outputs[p])}
        return tuple(sorted(p for p in copies if not self.opened.state.ownership.is_known(p, new[p])))

    def _decide_again(self, name: str, resolved: ResolvedStage, paths: tuple[str, ...]) -> None:
        """Decide a stage again whose inputs changed before it started, at most `_MAX_RESTARTS` times."""
        self.opened.store.workspace.invalidate(paths)
        self.events.warn(f"inputs changed while the stage was prepared: {', '.join(paths)}", name)
        self._restarts[name] = self._restarts.get(name, 0) + 1
        if self._restarts[name] <= _MAX_RESTARTS:
            self.results.set_status(name, StageStatus.WAITING)
            self._decide(name)
            return
        text = f"{', '.join(paths)} changed {self._restarts[name]} times while the stage was prepared"
        unstable = Diagnostic("E711", text, hint="stop the program that writes there, and build again")
        self.results.end(name, stopped_by(resolved.key, unstable))
