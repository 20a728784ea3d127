"""Track the outcome of each stage and promote its files: alone, in an atomic group, or write-behind."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.attempt import StageResult
from orch23.attempt.failures import Failure
from orch23.attempt.run_events import RunEvents
from orch23.attempt.stage_outcomes import (
    StageCost,
    StageOutcome,
    blocked_by,
    metrics_of,
    missing_bytes_outcome,
    stopped_by,
)
from orch23.decide.plan_walk import PlanWalk, may_access
from orch23.decide.protected_files import undeclared_tool_files
from orch23.engine.result_writer import PassedStage, ResultWriter, WorkspaceChange, WriteBehind, is_cheap_to_rebuild
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, MissingBytesError
from orch23.model.event import FROM_SHARED_CACHE, Warned
from orch23.model.event_data import StageStatus, checked_transition
from orch23.model.paths import escape_pattern
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.record import Record
from orch23.model.text import join_first
from orch23.resolve.resolution import ResolvedStage
from orch23.store.promotion import PromotionResult, refused_path_errors

Outcomes: TypeAlias = Mapping[str, StageOutcome]
Members: TypeAlias = Mapping[str, PassedStage]
_How: TypeAlias = Literal["promoted", "restored", "fresh"]
_MOST_NAMES = 3


class AtomicGroups(Struct):
    """Withholds passed stages until all of their promotion group have passed. Only the loop thread calls this.

    `rejected` are the failures of waiting stages whose result a user rejected, `undecided` all members of their groups:
    no stage after them may start, since their results are not promoted.
    """

    writer: ResultWriter
    events: RunEvents
    waiting: dict[str, PassedStage] = field(default_factory=dict)
    rejected: dict[str, Failure] = field(default_factory=dict)
    undecided: set[str] = field(default_factory=set)

    def add(self, name: str, success: PassedStage, group: Collection[str]) -> Outcomes:
        """Add a passed stage and promote its group if that is complete; return the outcomes that are now known.

        Raises:
            MissingBytesError: its bytes are lost; nothing was changed.
        """
        if len(group) == 1 and name not in self.writer.opened.state.plan.gated:
            members = {name: success}
            change = self._change(members)
            # Together or not at all: the user's file may not fit to the other files of a result.
            return _refused(members, change) or _foreign(members, change) or self._promote(members, change)
        if success.how != "fresh":
            self.writer.withhold(name, success.record)
        self.waiting[name] = success
        missing = [other for other in group if other not in self.waiting]
        if missing:
            self.events.withheld(name, success.outcome.key, missing)
            return {}
        return self.complete(group)

    def complete(self, group: Collection[str]) -> Outcomes:
        """Promote a group if all of its members are waiting; return the outcomes that are now known."""
        if not group or any(other not in self.waiting or other in self.undecided for other in group):
            return {}
        members = {other: self.waiting.pop(other) for other in group}
        change = self._change(members)
        # The other members stay in the store: the next build promotes them without running them again (ADR 13).
        if stuck := self._stuck(members, change):
            self.waiting |= {other: one for other, one in members.items() if other not in stuck}
            return stuck
        opened = self.writer.opened
        if opened.state.plan.gated.isdisjoint(members):
            return self._promote(members, change)
        from orch23.model.features import APPROVAL, load_feature  # noqa: PLC0415 - few pipelines have `approve`

        check = load_feature(APPROVAL["gate"], "`approve: true` needs")
        found: tuple[Outcomes, Mapping[str, Failure]] | None = check(opened, self.events, members, change)
        if found is None:
            return self._promote(members, change)
        ends, failures = found
        if failures:
            self.waiting |= members
            self.rejected |= failures
            self.undecided |= members.keys()
        return ends

    def promote_all(self, members: Mapping[str, PassedStage]) -> Outcomes | None:
        """Promote deferred results in one transaction; return None, and do nothing, if one of them cannot be promoted.

        In that case, add them one by one.
        """
        # Bytes and records must be durable before the promotion that refers to them (ADR 16).
        self.writer.opened.store.sync()
        change = self._change(members)
        try:
            return None if change.foreign or change.refused else self._promote(members, change)
        except MissingBytesError:
            return None

    def withheld(self, ends: Outcomes, groups: Mapping[str, Collection[str]]) -> Outcomes:
        """Return the outcomes of stages of incomplete groups. A result that is in place already counts as fresh."""
        found = {}
        for name, success in self.waiting.items():
            in_place = success.how == "fresh" and self.writer.is_in_place(name, success.record)
            not_green = {other: ends[other] for other in groups[name] if other in ends and not ends[other].is_green}
            found[name] = success.outcome if in_place else _withheld(success.outcome, not_green)
        return found

    def _change(self, members: Mapping[str, PassedStage]) -> WorkspaceChange:
        return self.writer.change({name: one.record for name, one in members.items() if one.how != "fresh"})

    def _promote(self, members: Mapping[str, PassedStage], change: WorkspaceChange) -> Outcomes:
        promoted = self.writer.promote({name: one.record for name, one in members.items()}, change)
        ends = {}
        for name, one in members.items():
            every, targets = (promoted.written, promoted.removed, promoted.edited), change.targets.get(name, {})
            own = PromotionResult(*(tuple(path for path in one if path in targets) for one in every))
            if one.how == "restored":
                self.events.restored(name, own)
            elif one.how == "promoted":
                self.events.promoted(name, "promoted", own)
            if one.how != "fresh":
                self.events.warn_of(name, undeclared_tool_files(self.writer.opened.state.plan, name, own.written))
            links = [path for path in own.edited if self.writer.opened.store.workspace.links(escape_pattern(path))]
            end = _behind_links(one.outcome, links) if links else _edited(one.outcome, own.edited)
            ends[name] = end if own.edited else one.outcome
        return ends

    def _stuck(self, members: Mapping[str, PassedStage], change: WorkspaceChange) -> Outcomes:
        """Return the outcomes that keep a group from being promoted: user edits, and lost bytes."""
        stuck = {}
        for name, target in change.targets.items():
            try:
                self.writer.ensure_stored({path: entry for path, entry in change.new.items() if path in target})
            except MissingBytesError as lost:
                stuck[name] = missing_bytes_outcome(name, members[name].outcome.key, lost)
        return stuck | _foreign(members, change) | _refused(members, change)


def _passed(resolved: ResolvedStage, record: Record, how: _How, end: StageOutcome) -> PassedStage:
    end = replace(end, key=resolved.key, metrics=metrics_of(resolved.stage, record))
    return PassedStage(resolved=resolved, record=record, outcome=end, how=how)


def _refused(members: Mapping[str, PassedStage], change: WorkspaceChange) -> dict[str, StageOutcome]:
    """Return the outcomes of stages that would change a protected path which no stage declares."""
    found = {}
    for name, target in change.targets.items():
        own = {path: reason for path, reason in change.refused.items() if path in target}
        if own:
            found[name] = stopped_by(members[name].outcome.key, *refused_path_errors(own), code=ExitCode.SAFETY)
    return found


def _foreign(members: Mapping[str, PassedStage], change: WorkspaceChange) -> dict[str, StageOutcome]:
    """Return the outcomes of stages that would replace files of the user."""
    found = ((name, [path for path in change.foreign if path in target]) for name, target in change.targets.items())
    return {name: _edited(members[name].outcome, tuple(paths)) for name, paths in found if paths}


def _withheld(end: StageOutcome, not_green: Outcomes) -> StageOutcome:
    """Return the outcome of a stage that is withheld because of others: failed or edited ones, if there are any."""
    serious = [name for name, one in not_green.items() if one.status.is_failure]
    by = tuple(serious or not_green)
    listed = join_first([f"{name} {not_green[name].status}" for name in by], _MOST_NAMES)
    return replace(end, status=StageStatus.WITHHELD, text=f"withheld: {listed}" if by else "withheld", by=by)


def _edited(end: StageOutcome, foreign: tuple[str, ...]) -> StageOutcome:
    """Return the outcome of a stage whose files have bytes of the user: from before the build, or edited meanwhile."""
    text = f"not replaced, because no build made what is there: {', '.join(foreign)}"
    return StageOutcome(status=StageStatus.EDITED, text=text, code=ExitCode.DECISION, key=end.key, paths=foreign)


def _behind_links(end: StageOutcome, links: Sequence[str]) -> StageOutcome:
    """Return the outcome of a stage that would replace symbolic links. Unlike an edit, a link cannot be taken over."""
    hint = "let the stage write the file that the link leads to, or delete the link; then build again"
    errors = (Diagnostic("E691", f"`{path}` is a symbolic link, and was left as it is", hint=hint) for path in links)
    return stopped_by(end.key, *errors, code=ExitCode.SAFETY)


class Promotions(Struct, kw_only=True, dict=True):
    """The status and the outcome of each stage. Only the loop thread calls this.

    A cheap result is written behind (ADR 16): other stages see it at once, and many are promoted in one transaction.
    They are on disk before anything else ends or is promoted: see `_apply`.
    """

    writer: ResultWriter
    events: RunEvents
    walk: PlanWalk
    clock: Callable[[], float]
    cost_of: Callable[[str], StageCost]
    outcomes: dict[str, StageOutcome] = field(default_factory=dict)
    failed: int = 0
    _statuses: dict[str, StageStatus] = field(default_factory=dict)
    _built: dict[str, StageOutcome] = field(default_factory=dict)

    @cached_property
    def _groups(self) -> AtomicGroups:
        return AtomicGroups(self.writer, self.events)

    @cached_property
    def _write_behind(self) -> WriteBehind:
        return WriteBehind(self.clock)

    @property
    def may_wait_s(self) -> float:
        """How long the loop may wait before it calls `settle` again, in seconds; infinite if there is no limit."""
        return self._write_behind.left_s

    def blocks(self, up: str, node: Stage | ForeachStage) -> bool:
        """Return whether an upstream node has no result to promote; a user edit blocks only nodes that may read it."""
        end = self.outcomes.get(up)
        return up in self._groups.undecided or (
            end is not None
            and not end.status.releases_downstream
            and not (end.in_place and not may_access(node, end.paths))
        )

    def before(self, stage: Stage) -> tuple[str, ...]:
        """Prepare the start of a stage, and return the stages that block it.

        A call costs money, so the results that it depends on are promoted before it.
        """
        if not stage.step.asks_model:
            return ()
        # A promotion may fail by a user edit, which blocks this stage although its upstream passed.
        upstream = self.writer.opened.state.plan.upstream[stage.name]
        if any(self._statuses.get(up) is StageStatus.DEFERRED for up in upstream):
            self._flush()
        return self._stuck(stage.name)

    def reopen(self, names: set[str]) -> None:
        """Decide some stages of a group again, and all withheld ones after them."""
        state = self.writer.opened.state
        for name in state.plan.order:
            success = self._groups.waiting.get(name)
            if success is not None and (name in names or not names.isdisjoint(state.plan.upstream[name])):
                names.add(name)
                if success.outcome.status is StageStatus.BUILT:
                    self._built[name] = success.outcome
                for path in state.target(name, self._groups.waiting.pop(name).record):
                    state.expected.pop(path, None)
                state.unsettle(name)
                state.ran.discard(name)
        for name in names:
            self._statuses.pop(name)
        self.walk.reopen(names)
        for name in self._groups.undecided & self._groups.waiting.keys():
            self.walk.release(name)
        self._groups.undecided.clear()

    def take_rejected(self) -> dict[str, tuple[PassedStage, Failure]]:
        """Return the stages whose result a user rejected, which are still withheld, each with that failure."""
        found = {name: (self._groups.waiting[name], failure) for name, failure in self._groups.rejected.items()}
        self._groups.rejected.clear()
        return found

    def set_status(self, name: str, status: StageStatus) -> None:
        """Set the status of a stage."""
        self._statuses[name] = checked_transition(self._statuses.get(name, StageStatus.WAITING), status, name)

    def end(self, name: str, end: StageOutcome) -> None:
        """Set and report the outcome of a stage; other stages stop waiting for it."""
        self._apply(self._ending(name, end))

    def skip(self, name: str, status: StageStatus) -> None:
        """Set the status of a stage that was not selected, without an event."""
        self.set_status(name, status)
        self.outcomes[name] = StageOutcome(status=status)
        self.walk.release(name)

    def fresh(self, resolved: ResolvedStage, record: Record) -> None:
        """Add a result that is on disk already."""
        state = self.writer.opened.state
        if state.shared is not None and state.is_shared(record):
            state.shared.confirm(record)
        record = self.writer.store_trusted_record(resolved, record)
        end = StageOutcome(status=StageStatus.FRESH, text="fresh")
        self._apply(self._taking(_passed(resolved, record, "fresh", end)))

    def done(self, name: str) -> None:
        """End a stage with `once` whose files are the user's. The lock file keeps its record as it was."""
        record = self.writer.keep_done(name)
        self._apply(self._ending(name, StageOutcome(status=StageStatus.DONE, text="done", key=record.key)))

    def restore(self, resolved: ResolvedStage, record: Record) -> None:
        """Restore the files of a record.

        Raises:
            MissingBytesError: their bytes are lost; nothing was changed.
        """
        state = self.writer.opened.state
        text = "restored from the store"
        if state.shared is not None and state.is_shared(record):
            state.shared.use(record)
            text = FROM_SHARED_CACHE
        record = self.writer.store_trusted_record(resolved, record)
        self.writer.use_recorded(resolved, record)
        end = StageOutcome(status=StageStatus.RESTORED, text=text)
        self._apply(self._taking(_passed(resolved, record, "restored", end)))

    def finish(self, resolved: ResolvedStage, done: StageResult) -> None:
        """Keep the result of a stage that passed, unless another pipeline owns a file of it.

        Other stages see it; its files are promoted now or soon.
        """
        name, state = resolved.stage.name, self.writer.opened.state
        # The files below a directory or a pattern in `outputs` are known only after the run.
        found = {*done.outputs, *done.deleted} - resolved.stage.literal_outputs
        if refused := state.ownership_errors(name, found, only_new=True):
            self.end(name, stopped_by(resolved.key, *refused))
            return
        cheap = is_cheap_to_rebuild(resolved.stage, done) and self._is_alone(resolved.stage)
        record = self.writer.keep_for_later(resolved, done) if cheap else self.writer.keep(resolved, done)
        self._offer(resolved, record, done)
        if changed := self.writer.changed_inputs(resolved, record.manifest):
            text = f"inputs changed while it ran, so it is stale again: {', '.join(changed)}"
            self.events.warn(text, name, Warned(paths=tuple(changed)))
        status = StageStatus.VERIFIED if done.verified else StageStatus.BUILT
        end = StageOutcome(status=status, text=status.value, attempts=done.attempts, usage=done.usage, record=record)
        success = _passed(resolved, record, "promoted", end)
        if cheap:
            self._defer(success)
        else:
            self._apply(self._taking(success))

    def fail(self, resolved: ResolvedStage, done: StageResult, failure: Failure) -> None:
        """End a stage whose attempts failed; with `on_failure: keep`, promote the files of the last one."""
        self._apply(self._failing(resolved, done, failure))

    def extended(self) -> None:
        """Check the waiting groups again, since the plan has other nodes now."""
        self._apply(self._completing())

    def settle(self, *, idle: bool) -> bool:
        """Promote results that are due, or all if the loop is idle; return whether there were any.

        Running stages continue meanwhile.
        """
        return (idle or self._write_behind.is_due) and self._flush()

    def close(self, rest: StageOutcome) -> Mapping[str, StageOutcome]:
        """End all selected stages without an outcome as `rest`; return the outcomes in the order of the plan."""
        self._apply(self._closing(rest))
        order = self.writer.opened.state.plan.order
        return {name: self.outcomes[name] for name in (*order, *self.outcomes) if name in self.outcomes}

    # ---- write-behind ---------------------------------------------------------------------

    def _apply(self, steps: Iterator[Outcomes]) -> None:
        """Promote deferred results, then apply steps, each of which may promote files and end stages."""
        # A stage must not be reported as done before the results that it may depend on are on disk: after a crash, the
        # journal would say more than the workspace has.
        self._flush()
        for ends in steps:
            for name, end in ends.items():
                self._note(name, end)

    def _flush(self) -> bool:
        """Promote all deferred results, in one transaction if possible; return whether there were any."""
        members = self._write_behind.drain()
        if not members:
            return False
        began = self.clock()
        ends = self._groups.promote_all(members)
        self._write_behind.promoted(self.clock() - began)
        for name, end in (ends or {}).items():
            self._note(name, end)
        # One file that cannot be promoted must not keep back the others, so each result is promoted alone.
        for success in members.values() if ends is None else ():
            self._apply(self._taking(success))
        return True

    def _defer(self, success: PassedStage) -> None:
        name = success.resolved.stage.name
        self.set_status(name, StageStatus.DEFERRED)
        self._write_behind.add(success)
        self.events.deferred(name)
        # Downstream stages read the result from the store, so they need not wait for the promotion.
        self.walk.release(name)

    # ---- steps, which `_apply` runs after the deferred results are on disk ----------------------

    def _ending(self, name: str, end: StageOutcome) -> Iterator[Outcomes]:
        yield {name: end}
        # An edited stage with nothing else to do does not withhold its group (ADR 13), nor does one that is done.
        if end.in_place or end.status is StageStatus.DONE:
            yield from self._completing()

    def _taking(self, success: PassedStage) -> Iterator[Outcomes]:
        """Promote a result, or withhold it for its group; downstream stages continue."""
        name, end = success.resolved.stage.name, success.outcome
        # A result that was made in this run is a built one, also if it was decided again and stayed as it was.
        if (built := self._built.get(name)) is not None:
            end = replace(end, status=built.status, text=built.text, attempts=end.attempts or built.attempts)
            success = replace(success, outcome=end, how="promoted")
        # A promotion may have failed since the stage was started, such as the promotion of an edited upstream file.
        stuck = self._stuck(name)
        try:
            ends = {name: blocked_by(stuck)} if stuck else self._groups.add(name, success, self._group(name))
        except MissingBytesError as lost:
            # The caller decides the stage again: it can still run.
            if success.how == "restored":
                raise
            ends = {name: missing_bytes_outcome(name, success.outcome.key, lost)}
        if name in self._groups.waiting:
            self.set_status(name, StageStatus.WITHHELD)
        yield ends
        # Stages outside of the group wait for its last member: they must not see results that a user rejected.
        if name not in self._groups.undecided:
            self.walk.release(name)

    def _failing(self, resolved: ResolvedStage, done: StageResult, failure: Failure) -> Iterator[Outcomes]:
        name = resolved.stage.name
        self._groups.waiting.pop(name, None)  # a user rejected its result
        if resolved.stage.on_failure == "keep" and done.outputs:
            kept = self.writer.keep_failure(resolved, done)
            self.events.promoted(name, "kept, although it failed", kept)
            self.events.warn_of(name, undeclared_tool_files(self.writer.opened.state.plan, name, kept.written))
        end = StageOutcome(
            status=StageStatus.FAILED,
            text=f"{failure.summary}{'; ' + done.note if done.note else ''}",
            code=ExitCode.SAFETY if failure.safety else ExitCode.FAILED,
            key=resolved.key,
            attempts=done.attempts,
            usage=done.usage,
            failure=failure.feedback.excerpt,
            problems=self._located(resolved.stage, failure),
            kind=failure.kind,
            command=failure.feedback.command,
            exit_code=failure.feedback.exit_code,
            command_s=failure.took_s,
            cause=failure.cause,
        )
        yield {name: end}

    def _located(self, stage: Stage, failure: Failure) -> tuple[Diagnostic, ...]:
        """Return the errors of a failure; those of a stage that did not run with their locations."""
        if failure.kind != "preflight":
            return failure.diagnostics
        from orch23.attempt.stage_errors import located_errors  # noqa: PLC0415 - only for failures

        opened = self.writer.opened
        return tuple(located_errors(opened.state.plan, stage, opened.decider.sources, failure.diagnostics))

    def _completing(self) -> Iterator[Outcomes]:
        """Promote each group of which all members wait."""
        plan = self.writer.opened.state.plan
        held = {plan.group_of(name): name for name in self._groups.waiting}
        for name in held.values():
            yield self._groups.complete(self._group(name))

    def _closing(self, rest: StageOutcome) -> Iterator[Outcomes]:
        waiting, wanted = self._groups.waiting, self.walk.wanted
        order = self.writer.opened.state.plan.order
        yield {name: rest for name in order if name not in self.outcomes and name not in waiting and name in wanted}
        yield self._groups.withheld(self.outcomes, {name: self._group(name) for name in waiting})

    def _note(self, name: str, end: StageOutcome) -> None:
        self.set_status(name, end.status)
        # The ledger knows all calls of the stage by now, also those of failed attempts.
        end = replace(end, cost=self.cost_of(name))
        if end.problems:
            from orch23.attempt.stage_errors import for_author  # noqa: PLC0415 - only for failures

            found = (for_author(self.writer.opened.pipeline, name, one) for one in end.problems)
            end = replace(end, problems=tuple(found))
        self.outcomes[name] = end
        self.failed += end.status is StageStatus.FAILED
        self.walk.release(name)
        self.events.ended(name, end, self.writer.opened.lock.records.get(name))

    def _stuck(self, name: str) -> tuple[str, ...]:
        plan = self.writer.opened.state.plan
        return tuple(up for up in plan.upstream[name] if self.blocks(up, plan.nodes[name]))

    def _group(self, name: str) -> tuple[str, ...]:
        """Return the selected stages that a stage is promoted with and that have no outcome yet."""
        group = self.writer.opened.state.plan.promoted_with(name)
        selected = (other for other in group if other in self.walk.wanted)
        return tuple(other for other in selected if other not in self.outcomes or self.outcomes[other].is_awaited)

    def _is_alone(self, stage: Stage) -> bool:
        """Return whether no other stage is promoted with this one, or starts from its versions of files.

        Results that others wait for so are durable at once (ADR 13), and not written behind.
        """
        plan = self.writer.opened.state.plan
        chain = plan.chains[stage.chain.chain] if stage.chain else ()
        return len(chain) <= 1 and len(self._group(stage.name)) == 1 and stage.name not in plan.gated

    def _offer(self, resolved: ResolvedStage, record: Record, done: StageResult) -> None:
        """Offer a result that passed to a shared cache, with what it took to make it."""
        if (shared := self.writer.opened.state.shared) is None:
            return
        from orch23.decide.shared_results import ResultOrigin  # noqa: PLC0415 - few builds use a shared cache

        usage = done.usage
        about = ResultOrigin(
            seconds=round(self.events.took_s(resolved.stage.name), 3),
            calls=usage.calls + usage.recorded,
            tokens=usage.input_tokens + usage.output_tokens,
            cost="" if usage.unpriced else format(usage.cost + usage.saved, "f"),
        )
        shared.share(resolved, record, about, done.trace.sandboxes, is_verified=done.verified)
