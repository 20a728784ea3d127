"""Keep what became of each stage of a run, and promote its files when their time has come."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.attempt import Attempted
from orch23.engine.commit import Committer
from orch23.engine.declared import unnamed_tools
from orch23.engine.ends import Paid, StageEnd, blocked_by, lost_bytes
from orch23.engine.failure import Failure
from orch23.engine.gathering import Gathering, is_soon_made_again
from orch23.engine.narrator import Narrator
from orch23.engine.together import Ends, Success, Together
from orch23.engine.walk import Walk, may_see
from orch23.model.errors import ExitCode, MissingBytesError
from orch23.model.event import Warned
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.record import Record
from orch23.model.stage_status import StageStatus, moved
from orch23.resolve.resolution import Resolved


class Results(Struct, kw_only=True, dict=True):
    """The status and the end of each stage. Only the loop thread calls this.

    A cheap result is written behind (ADR 16): other stages see it at once, and many are promoted in one transaction.
    Nothing else ends and nothing else is promoted before these are on disk: `_then` sees to that.
    """

    committer: Committer
    narrator: Narrator
    walk: Walk
    clock: Callable[[], float]
    paid: Callable[[str], Paid]
    ends: dict[str, StageEnd] = field(default_factory=dict)
    failed: int = 0
    _statuses: dict[str, StageStatus] = field(default_factory=dict)

    @cached_property
    def _together(self) -> Together:
        return Together(self.committer, self.narrator)

    @cached_property
    def _gathering(self) -> Gathering:
        return Gathering(self.clock)

    # ---- what the loop asks ---------------------------------------------------------------

    @property
    def may_wait_s(self) -> float | None:
        """Give how long the loop may wait before it calls `settle` again, in seconds; None: as long as it likes."""
        return self._gathering.left_s

    def keeps_back(self, up: str, node: Stage | ForeachStage) -> bool:
        """Say whether a node upstream has ended and is not there; an edit in place matters to what may read it."""
        end = self.ends.get(up)
        return end is not None and not end.status.lets_pass and not (end.in_place and not may_see(node, end.paths))

    def before(self, stage: Stage) -> tuple[str, ...]:
        """Prepare for the start of a stage, and return what turns out to block it.

        A model call takes long, so all earlier results are on disk before one.
        """
        if not stage.step.asks_model:
            return ()
        self._flush()
        return self._stuck(stage.name)

    # ---- what the loop tells --------------------------------------------------------------

    def move(self, name: str, status: StageStatus) -> None:
        """Note how a stage goes on."""
        self._statuses[name] = moved(self._statuses.get(name, StageStatus.WAITING), status, name)

    def end(self, name: str, end: StageEnd) -> None:
        """Note and tell how a stage ended; nothing waits for it any more."""
        self._then(self._ending(name, end))

    def leave_out(self, name: str, status: StageStatus) -> None:
        """Note what nobody asked for, and nobody hears of."""
        self.move(name, status)
        self.ends[name] = StageEnd(status=status)
        self.walk.let_pass(name)

    def fresh(self, resolved: Resolved, record: Record) -> None:
        """Take a result that is on disk already."""
        self.committer.adopt(record)
        end = StageEnd(status=StageStatus.FRESH, text="fresh", key=resolved.key)
        self._then(self._taking(Success(resolved=resolved, record=record, end=end, how="fresh")))

    def restore(self, resolved: Resolved, record: Record) -> None:
        """Put the files of a record back.

        Raises:
            MissingBytesError: their bytes are lost; it is as if this had not been called.

        """
        self.committer.adopt(record)
        self.committer.recall(resolved, record)
        end = StageEnd(status=StageStatus.RESTORED, text="restored from the store", key=resolved.key)
        self._then(self._taking(Success(resolved=resolved, record=record, end=end, how="restored")))

    def finish(self, resolved: Resolved, done: Attempted) -> None:
        """Keep the result of a stage that passed. Other stages see it; its files are promoted now or soon."""
        name = resolved.stage.name
        cheap = is_soon_made_again(resolved.stage, done) and len(self._group(name)) == 1
        record = self.committer.gather(resolved, done) if cheap else self.committer.keep(resolved, done)
        self._warn_of_changes(resolved)
        status = StageStatus.VERIFIED if done.verified else StageStatus.BUILT
        end = StageEnd(
            status=status,
            text=status.value,
            key=resolved.key,
            attempts=done.attempts,
            spent=done.spent,
            record=record,
        )
        success = Success(resolved=resolved, record=record, end=end, how="promoted")
        if cheap:
            self._gather(success)
        else:
            self._then(self._taking(success))

    def fail(self, resolved: Resolved, done: Attempted, failure: Failure) -> None:
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

    def close(self, rest: StageEnd) -> Mapping[str, StageEnd]:
        """End all that was asked for and has not ended, `rest` being how; return the ends, in the order of the plan."""
        self._then(self._closing(rest))
        order = self.committer.session.world.plan.order
        return {name: self.ends[name] for name in (*order, *self.ends) if name in self.ends}

    # ---- write-behind ---------------------------------------------------------------------

    def _then(self, steps: Iterator[Ends]) -> None:
        """Go through some steps, each of which may promote files and end stages, once all that waits is on disk."""
        self._flush()
        for ends in steps:
            for name, end in ends.items():
                self._note(name, end)

    def _flush(self) -> bool:
        """Promote all that is gathered, in one transaction if that can be; say whether there was some."""
        members = self._gathering.take()
        if not members:
            return False
        began = self.clock()
        ends = self._together.add_all(members)
        self._gathering.committed(self.clock() - began)
        for name, end in (ends or {}).items():
            self._note(name, end)
        for success in members.values() if ends is None else ():
            self._then(self._taking(success))
        return True

    def _gather(self, success: Success) -> None:
        name = success.resolved.stage.name
        self.move(name, StageStatus.GATHERED)
        self._gathering.add(success)
        self.narrator.gathered(name)
        self.walk.let_pass(name)

    # ---- steps: what they do is done after what waits is on disk --------------------------------

    def _ending(self, name: str, end: StageEnd) -> Iterator[Ends]:
        yield {name: end}
        if end.in_place:  # the others of its group do not wait for it
            yield from self._completing()

    def _taking(self, success: Success) -> Iterator[Ends]:
        """Promote a result, or hold it for the others of its group; what waits for it goes on."""
        name = success.resolved.stage.name
        stuck = self._stuck(name)  # by what was found only when it was to be promoted
        try:
            ends = {name: blocked_by(stuck)} if stuck else self._together.add(name, success, self._group(name))
        except MissingBytesError as lost:
            if success.how == "restored":
                raise
            ends = {name: lost_bytes(name, success.end.key, lost)}
        if name in self._together.waiting:
            self.move(name, StageStatus.HELD)
        yield ends
        self.walk.let_pass(name)

    def _failing(self, resolved: Resolved, done: Attempted, failure: Failure) -> Iterator[Ends]:
        name = resolved.stage.name
        if resolved.stage.on_failure == "keep" and done.outputs:
            kept = self.committer.keep_failure(resolved, done)
            self.narrator.promoted(name, "kept, although it failed", kept)
            self.narrator.caution(name, unnamed_tools(self.committer.session.world.plan, name, kept.written))
        yield {name: _failed(resolved, done, failure)}

    def _completing(self) -> Iterator[Ends]:
        """Promote each group of which all members are held."""
        plan = self.committer.session.world.plan
        held = {plan.group_of(name): name for name in self._together.waiting}
        for name in held.values():
            yield self._together.complete(self._group(name))

    def _closing(self, rest: StageEnd) -> Iterator[Ends]:
        waiting, wanted = self._together.waiting, self.walk.wanted
        order = self.committer.session.world.plan.order
        yield {name: rest for name in order if name not in self.ends and name not in waiting and name in wanted}
        yield self._together.held_back(self.ends, {name: self._group(name) for name in waiting})

    # ---- parts ----------------------------------------------------------------------------

    def _note(self, name: str, end: StageEnd) -> None:
        self.move(name, end.status)
        end = replace(end, paid=self.paid(name))
        self.ends[name] = end
        self.failed += end.status is StageStatus.FAILED
        self.walk.let_pass(name)
        self.narrator.ended(name, end, self.committer.session.lock.records.get(name))

    def _stuck(self, name: str) -> tuple[str, ...]:
        """Return what keeps a stage back."""
        plan = self.committer.session.world.plan
        return tuple(up for up in plan.upstream[name] if self.keeps_back(up, plan.nodes[name]))

    def _group(self, name: str) -> tuple[str, ...]:
        """Return what a stage is promoted with: of what belongs together that which was asked for and is not there."""
        together = self.committer.session.world.plan.promoted_with(name)
        asked = (other for other in together if other in self.walk.wanted)
        return tuple(other for other in asked if other not in self.ends or self.ends[other].is_waited_for)

    def _warn_of_changes(self, resolved: Resolved) -> None:
        changed = self.committer.changed_inputs(resolved)
        if changed:
            text = f"inputs changed while it ran, so it is stale again: {', '.join(changed)}"
            self.narrator.warn(text, resolved.stage.name, Warned(paths=tuple(changed)))


def _failed(resolved: Resolved, done: Attempted, failure: Failure) -> StageEnd:
    """Return the end of a stage whose last attempt failed."""
    return StageEnd(
        status=StageStatus.FAILED,
        text=f"{failure.summary}{'; ' + done.note if done.note else ''}",
        code=ExitCode.SAFETY if failure.safety else ExitCode.FAILED,
        key=resolved.key,
        attempts=done.attempts,
        spent=done.spent,
        failure=failure.brief.excerpt,
        problems=failure.diagnostics,
        kind=failure.kind,
        command=failure.brief.command,
    )
