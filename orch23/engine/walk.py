"""Go through a plan: expand what can be expanded, decide each stage, and hand the decision to a visitor."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from orch23.engine.appraise import Appraised, Appraiser
from orch23.engine.expansion import expanded, items_of, no_items, source_producers
from orch23.engine.frontier import Frontier
from orch23.model.decision import Edited, Fresh, Restore, VerifyOnly
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, MissingBytesError
from orch23.model.paths import match_any
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plugins import at_fault
from orch23.model.record import Record
from orch23.plan.reads import reads_of
from orch23.plan.select import Selection
from orch23.plan.writers import writes_of
from orch23.store.workspace import reads_into

if TYPE_CHECKING:
    from orch23.resolve.expand import Expansion


class Visitor(Protocol):
    """What is done with the nodes of a plan. Once others need not wait for a node any more, it tells the walk so."""

    def keeps_back(self, up: str, node: Stage | ForeachStage) -> bool:
        """Say whether a node upstream, as it stands now, keeps a node from being decided."""

    def takes(self, name: str) -> bool:
        """Say whether a stage is to be decided. If not, the visitor has dealt with it."""

    def can_expand(self, node: ForeachStage) -> bool:
        """Say whether the list of a foreach is as it will be. If not, the visitor has dealt with it."""

    def added(self, node: ForeachStage, items: tuple[Stage, ...]) -> None:
        """Hear that a foreach has these items; the plan of the world has them."""

    def not_expanded(self, node: ForeachStage, problems: tuple[Diagnostic, ...]) -> None:
        """Deal with a foreach whose list cannot be used; without problems its bytes are lost."""

    def not_decided(self, name: str, error: ConfigurationError) -> None:
        """Deal with a node that cannot be decided or expanded: a tool is missing, the code of a plugin failed."""

    def blocked(self, name: str, by: tuple[str, ...]) -> None:
        """Deal with a node that these upstream of it keep back."""

    def passed_over(self, name: str, record: Record | None) -> None:
        """Deal with a stage that was not asked for; if there is a record, its last result stands for it."""

    def decided(self, name: str, appraised: Appraised) -> None:
        """Deal with a decision. Of a stage that is fresh, or edited in place, the world has the result."""


class Walk:
    """One way through the plan of a world, in its order, as far as stages upstream are done.

    `wanted` are the nodes that were asked for.
    """

    def __init__(self, appraiser: Appraiser, selection: Selection, visitor: Visitor) -> None:
        """Begin before the first node."""
        self._appraiser, self._selection, self._visitor = appraiser, selection, visitor
        self._frontier = Frontier(appraiser.world.plan)
        self.wanted: Collection[str] = selection.nodes(appraiser.world.plan)

    def step(self) -> bool:
        """Deal with the next node that waits for nothing; False if there is none."""
        name = self._frontier.take()
        if name is None:
            return False
        plan = self._appraiser.world.plan
        node = plan.nodes[name]
        upstream = source_producers(plan, node) if isinstance(node, ForeachStage) else plan.upstream[name]
        stuck = tuple(up for up in upstream if self._visitor.keeps_back(up, node))
        if stuck and name not in self.wanted:
            self._visitor.passed_over(name, None)
        elif stuck and (isinstance(node, ForeachStage) or not self._appraiser.is_edited_chain(node)):
            self._visitor.blocked(name, stuck)
        elif isinstance(node, ForeachStage):
            self._expand(node)
        elif name not in self.wanted:
            self._pass_over(name)
        elif self._visitor.takes(name):
            self.decide(name)
        return True

    def decide(self, name: str) -> None:
        """Decide a stage, also once more."""
        world = self._appraiser.world
        stage = world.stage(name)
        try:
            appraised = self._appraiser.appraise(name, need_intermediate=_needs_intermediate(self._appraiser, stage))
        except (Exception, SystemExit) as error:
            fault = _fault(error)
            if fault is None:
                raise
            self._visitor.not_decided(name, fault)
            return
        match appraised.decision:
            case Fresh(record=record):
                world.settle(name, record)
            case Edited(record=record, paths=paths) if record is not None:
                world.settle(name, record)
                world.edited.update(paths)
            case _:
                pass
        self._visitor.decided(name, appraised)

    def let_pass(self, name: str) -> None:
        """Let what waits for a node wait no longer."""
        self._frontier.let_pass(name)

    def _pass_over(self, name: str) -> None:
        record = self._appraiser.world.lock.records.get(name)
        if record is not None:
            self._appraiser.world.settle(name, record)
        self._visitor.passed_over(name, record)

    def _expand(self, node: ForeachStage) -> None:
        if not self._visitor.can_expand(node):
            return
        world = self._appraiser.world
        try:
            found = expand_now(self._appraiser, node)
        except (Exception, SystemExit) as error:
            fault = _fault(error)
            if fault is None:
                raise
            self._visitor.not_decided(node.name, fault)
            return
        plan, problems = expanded(world.plan, {node.name: found}) if found is not None else (None, ())
        if plan is None or found is None:
            self._visitor.not_expanded(node, problems)
            return
        world.extend(plan)
        self.wanted = self._selection.nodes(plan)
        self._frontier.replan(plan)
        self._visitor.added(node, found.stages)


def _fault(error: Exception | SystemExit) -> ConfigurationError | None:
    """Return what keeps a node from being decided: something is missing, or a plugin's code failed; else None."""
    return error if isinstance(error, ConfigurationError) else at_fault(error)


def expand_now(appraiser: Appraiser, node: ForeachStage) -> "Expansion | None":
    """Return the items of a foreach from what its list holds now; None where the bytes of the list are lost."""
    world, source = appraiser.world, node.foreach.source
    with reads_into(world.reads.setdefault(node.name, set())):
        if source is None:
            return items_of(world.plan, node, None, appraiser.read_yaml)
        entry = world.view(node.name, source)
        if entry is None:
            return no_items(world.plan, node, world.store.workspace.is_folder)
        try:
            text = world.read(source, entry).decode("utf-8", errors="replace")
        except MissingBytesError:
            return None
        return items_of(world.plan, node, text, appraiser.read_yaml)


def may_see(node: Stage | ForeachStage, paths: Collection[str]) -> bool:
    """Return whether a node may read, write or start from one of these paths."""
    patterns = (*reads_of(node), *writes_of(node))
    return any(match_any(patterns, path) for path in paths)


def _needs_intermediate(appraiser: Appraiser, stage: Stage) -> bool:
    """Say whether a later item of the stage's chain has no record of today's key, so that earlier versions are needed.

    The chain is walked with today's records as far as they reach; the world is left as it was.
    """
    world = appraiser.world
    if stage.chain is None or len(world.plan.chains[stage.chain.chain]) == 1:
        return False
    if stage.chain.chain in appraiser.stale_chains:
        return appraiser.stale_chains[stage.chain.chain]
    walked: list[str] = []
    stale = False
    for name in world.plan.chains[stage.chain.chain][stage.chain.index :]:
        decision = appraiser.appraise(name).decision
        if not isinstance(decision, Fresh | Restore) and not (isinstance(decision, VerifyOnly) and decision.is_final):
            stale = True
            break
        world.settle(name, decision.record)
        walked.append(name)
    for name in walked:
        world.forget(name)
    appraiser.stale_chains[stage.chain.chain] = stale
    return stale
