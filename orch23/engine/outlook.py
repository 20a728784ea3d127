"""Say what is to be done with each stage, as far as can be known without running anything."""

from collections.abc import Mapping

from msgspec import Struct, field

from orch23.engine.appraise import Appraised, Appraiser
from orch23.engine.expansion import source_producers
from orch23.engine.walk import Walk, may_see
from orch23.model.decision import Blocked, Decision, Edited, Expand, Fresh, Restore, VerifyOnly
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, InvalidInputError
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.record import Record
from orch23.plan.select import EVERYTHING, Selection


class Outlook(Struct, dict=True):
    """A visitor that predicts: a stage that would run stands with its last result, marked as unsettled.

    `appraised` are the stages as they were resolved.
    """

    appraiser: Appraiser
    selection: Selection = EVERYTHING
    decisions: dict[str, Decision] = field(default_factory=dict)
    appraised: dict[str, Appraised] = field(default_factory=dict)

    def look(self) -> Mapping[str, Decision]:
        """Decide everything and return the decisions by node, in the order of the plan.

        Raises:
            InvalidInputError: a foreach over a file that nobody makes cannot be expanded.

        """
        self._walk = Walk(self.appraiser, self.selection, self)
        while self._walk.step():
            pass
        wanted = self._walk.wanted
        return {name: self.decisions[name] for name in self.appraiser.world.plan.order if name in wanted}

    # ---- as a visitor ---------------------------------------------------------------------

    def keeps_back(self, up: str, node: Stage | ForeachStage) -> bool:
        """Say so of what is blocked; of an edit in place only if the node may read it."""
        match self.decisions.get(up):
            case Blocked():
                return True
            case Edited(paths=paths, record=record):
                return record is None or may_see(node, paths)
            case _:
                return False

    def takes(self, name: str) -> bool:  # noqa: ARG002 - as a visitor
        """Decide every stage."""
        return True

    def can_expand(self, node: ForeachStage) -> bool:
        """Say so where nothing that makes the list would run; else predict the items of the last time."""
        world = self.appraiser.world
        if not any(up in world.unsettled for up in source_producers(world.plan, node)):
            return True
        self._unexpanded(node)
        return False

    def added(self, node: ForeachStage, items: tuple[Stage, ...]) -> None:
        """Do nothing: the walk goes on with the items."""

    def not_expanded(self, node: ForeachStage, problems: tuple[Diagnostic, ...]) -> None:
        """Predict the items of the last time where the list is lost.

        Raises:
            InvalidInputError: the list cannot be used.

        """
        if problems:
            raise InvalidInputError(*problems)
        self._unexpanded(node)

    def not_decided(self, name: str, error: ConfigurationError) -> None:  # noqa: ARG002 - as a visitor
        """Stop.

        Raises:
            ConfigurationError: what keeps the node from being decided.

        """
        raise error

    def blocked(self, name: str, by: tuple[str, ...]) -> None:
        """Take note of it."""
        node = self.appraiser.world.plan.nodes[name]
        if isinstance(node, ForeachStage):
            self._unexpanded(node)
        else:
            self._note(name, Blocked(by))

    def passed_over(self, name: str, record: Record | None) -> None:
        """Take its last record for today's result."""
        self._note(name, Blocked(()) if record is None else Fresh(record))

    def decided(self, name: str, appraised: Appraised) -> None:
        """Let the world be as it would be after the build of this stage, as far as that is known."""
        world = self.appraiser.world
        self.appraised[name] = appraised
        match appraised.decision:
            case Restore(record=record) | VerifyOnly(record=record, is_final=True):
                world.settle(name, record)
                world.promised |= world.target(name, record)
            case Fresh():
                pass
            case Edited(record=record) if record is not None:
                pass
            case _:
                self._predict(name)
        self._note(name, appraised.decision)

    # ---- parts ----------------------------------------------------------------------------

    def _note(self, name: str, decision: Decision) -> None:
        self.decisions[name] = decision
        self._walk.let_pass(name)

    def _predict(self, name: str) -> None:
        """Let a stage that is not settled stand with its last result, marked as such."""
        world = self.appraiser.world
        record = world.lock.records.get(name)
        if record is not None:
            world.settle(name, record)
        world.unsettled.add(name)

    def _unexpanded(self, node: ForeachStage) -> None:
        world = self.appraiser.world
        upstream = world.plan.upstream[node.name]
        stuck = tuple(up for up in upstream if self.keeps_back(up, node))
        items = [name for name in world.lock.records if name.partition("@")[0] == node.name and "@" in name]
        for name in items:
            world.settle(name, world.lock.records[name])
            world.unsettled.add(name)
        world.unsettled.add(node.name)
        waiting = tuple(up for up in upstream if up in world.unsettled)
        self._note(node.name, Blocked(stuck) if stuck else Expand(waiting, len(items)))
