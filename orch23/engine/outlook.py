"""Go through a plan in its order, expand what can be expanded, decide each stage."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from orch23.engine.appraise import Appraised, Appraiser
from orch23.model.decision import Blocked, Decision, Edited, Expand, Fresh, Maybe, Restore, Run, Skipped, VerifyOnly
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.errors import InvalidInputError, MissingBytesError
from orch23.model.paths import match_any, meets
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.plan.graph import extend
from orch23.plan.reads import reads_of
from orch23.plan.select import EVERYTHING, Selection
from orch23.plan.writers import writes_of
from orch23.store.workspace import reads_into

if TYPE_CHECKING:
    from orch23.resolve.expand import Expansion


class Outlook(Struct):
    """What is to be done with each stage, in plan order, as far as can be known without running anything.

    `note` is given each stage as it was resolved, by its name.
    """

    appraiser: Appraiser
    selection: Selection = EVERYTHING
    note: Callable[[str, Appraised], None] = lambda _name, _appraised: None
    decisions: dict[str, Decision] = field(default_factory=dict)

    def look(self) -> Mapping[str, Decision]:
        """Decide everything and return the decisions by node, in the order of the plan.

        Raises:
            InvalidInputError: a foreach over a file that nobody makes cannot be expanded.

        """
        world = self.appraiser.world
        while not self._look_at(world.plan):
            pass
        wanted = self.selection.nodes(world.plan)
        return {name: self.decisions[name] for name in world.plan.order if name in wanted}

    def _look_at(self, plan: Plan) -> bool:
        """Decide what is open in a plan, in its order; say whether all is decided, or the plan was extended."""
        wanted = self.selection.nodes(plan)
        for name in plan.order:
            node = plan.nodes[name]
            if name in self.decisions:
                continue
            if isinstance(node, ForeachStage):
                if self._try_expand(node):
                    return False
                self._predict_unexpanded(node)
            elif name in wanted:
                self._decide(node)
            else:
                self._pass_over(name)
        return True

    def _decide(self, stage: Stage) -> None:
        name, world = stage.name, self.appraiser.world
        stuck = self._stuck(name)
        if stuck and not self.appraiser.is_edited_chain(stage):
            self.decisions[name] = Blocked(stuck)
            return
        appraised = self.appraiser.appraise(name, need_intermediate=needs_intermediate(self.appraiser, stage))
        self.note(name, appraised)
        self.decisions[name] = appraised.decision
        match appraised.decision:
            case Fresh(record=record):
                world.settle(name, record)
            case Restore(record=record):
                world.settle(name, record)
                world.promised |= world.target(name, record)
            case VerifyOnly(record=record, is_final=True):
                world.settle(name, record)
                world.promised |= world.target(name, record)
            case Edited(record=record, paths=paths) if record is not None:
                world.settle(name, record)
                world.edited.update(paths)
            case VerifyOnly() | Run() | Maybe() | Expand() | Blocked() | Edited() | Skipped():
                predict(self.appraiser, name)

    def _pass_over(self, name: str) -> None:
        """Take a stage that is not asked for as its last record says."""
        record = self.appraiser.world.lock.records.get(name)
        self.decisions[name] = Blocked(()) if record is None else Fresh(record)
        if record is not None:
            self.appraiser.world.settle(name, record)

    def _try_expand(self, node: ForeachStage) -> bool:
        world = self.appraiser.world
        producers = source_producers(world.plan, node)
        if any(up in world.unsettled for up in producers) or self._stuck(node.name, producers):
            return False
        expansion = expand_now(self.appraiser, node)
        if expansion is None:
            return False
        if expansion.problems:
            raise InvalidInputError(*expansion.problems)
        plan, problems = extend(world.plan, {node.name: expansion.stages}, expansion.skipped)
        if plan is None:
            raise InvalidInputError(*problems)
        world.extend(plan)
        return True

    def _stuck(self, name: str, upstream: Collection[str] | None = None) -> tuple[str, ...]:
        """Return the stages upstream that keep a node from being decided; an edit in place only what may read it."""
        plan = self.appraiser.world.plan
        node, found = plan.nodes[name], []
        for up in plan.upstream[name] if upstream is None else upstream:
            match self.decisions.get(up):
                case Blocked():
                    found.append(up)
                case Edited(paths=paths, record=record) if record is None or may_see(node, paths):
                    found.append(up)
        return tuple(found)

    def _predict_unexpanded(self, node: ForeachStage) -> None:
        world = self.appraiser.world
        upstream = world.plan.upstream[node.name]
        stuck = self._stuck(node.name)
        items = [name for name in world.lock.records if name.partition("@")[0] == node.name and "@" in name]
        for name in items:
            world.settle(name, world.lock.records[name])
            world.unsettled.add(name)
        world.unsettled.add(node.name)
        waiting = tuple(u for u in upstream if u in world.unsettled)
        self.decisions[node.name] = Blocked(stuck) if stuck else Expand(waiting, len(items))


def may_see(node: Stage | ForeachStage, paths: Collection[str]) -> bool:
    """Return whether a node may read, write or start from one of these paths."""
    patterns = (*reads_of(node), *writes_of(node))
    return any(match_any(patterns, path) for path in paths)


def source_producers(plan: Plan, node: ForeachStage) -> tuple[str, ...]:
    """Return the stages that make the file a foreach runs over: it can be expanded when they are settled."""
    source = node.foreach.source
    if source is None:
        return ()
    return tuple(up for up in plan.upstream[node.name] if any(meets(w, source) for w in writes_of(plan.nodes[up])))


def needs_intermediate(appraiser: Appraiser, stage: Stage) -> bool:
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


def predict(appraiser: Appraiser, name: str) -> None:
    """Let a stage that is not settled stand with its last result, marked as such."""
    world = appraiser.world
    record = world.lock.records.get(name)
    if record is not None:
        world.settle(name, record)
    world.unsettled.add(name)


def expand_now(appraiser: Appraiser, node: ForeachStage) -> "Expansion | None":
    """Expand a foreach from what its source holds now; None where that cannot be read yet."""
    with reads_into(appraiser.world.reads.setdefault(node.name, set())):
        return _expand_now(appraiser, node)


def _expand_now(appraiser: Appraiser, node: ForeachStage) -> "Expansion | None":
    from orch23.resolve.expand import Expansion, expand  # noqa: PLC0415 - it loads the language of pipelines

    world = appraiser.world
    place = world.plan.pipeline.locate("stages", node.name, "foreach")
    text = None
    if node.foreach.source is not None:
        entry = world.view(node.name, node.foreach.source)
        if entry is None:
            return Expansion((), (_no_list(node.foreach.source, place, world.store.workspace.is_folder),))
        try:
            text = world.read(node.foreach.source, entry).decode("utf-8", errors="replace")
        except MissingBytesError:
            return None
    expansion = expand(node, text, variables=world.plan.pipeline.vars, read_yaml=appraiser.read_yaml, place=place)
    taken = items_on_pipeline(world.plan, node, expansion.stages)
    return Expansion((), (*expansion.problems, *taken)) if taken else expansion


def _no_list(source: str, place: Location | None, is_folder: Callable[[str], bool]) -> Diagnostic:
    if is_folder(source):
        return Diagnostic("E822", f"`{source}` is a folder", place, "name a file below it that holds the list")
    hint = "create it, or give it to the outputs of the stage that makes it"
    return Diagnostic("E822", f"`{source}` does not exist, and no stage makes it", place, hint)


def items_on_pipeline(plan: Plan, node: ForeachStage, items: tuple[Stage, ...]) -> tuple[Diagnostic, ...]:
    """Complain of items that would write the pipeline or its lock file: only its author may name these as outputs."""
    file = plan.pipeline.file
    own = [path for path in (file, f"{file.rpartition('.')[0]}.lock") if path not in node.writes]
    place = plan.pipeline.locate("stages", node.name, "foreach")
    return tuple(
        Diagnostic(
            "E858", f"the item names `{path}`: it is the pipeline itself", place, "correct the item", subject=item.name
        )
        for item in items
        for path in own
        if match_any(writes_of(item), path)
    )
