"""Keep what became of each stage of a run, and promote its files when their time has come."""

from collections.abc import Callable, Mapping
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.commit import Committer
from orch23.engine.ends import Paid, StageEnd, blocked_by, lost_bytes
from orch23.engine.gathering import Gathering
from orch23.engine.narrator import Narrator
from orch23.engine.together import Success, Together
from orch23.engine.walk import Walk, may_see
from orch23.model.errors import MissingBytesError
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.stage_status import StageStatus, moved


class Results(Struct, kw_only=True, dict=True):
    """The status and the end of each stage. Only the loop thread calls this.

    Results that are soon made again are gathered, and promoted many at a time: before anything else is told, when
    they have waited long enough, and when there is nothing else to do.
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
    def left_s(self) -> float | None:
        """Give how long what is gathered may wait yet, in seconds; None where nothing is."""
        return self._gathering.left_s

    def keeps_back(self, up: str, node: Stage | ForeachStage) -> bool:
        """Say whether a node upstream has ended and is not there; an edit in place matters to what may read it."""
        end = self.ends.get(up)
        return end is not None and not end.status.lets_pass and not (end.in_place and not may_see(node, end.paths))

    def stuck(self, name: str) -> tuple[str, ...]:
        """Return what keeps a stage back."""
        plan = self.committer.session.world.plan
        return tuple(up for up in plan.upstream[name] if self.keeps_back(up, plan.nodes[name]))

    def group(self, name: str) -> tuple[str, ...]:
        """Return what a stage is promoted with: of what belongs together that which was asked for and is not there."""
        together = self.committer.session.world.plan.promoted_with(name)
        asked = (other for other in together if other in self.walk.wanted)
        return tuple(other for other in asked if other not in self.ends or self.ends[other].is_waited_for)

    # ---- what the loop tells --------------------------------------------------------------

    def move(self, name: str, status: StageStatus) -> None:
        """Note how a stage goes on."""
        self._statuses[name] = moved(self._statuses.get(name, StageStatus.WAITING), status, name)

    def end(self, name: str, end: StageEnd) -> None:
        """Note and tell how a stage ended; nothing waits for it any more."""
        self.promote()
        self._end(name, end)

    def leave_out(self, name: str, status: StageStatus) -> None:
        """Note what nobody asked for, and nobody hears of."""
        self.move(name, status)
        self.ends[name] = StageEnd(status=status)
        self.walk.let_pass(name)

    def gather(self, success: Success) -> None:
        """Take a result that is soon made again; others see it already, and it is promoted before long."""
        name = success.resolved.stage.name
        self.move(name, StageStatus.GATHERED)
        self._gathering.add(success)
        self.narrator.gathered(name)
        self.walk.let_pass(name)

    def take(self, success: Success) -> None:
        """Promote a result, or hold it for the others of its group; who waits for it goes on.

        Raises:
            MissingBytesError: nobody has the bytes that it restores.

        """
        self.promote()
        self._take(success)

    def settle(self, *, idle: bool) -> bool:
        """Promote what is due, or all that is gathered if the loop has nothing else to do; say whether there was some.

        What was started does its work meanwhile.
        """
        return (idle or self._gathering.is_due) and self.promote()

    def promote(self) -> bool:
        """Promote all that is gathered, in one transaction if that can be; say whether there was some."""
        members = self._gathering.take()
        if not members:
            return False
        began = self.clock()
        ends = self._together.add_all(members)
        self._gathering.committed(self.clock() - began)
        for name, end in (ends or {}).items():
            self._end(name, end)
        for success in members.values() if ends is None else ():
            self._take(success)
        return True

    def complete_groups(self) -> None:
        """Promote each group of which all members are held."""
        self.promote()
        plan = self.committer.session.world.plan
        held = {plan.group_of(name): name for name in self._together.waiting}
        for name in held.values():
            for one, end in self._together.complete(self.group(name)).items():
                self._end(one, end)

    def close(self, rest: StageEnd) -> Mapping[str, StageEnd]:
        """End all that was asked for and has not ended, `rest` being how; return the ends, in the order of the plan."""
        self.promote()
        order = self.committer.session.world.plan.order
        for name in order:
            if name not in self.ends and name not in self._together.waiting and name in self.walk.wanted:
                self._end(name, rest)
        groups = {name: self.group(name) for name in self._together.waiting}
        for name, end in self._together.held_back(self.ends, groups).items():
            self._end(name, end)
        return {name: self.ends[name] for name in (*order, *self.ends) if name in self.ends}

    # ---- parts ----------------------------------------------------------------------------

    def _end(self, name: str, end: StageEnd) -> None:
        self.move(name, end.status)
        end = replace(end, paid=self.paid(name))
        self.ends[name] = end
        self.failed += end.status is StageStatus.FAILED
        self.walk.let_pass(name)
        self.narrator.ended(name, end, self.committer.session.lock.records.get(name))

    def _take(self, success: Success) -> None:
        name = success.resolved.stage.name
        stuck = self.stuck(name)  # by what was found only when it was to be promoted
        try:
            ends = {name: blocked_by(stuck)} if stuck else self._together.add(name, success, self.group(name))
        except MissingBytesError as lost:
            if success.how == "restored":
                raise
            ends = {name: lost_bytes(name, success.end.key, lost)}
        if name in self._together.waiting:
            self.move(name, StageStatus.HELD)
        for one, end in ends.items():
            self._end(one, end)
        self.walk.let_pass(name)
