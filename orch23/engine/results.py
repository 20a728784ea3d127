"""Track the outcome of each stage and promote its files: alone, in an atomic group, or write-behind."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.attempt import StageResult
from orch23.engine.commit import Committer, WorkspaceChange
from orch23.engine.outcomes import Failure, StageCost, StageOutcome, blocked_by, missing_bytes_outcome, stopped_by
from orch23.engine.plan_walk import PlanWalk, may_access
from orch23.engine.protected_files import undeclared_tool_files
from orch23.engine.run_events import RunEvents
from orch23.model.errors import ExitCode, MissingBytesError
from orch23.model.event import Warned
from orch23.model.pipeline import CheckStep, EnsuresStep, ForeachStage, Stage
from orch23.model.record import Record
from orch23.model.stage_status import StageStatus, checked_transition
from orch23.resolve.resolution import ResolvedStage
from orch23.store.promotion import PromotionResult, refused_path_errors

Outcomes: TypeAlias = Mapping[str, StageOutcome]
_MOST_NAMES = 3


class PassedStage(Struct, frozen=True, kw_only=True):
    """A stage that is green but for its promotion. `how` its files come is told; what is fresh has none to come."""

    resolved: ResolvedStage
    record: Record
    outcome: StageOutcome
    how: Literal["promoted", "restored", "fresh"]


class AtomicGroups(Struct):
    """Holds what is green until it is promoted with all that belongs to it. Only the loop thread calls this."""

    committer: Committer
    events: RunEvents
    _waiting: dict[str, PassedStage] = field(default_factory=dict)

    @property
    def waiting(self) -> Collection[str]:
        """Give the stages that are green and not promoted."""
        return self._waiting.keys()

    def add(self, name: str, success: PassedStage, group: Collection[str]) -> Outcomes:
        """Take a success and promote its group if that is complete; return the ends that are known by that.

        Raises:
            MissingBytesError: nobody has its bytes any more; it is as if it had not come.

        """
        if len(group) == 1:
            members = {name: success}
            change = self._change(members)
            return _refused(members, change) or self._promote(members, change)
        if success.how != "fresh":
            self.committer.withhold(name, success.record)
        self._waiting[name] = success
        missing = [other for other in group if other not in self._waiting]
        if missing:
            self.events.withheld(name, success.outcome.key, missing)
            return {}
        return self.complete(group)

    def complete(self, group: Collection[str]) -> Outcomes:
        """Promote a group if all of its members are waiting; return the ends that are known by that."""
        if not group or any(other not in self._waiting for other in group):
            return {}
        members = {other: self._waiting.pop(other) for other in group}
        change = self._change(members)
        stuck = self._stuck(members, change)
        if stuck:
            self._waiting |= {other: one for other, one in members.items() if other not in stuck}
            return stuck
        return self._promote(members, change)

    def promote_all(self, members: Mapping[str, PassedStage]) -> Outcomes | None:
        """Promote what was gathered, in one transaction; None, and nothing is done, where one of them cannot be.

        Then they have to be added one after the other.
        """
        self.committer.sync()
        change = self._change(members)
        try:
            return None if change.foreign or change.refused else self._promote(members, change)
        except MissingBytesError:
            return None

    def withheld(self, ends: Outcomes, groups: Mapping[str, Collection[str]]) -> Outcomes:
        """Return how all ended that waits in vain. What lock file and workspace hold already is fresh all the same."""
        found = {}
        for name, success in self._waiting.items():
            stands = success.how == "fresh" and self.committer.is_in_place(name, success.record)
            red = {other: ends[other] for other in groups[name] if other in ends and not ends[other].is_green}
            found[name] = success.outcome if stands else _held(success.outcome, red)
        return found

    # ---- parts ----------------------------------------------------------------------------

    def _change(self, members: Mapping[str, PassedStage]) -> WorkspaceChange:
        return self.committer.change({name: one.record for name, one in members.items() if one.how != "fresh"})

    def _promote(self, members: Mapping[str, PassedStage], change: WorkspaceChange) -> Outcomes:
        promoted = self.committer.promote({name: one.record for name, one in members.items()}, change)
        ends = {}
        for name, one in members.items():
            own = _part(promoted, change.targets.get(name, {}))
            if one.how == "restored":
                self.events.restored(name, own)
            elif one.how == "promoted":
                self.events.promoted(name, "promoted", own)
            if one.how != "fresh":
                self.events.warn_of(name, undeclared_tool_files(self.committer.session.state.plan, name, own.written))
            ends[name] = _edited(one.outcome, own.edited) if own.edited else one.outcome
        return ends

    def _stuck(self, members: Mapping[str, PassedStage], change: WorkspaceChange) -> Outcomes:
        """Return the ends of those that keep a group from being promoted: a person's files, and bytes that are lost."""
        stuck = {}
        for name, target in change.targets.items():
            foreign = tuple(path for path in change.foreign if path in target)
            try:
                own = {path: entry for path, entry in change.new.items() if path in target}
                self.committer.check(replace(change, new=own))
            except MissingBytesError as lost:
                stuck[name] = missing_bytes_outcome(name, members[name].outcome.key, lost)
            if foreign:
                stuck[name] = _edited(members[name].outcome, foreign)
        return stuck | _refused(members, change)


def _refused(members: Mapping[str, PassedStage], change: WorkspaceChange) -> dict[str, StageOutcome]:
    """Return the ends of those that want to change a protected path which no stage declares."""
    found = {}
    for name, target in change.targets.items():
        own = {path: reason for path, reason in change.refused.items() if path in target}
        if own:
            found[name] = stopped_by(members[name].outcome.key, *refused_path_errors(own), code=ExitCode.SAFETY)
    return found


def _part(promoted: PromotionResult, paths: Collection[str]) -> PromotionResult:
    """Return what a promotion did to some of its paths."""
    return PromotionResult(
        tuple(path for path in promoted.written if path in paths),
        tuple(path for path in promoted.removed if path in paths),
        tuple(path for path in promoted.edited if path in paths),
    )


def _held(end: StageOutcome, red: Outcomes) -> StageOutcome:
    """Return the end of a stage that is held back by these: by those that failed or were edited, if any did."""
    by = [name for name, one in red.items() if one.status in (StageStatus.FAILED, StageStatus.EDITED)] or list(red)
    told = [f"{name} {red[name].status}" for name in by[:_MOST_NAMES]]
    more = f" and {len(by) - _MOST_NAMES} more" if len(by) > _MOST_NAMES else ""
    return replace(end, status=StageStatus.WITHHELD, text=f"held back: {', '.join(told)}{more}", by=tuple(by))


def _edited(end: StageOutcome, foreign: tuple[str, ...]) -> StageOutcome:
    """Return the end of a stage of which somebody edited files meanwhile."""
    text = f"left as they are, since somebody edited them meanwhile: {', '.join(foreign)}"
    return StageOutcome(status=StageStatus.EDITED, text=text, code=ExitCode.DECISION, key=end.key, paths=foreign)


_SOON_S = 0.15
_MOST = 256
_PATIENCE_S, _MOST_PATIENCE_S = 0.3, 2.0
_SHARE = 10


def is_cheap_to_rebuild(stage: Stage, done: StageResult) -> bool:
    """Say whether a crash may cost this result: nothing was paid for it, and it took no time.

    What belongs to a chain has versions that others start from, and is none.
    """
    if done.exchanges or stage.chain is not None or not stage.step.is_cheap:
        return False
    checked = all(isinstance(step, CheckStep | EnsuresStep) for step in stage.verify.steps)
    return checked and done.attempts == 1 and done.took_s <= _SOON_S


class WriteBehind(Struct):
    """Successes that other stages see already, and that are not promoted. Only the loop thread calls this."""

    clock: Callable[[], float]
    _members: dict[str, PassedStage] = field(default_factory=dict)
    _since: float = 0.0
    _took_s: float = 0.0

    def add(self, success: PassedStage) -> None:
        """Take a success; the first one sets the time until which all are to be committed."""
        if not self._members:
            self._since = self.clock()
        self._members[success.resolved.stage.name] = success

    @property
    def is_due(self) -> bool:
        """Say whether it is time to commit."""
        return len(self._members) >= _MOST or (bool(self._members) and self.left_s == 0)

    @property
    def left_s(self) -> float | None:
        """Give how long the successes may wait yet; None where there are none."""
        if not self._members:
            return None
        patience_s = max(_PATIENCE_S, min(_MOST_PATIENCE_S, _SHARE * self._took_s))
        return max(0.0, self._since + patience_s - self.clock())

    def committed(self, took_s: float) -> None:
        """Note how long it took to commit: on a slow disk more is gathered, so that it is a tenth of the time."""
        self._took_s = took_s

    def drain(self) -> dict[str, PassedStage]:
        """Return all of them in the order they came in, and hold none."""
        taken, self._members = self._members, {}
        return taken


class StageResults(Struct, kw_only=True, dict=True):
    """The status and the end of each stage. Only the loop thread calls this.

    A cheap result is written behind (ADR 16): other stages see it at once, and many are promoted in one transaction.
    Nothing else ends and nothing else is promoted before these are on disk: `_then` sees to that.
    """

    committer: Committer
    events: RunEvents
    walk: PlanWalk
    clock: Callable[[], float]
    cost_of: Callable[[str], StageCost]
    outcomes: dict[str, StageOutcome] = field(default_factory=dict)
    failed: int = 0
    _statuses: dict[str, StageStatus] = field(default_factory=dict)

    @cached_property
    def _together(self) -> AtomicGroups:
        return AtomicGroups(self.committer, self.events)

    @cached_property
    def _gathering(self) -> WriteBehind:
        return WriteBehind(self.clock)

    # ---- what the loop asks ---------------------------------------------------------------

    @property
    def may_wait_s(self) -> float | None:
        """Give how long the loop may wait before it calls `settle` again, in seconds; None: as long as it likes."""
        return self._gathering.left_s

    def blocks(self, up: str, node: Stage | ForeachStage) -> bool:
        """Say whether a node upstream has ended and is not there; an edit in place matters to what may read it."""
        end = self.outcomes.get(up)
        return (
            end is not None
            and not end.status.releases_downstream
            and not (end.in_place and not may_access(node, end.paths))
        )

    def before(self, stage: Stage) -> tuple[str, ...]:
        """Prepare for the start of a stage, and return what turns out to block it.

        A model call takes long, so all earlier results are on disk before one.
        """
        if not stage.step.asks_model:
            return ()
        self._flush()
        return self._stuck(stage.name)

    # ---- what the loop tells --------------------------------------------------------------

    def set_status(self, name: str, status: StageStatus) -> None:
        """Note how a stage goes on."""
        self._statuses[name] = checked_transition(self._statuses.get(name, StageStatus.WAITING), status, name)

    def end(self, name: str, end: StageOutcome) -> None:
        """Note and tell how a stage ended; nothing waits for it any more."""
        self._then(self._ending(name, end))

    def skip(self, name: str, status: StageStatus) -> None:
        """Note what nobody asked for, and nobody hears of."""
        self.set_status(name, status)
        self.outcomes[name] = StageOutcome(status=status)
        self.walk.release(name)

    def fresh(self, resolved: ResolvedStage, record: Record) -> None:
        """Take a result that is on disk already."""
        self.committer.store_locked_record(record)
        end = StageOutcome(status=StageStatus.FRESH, text="fresh", key=resolved.key)
        self._then(self._taking(PassedStage(resolved=resolved, record=record, outcome=end, how="fresh")))

    def restore(self, resolved: ResolvedStage, record: Record) -> None:
        """Put the files of a record back.

        Raises:
            MissingBytesError: their bytes are lost; it is as if this had not been called.

        """
        self.committer.store_locked_record(record)
        self.committer.use_recorded(resolved, record)
        end = StageOutcome(status=StageStatus.RESTORED, text="restored from the store", key=resolved.key)
        self._then(self._taking(PassedStage(resolved=resolved, record=record, outcome=end, how="restored")))

    def finish(self, resolved: ResolvedStage, done: StageResult) -> None:
        """Keep the result of a stage that passed. Other stages see it; its files are promoted now or soon."""
        name = resolved.stage.name
        cheap = is_cheap_to_rebuild(resolved.stage, done) and len(self._group(name)) == 1
        record = self.committer.keep_for_later(resolved, done) if cheap else self.committer.keep(resolved, done)
        self._warn_of_changes(resolved)
        status = StageStatus.VERIFIED if done.verified else StageStatus.BUILT
        end = StageOutcome(
            status=status,
            text=status.value,
            key=resolved.key,
            attempts=done.attempts,
            usage=done.usage,
            record=record,
        )
        success = PassedStage(resolved=resolved, record=record, outcome=end, how="promoted")
        if cheap:
            self._gather(success)
        else:
            self._then(self._taking(success))

    def fail(self, resolved: ResolvedStage, done: StageResult, failure: Failure) -> None:
        """End a stage whose attempts failed; promote what the last one left if the stage keeps that."""
        self._then(self._failing(resolved, done, failure))

    def extended(self) -> None:
        """Take note that the plan has other nodes now."""
        self._then(self._completing())

    def settle(self, *, idle: bool) -> bool:
        """Promote what is due, or all that waits if the loop has nothing else to do; say whether there was some.

        What was started does its work meanwhile.
        """
        return (idle or self._gathering.is_due) and self._flush()

    def close(self, rest: StageOutcome) -> Mapping[str, StageOutcome]:
        """End all that was asked for and has not ended, `rest` being how; return the ends, in the order of the plan."""
        self._then(self._closing(rest))
        order = self.committer.session.state.plan.order
        return {name: self.outcomes[name] for name in (*order, *self.outcomes) if name in self.outcomes}

    # ---- write-behind ---------------------------------------------------------------------

    def _then(self, steps: Iterator[Outcomes]) -> None:
        """Go through some steps, each of which may promote files and end stages, once all that waits is on disk."""
        self._flush()
        for ends in steps:
            for name, end in ends.items():
                self._note(name, end)

    def _flush(self) -> bool:
        """Promote all that is gathered, in one transaction if that can be; say whether there was some."""
        members = self._gathering.drain()
        if not members:
            return False
        began = self.clock()
        ends = self._together.promote_all(members)
        self._gathering.committed(self.clock() - began)
        for name, end in (ends or {}).items():
            self._note(name, end)
        for success in members.values() if ends is None else ():
            self._then(self._taking(success))
        return True

    def _gather(self, success: PassedStage) -> None:
        name = success.resolved.stage.name
        self.set_status(name, StageStatus.DEFERRED)
        self._gathering.add(success)
        self.events.deferred(name)
        self.walk.release(name)

    # ---- steps: what they do is done after what waits is on disk --------------------------------

    def _ending(self, name: str, end: StageOutcome) -> Iterator[Outcomes]:
        yield {name: end}
        if end.in_place:  # the others of its group do not wait for it
            yield from self._completing()

    def _taking(self, success: PassedStage) -> Iterator[Outcomes]:
        """Promote a result, or hold it for the others of its group; what waits for it goes on."""
        name = success.resolved.stage.name
        stuck = self._stuck(name)  # by what was found only when it was to be promoted
        try:
            ends = {name: blocked_by(stuck)} if stuck else self._together.add(name, success, self._group(name))
        except MissingBytesError as lost:
            if success.how == "restored":
                raise
            ends = {name: missing_bytes_outcome(name, success.outcome.key, lost)}
        if name in self._together.waiting:
            self.set_status(name, StageStatus.WITHHELD)
        yield ends
        self.walk.release(name)

    def _failing(self, resolved: ResolvedStage, done: StageResult, failure: Failure) -> Iterator[Outcomes]:
        name = resolved.stage.name
        if resolved.stage.on_failure == "keep" and done.outputs:
            kept = self.committer.keep_failure(resolved, done)
            self.events.promoted(name, "kept, although it failed", kept)
            self.events.warn_of(name, undeclared_tool_files(self.committer.session.state.plan, name, kept.written))
        yield {name: _failed(resolved, done, failure)}

    def _completing(self) -> Iterator[Outcomes]:
        """Promote each group of which all members are held."""
        plan = self.committer.session.state.plan
        held = {plan.group_of(name): name for name in self._together.waiting}
        for name in held.values():
            yield self._together.complete(self._group(name))

    def _closing(self, rest: StageOutcome) -> Iterator[Outcomes]:
        waiting, wanted = self._together.waiting, self.walk.wanted
        order = self.committer.session.state.plan.order
        yield {name: rest for name in order if name not in self.outcomes and name not in waiting and name in wanted}
        yield self._together.withheld(self.outcomes, {name: self._group(name) for name in waiting})

    # ---- parts ----------------------------------------------------------------------------

    def _note(self, name: str, end: StageOutcome) -> None:
        self.set_status(name, end.status)
        end = replace(end, cost=self.cost_of(name))
        self.outcomes[name] = end
        self.failed += end.status is StageStatus.FAILED
        self.walk.release(name)
        self.events.ended(name, end, self.committer.session.lock.records.get(name))

    def _stuck(self, name: str) -> tuple[str, ...]:
        """Return what keeps a stage back."""
        plan = self.committer.session.state.plan
        return tuple(up for up in plan.upstream[name] if self.blocks(up, plan.nodes[name]))

    def _group(self, name: str) -> tuple[str, ...]:
        """Return what a stage is promoted with: of what belongs together that which was asked for and is not there."""
        together = self.committer.session.state.plan.promoted_with(name)
        asked = (other for other in together if other in self.walk.wanted)
        return tuple(other for other in asked if other not in self.outcomes or self.outcomes[other].is_awaited)

    def _warn_of_changes(self, resolved: ResolvedStage) -> None:
        changed = self.committer.changed_inputs(resolved)
        if changed:
            text = f"inputs changed while it ran, so it is stale again: {', '.join(changed)}"
            self.events.warn(text, resolved.stage.name, Warned(paths=tuple(changed)))


def _failed(resolved: ResolvedStage, done: StageResult, failure: Failure) -> StageOutcome:
    """Return the end of a stage whose last attempt failed."""
    return StageOutcome(
        status=StageStatus.FAILED,
        text=f"{failure.summary}{'; ' + done.note if done.note else ''}",
        code=ExitCode.SAFETY if failure.safety else ExitCode.FAILED,
        key=resolved.key,
        attempts=done.attempts,
        usage=done.usage,
        failure=failure.feedback.excerpt,
        problems=failure.diagnostics,
        kind=failure.kind,
        command=failure.feedback.command,
    )
