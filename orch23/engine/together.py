"""Collect successful results until their promotion group is complete: a stage by itself, or all stages of a group."""

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.commit import Change, Committer
from orch23.engine.declared import unnamed_tools
from orch23.engine.ends import StageEnd, lost_bytes, stopped_by
from orch23.engine.narrator import Narrator
from orch23.model.errors import ExitCode, MissingBytesError
from orch23.model.record import Record
from orch23.model.stage_status import StageStatus
from orch23.resolve.resolution import Resolved
from orch23.store.promote import Promoted, refused_paths

Ends: TypeAlias = Mapping[str, StageEnd]
_MOST_NAMES = 3


class Success(Struct, frozen=True, kw_only=True):
    """A stage that is green but for its promotion. `how` its files come is told; what is fresh has none to come."""

    resolved: Resolved
    record: Record
    end: StageEnd
    how: Literal["promoted", "restored", "fresh"]


class Together(Struct):
    """Holds what is green until it is promoted with all that belongs to it. Only the loop thread calls this."""

    committer: Committer
    narrator: Narrator
    _waiting: dict[str, Success] = field(default_factory=dict)

    @property
    def waiting(self) -> Collection[str]:
        """Give the stages that are green and not promoted."""
        return self._waiting.keys()

    def add(self, name: str, success: Success, group: Collection[str]) -> Ends:
        """Take a success and promote its group if that is complete; return the ends that are known by that.

        Raises:
            MissingBytesError: nobody has its bytes any more; it is as if it had not come.

        """
        if len(group) == 1:
            members = {name: success}
            change = self._change(members)
            return _refused(members, change) or self._promote(members, change)
        if success.how != "fresh":
            self.committer.hold(name, success.record)
        self._waiting[name] = success
        missing = [other for other in group if other not in self._waiting]
        if missing:
            self.narrator.held(name, success.end.key, missing)
            return {}
        return self.complete(group)

    def complete(self, group: Collection[str]) -> Ends:
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

    def add_all(self, members: Mapping[str, Success]) -> Ends | None:
        """Promote what was gathered, in one transaction; None, and nothing is done, where one of them cannot be.

        Then they have to be added one after the other.
        """
        self.committer.make_last()
        change = self._change(members)
        try:
            return None if change.foreign or change.refused else self._promote(members, change)
        except MissingBytesError:
            return None

    def held_back(self, ends: Ends, groups: Mapping[str, Collection[str]]) -> Ends:
        """Return how all ended that waits in vain. What lock file and workspace hold already is fresh all the same."""
        found = {}
        for name, success in self._waiting.items():
            stands = success.how == "fresh" and self.committer.stands(name, success.record)
            red = {other: ends[other] for other in groups[name] if other in ends and not ends[other].is_green}
            found[name] = success.end if stands else _held(success.end, red)
        return found

    # ---- parts ----------------------------------------------------------------------------

    def _change(self, members: Mapping[str, Success]) -> Change:
        return self.committer.change({name: one.record for name, one in members.items() if one.how != "fresh"})

    def _promote(self, members: Mapping[str, Success], change: Change) -> Ends:
        promoted = self.committer.promote({name: one.record for name, one in members.items()}, change)
        ends = {}
        for name, one in members.items():
            own = _part(promoted, change.targets.get(name, {}))
            if one.how == "restored":
                self.narrator.restored(name, own)
            elif one.how == "promoted":
                self.narrator.promoted(name, "promoted", own)
            if one.how != "fresh":
                self.narrator.caution(name, unnamed_tools(self.committer.session.world.plan, name, own.written))
            ends[name] = _edited(one.end, own.foreign) if own.foreign else one.end
        return ends

    def _stuck(self, members: Mapping[str, Success], change: Change) -> Ends:
        """Return the ends of those that keep a group from being promoted: a person's files, and bytes that are lost."""
        stuck = {}
        for name, target in change.targets.items():
            foreign = tuple(path for path in change.foreign if path in target)
            try:
                own = {path: entry for path, entry in change.new.items() if path in target}
                self.committer.check(replace(change, new=own))
            except MissingBytesError as lost:
                stuck[name] = lost_bytes(name, members[name].end.key, lost)
            if foreign:
                stuck[name] = _edited(members[name].end, foreign)
        return stuck | _refused(members, change)


def _refused(members: Mapping[str, Success], change: Change) -> dict[str, StageEnd]:
    """Return the ends of those that want to change a protected path which no stage declares."""
    found = {}
    for name, target in change.targets.items():
        own = {path: reason for path, reason in change.refused.items() if path in target}
        if own:
            found[name] = stopped_by(members[name].end.key, *refused_paths(own), code=ExitCode.SAFETY)
    return found


def _part(promoted: Promoted, paths: Collection[str]) -> Promoted:
    """Return what a promotion did to some of its paths."""
    return Promoted(
        tuple(path for path in promoted.written if path in paths),
        tuple(path for path in promoted.removed if path in paths),
        tuple(path for path in promoted.foreign if path in paths),
    )


def _held(end: StageEnd, red: Ends) -> StageEnd:
    """Return the end of a stage that is held back by these: by those that failed or were edited, if any did."""
    by = [name for name, one in red.items() if one.status in (StageStatus.FAILED, StageStatus.EDITED)] or list(red)
    told = [f"{name} {red[name].status}" for name in by[:_MOST_NAMES]]
    more = f" and {len(by) - _MOST_NAMES} more" if len(by) > _MOST_NAMES else ""
    return replace(end, status=StageStatus.HELD, text=f"held back: {', '.join(told)}{more}", by=tuple(by))


def _edited(end: StageEnd, foreign: tuple[str, ...]) -> StageEnd:
    """Return the end of a stage of which somebody edited files meanwhile."""
    text = f"left as they are, since somebody edited them meanwhile: {', '.join(foreign)}"
    return StageEnd(status=StageStatus.EDITED, text=text, code=ExitCode.DECISION, key=end.key, paths=foreign)
