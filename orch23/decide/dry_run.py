"""Predict what a build would do, without running or writing anything."""

from collections.abc import Callable, Container, Iterator, Mapping
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.decisions import DecidedStage, StageDecider
from orch23.decide.open_pipeline import OpenPipeline, with_users_files
from orch23.decide.ownership import check_left_out
from orch23.decide.plan_walk import (
    HeldBack,
    ItemsAdded,
    Kept,
    NextStep,
    NotExpanded,
    PassedOver,
    PlanWalk,
    Undecided,
    may_access,
)
from orch23.decide.project_state import ObsoleteFiles, ProjectState
from orch23.decide.protected_files import DeclaredByPlan
from orch23.decide.stage_view import files_at_stake
from orch23.model.errors import InvalidInputError
from orch23.model.paths import PatternSet, is_glob, match_any, with_folders
from orch23.model.pipeline import ForeachStage, Stage, family_of
from orch23.model.plan import Blocked, Decision, Edited, Expand, Fresh, Maybe, Plan, Restore, Run, VerifyOnly
from orch23.model.record import LockFile, Record, written_paths
from orch23.plan.nodes import Node, writes_of
from orch23.plan.planner import ALL_STAGES, Selection


def walk_through(
    decider: StageDecider,
    selection: Selection,
    blocks: Callable[[str, Node], bool],
    is_over: Callable[[], bool] = lambda: False,
    wake: Callable[[], None] = lambda: None,
) -> PlanWalk:
    """Return a walk through the plan of a state. With a shared cache, it looks results up before it decides stages.

    `wake` is called from any thread when `step` may have something to do again.
    """
    if decider.state.shared is None:
        return PlanWalk(decider, selection, blocks, is_over)
    from orch23.model.features import SHARED_CACHE, load_feature  # noqa: PLC0415 - most builds use no shared cache

    walk: PlanWalk = load_feature(SHARED_CACHE["walk"])(decider, selection, blocks, is_over, wake)
    return walk


class DryRun(Struct, dict=True):
    """Predicts a build: a stage that would run keeps its last result, marked as unsettled.

    `decided` are the decided stages as they were resolved. They need more memory than all else of a dry run, so they
    are kept only if it is a mapping.
    """

    decider: StageDecider
    selection: Selection = ALL_STAGES
    decided: dict[str, DecidedStage] | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)

    @property
    def unaffected(self) -> frozenset[str]:
        """The stages that were not decided, since nothing has affected them."""
        return self._walk.unaffected

    def run(self) -> Mapping[str, Decision]:
        """Decide all stages and return the decisions by node, in the order of the plan.

        Raises:
            InvalidInputError: a foreach over a file that no stage makes cannot be expanded.
            ConfigurationError: a tool is missing, or a plugin failed.
        """
        self._walk = walk_through(self.decider, self.selection, self._blocks)
        for step in self._walk:
            self._predict(step)
        wanted = self._walk.wanted
        return {name: self.decisions[name] for name in self.decider.state.plan.order if name in wanted}

    def _predict(self, step: NextStep) -> None:
        """Note a decision, and update the state as the build of the node would, as far as that is known."""
        match step:
            case Kept(name=name, record=record):
                self._note(name, Fresh(record))
            case PassedOver(name=name, record=record):
                self._note(name, Blocked(()) if record is None else Fresh(record))
            case HeldBack(name=name, by=by):
                node = self.decider.state.plan.nodes[name]
                self._unexpanded(node) if isinstance(node, ForeachStage) else self._note(name, Blocked(by))
            case Undecided(error=error):
                raise error
            case ItemsAdded():
                pass
            case NotExpanded(node=node, problems=()):
                self._unexpanded(node)
            case NotExpanded(problems=problems):
                raise InvalidInputError(*problems)
            case DecidedStage():
                self._predict_stage(step.resolved.stage.name, step)
            case never:
                assert_never(never)

    def _predict_stage(self, name: str, decided: DecidedStage) -> None:
        state = self.decider.state
        if decided.maybe_formatted:
            decided = replace(decided, decision=_maybe_edited(decided))
        match decided.decision:
            case Restore(record=record) | VerifyOnly(record=record, is_final=True):
                state.settle(name, record)
                # In the build, these files are on disk when downstream stages are decided.
                state.expected |= state.target(name, record)
            # The walk has settled these.
            case Fresh() | Edited(record=Record()):
                pass
            case _:
                self._keep_last(name)
        if self.decided is not None:
            self.decided[name] = decided
        self._note(name, decided.decision)

    def _blocks(self, up: str, node: Node) -> bool:
        """Return whether an upstream node is blocked, or edited where the node may read it."""
        match self.decisions.get(up):
            case Blocked():
                return True
            case Edited(paths=paths, record=record):
                return record is None or may_access(node, paths)
            case _:
                return False

    def _note(self, name: str, decision: Decision) -> None:
        self.decisions[name] = decision
        self._walk.release(name)

    def _keep_last(self, name: str) -> None:
        """Keep the last result of an unsettled stage."""
        state = self.decider.state
        if (record := state.lock.records.get(name)) is not None:
            state.settle(name, record)
        state.unsettled.add(name)

    def _unexpanded(self, node: ForeachStage) -> None:
        """Predict the last items of a foreach whose list is not known."""
        state = self.decider.state
        upstream = state.plan.upstream[node.name]
        stuck = tuple(up for up in upstream if self._blocks(up, node))
        items = [name for name in state.lock.records if name.startswith(f"{node.name}@")]
        for name in (*items, node.name):
            self._keep_last(name)
        waiting = tuple(up for up in upstream if up in state.unsettled)
        self._note(node.name, Blocked(stuck) if stuck else Expand(waiting, len(items), files_at_stake(state, node)))


class Preview(Struct, frozen=True, kw_only=True):
    """The decisions in the order of the plan, with the resolved stages.

    `obsolete` are the files that a green build would remove: those of ended stages, and those that newer results lack.
    `uncertain` are those that it removes unless a stage makes them again.
    `released` are those that stay, with the name of the stage; `skipped` are the stages that are switched off. `state`
    is that of the project after the decisions.
    """

    state: ProjectState
    decisions: Mapping[str, Decision]
    decided_stages: Mapping[str, DecidedStage]
    obsolete: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    released: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """The plan, with the items of all lists that are known."""
        return self.state.plan

    def unsettled(self, name: str) -> list[str]:
        """Return the stages before this one that may still change a file."""
        ups = self.plan.upstream.get(name, ())
        return [up for up in ups if not isinstance(self.decisions.get(up), Fresh | Restore | None)]


def _maybe_edited(decided: DecidedStage) -> Maybe:
    """Return the decision on a stage whose edited files a build compares with the result first: it runs the formatter.

    Without reasons the stage has nothing else to do.
    """
    decision = decided.decision
    paths = tuple(sorted({path for _, there in decided.maybe_formatted for path in there}))
    reasons = decision.reasons if isinstance(decision, Run) else ()
    return Maybe((), reasons, Edited(paths, getattr(decision, "record", None)))


def check_ownership(opened: OpenPipeline) -> None:
    """Refuse a pipeline that declares outputs which another pipeline of the project owns.

    Raises:
        InvalidInputError: with every such output.
    """
    state, earlier = opened.state, opened.decider.earlier
    own = frozenset[str]() if earlier is None else earlier.untouched(state.plan)
    problems = [
        replace(problem, location=state.plan.pipeline.locate("stages", stage.family, "outputs"), subject=None)
        for name, stage in state.plan.nodes.items()
        if isinstance(stage, Stage) and name not in own
        for problem in state.ownership_errors(stage.name, stage.literal_outputs)
    ]
    if problems:
        raise InvalidInputError(*problems)


def preview(opened: OpenPipeline, selection: Selection = ALL_STAGES) -> Preview:
    """Return what a build of the same selection would do.

    Raises:
        NotFoundError: a name is not a stage.
        InvalidInputError: a foreach over an existing file cannot be expanded.
    """
    selected = selection.nodes(opened.state.plan)
    check_left_out(opened.state.git, opened.pipeline, map(opened.state.plan.nodes.__getitem__, selected))
    check_ownership(opened)
    decided: dict[str, DecidedStage] = {}
    decisions, state = DryRun(opened.decider, selection, decided).run(), opened.state
    # With a shared cache, stages are decided as their lookups finish.
    decided = {name: decided[name] for name in state.plan.order if name in decided}
    removed, uncertain = removals(opened, decisions, decided, is_whole=selection.selects_all)
    has_all_items = selection.selects_all and not state.plan.unexpanded
    return Preview(
        state=state,
        decisions=decisions,
        decided_stages=decided,
        obsolete=removed,
        uncertain=uncertain,
        released=ObsoleteFiles(state).released() if has_all_items else {},
        skipped=selection.skipped(state.plan),
    )


def replan(
    opened: OpenPipeline, lock: LockFile, selection: Selection
) -> tuple[Mapping[str, Decision], ProjectState, frozenset[str]]:
    """Return the decisions of the next build of a selection, its state, and the stages that were not decided again.

    It keeps user edits and forces no stage. `lock` is the lock file that this build wrote.
    """
    before = opened.decider
    old = before.state
    # An edit since the last stage ended is a difference to the snapshot, for the next build.
    store, owned, done = with_users_files(opened.store.for_one_moment(continued=True), lock, old.plan, old.git)
    state = ProjectState(
        old.plan, store, owned, done=done, git=old.git, other_pipelines=old.other_pipelines, trusts_lock=old.trusts_lock
    )
    state.reads.update((node, reads) for node, reads in old.reads.items() if node in old.plan.expansions)
    written, kept = opened.store.workspace.written_paths, None
    if before.large:
        from orch23.decide.kept_stages import KeptStages  # noqa: PLC0415 - few stages have many inputs

        changed = with_folders(str(opened.store.root), written) | old.locked.paths()
        kept = KeptStages({**before.large}, {name: old.reads[name] for name in before.large}, changed)
    old.reads.clear()  # every stage is decided again, which notes the same paths
    decider = StageDecider(
        state,
        before.facts_of,
        before.sources,
        before.read_yaml,
        earlier=before.earlier and before.earlier.after(written),
        kept=kept,
    )
    dry_run = DryRun(decider, selection)
    return dry_run.run(), state, dry_run.unaffected


def removals(
    opened: OpenPipeline, decisions: Mapping[str, Decision], decided: Mapping[str, DecidedStage], *, is_whole: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that a green build removes, and those that it removes unless a stage makes them again.

    With `is_whole`, all stages of the pipeline are selected.
    """
    state = opened.state
    active = {n: d for n, d in decisions.items() if isinstance(d, Run | Maybe | VerifyOnly | Restore | Expand)}
    made, writes, lost = set[str](), list[str](), list[tuple[str, str]]()
    for name, one in active.items():
        node = state.plan.nodes[name]
        if isinstance(one, Restore) or (isinstance(one, VerifyOnly) and one.is_final):
            made.update(one.record.outputs)
            lost += [(name, path) for path in one.record.deleted]
            continue
        writes += writes_of(node)
        if isinstance(node, Stage):
            # The files of a failed attempt may be fewer.
            made.update(path for path in node.outputs if not is_glob(path) and node.on_failure != "keep")
            # Each file that `edits` match may be deleted: the plan shows the patterns.
            base = decided[name].resolved.base if node.fence.delete and not node.edits else ()
            lost += [(name, path) for path in base if match_any(node.fence.delete, path)]
    again = PatternSet(writes)
    for name in state.former:
        # Any item of a foreach that is not expanded may be made again.
        if name in active or family_of(name) in active:
            lost += [(name, path) for path in _left(state, name, state.former[name], active, made)]
    ended = ObsoleteFiles(state).replacements() if is_whole else ()
    if not (lost or ended):
        return (), ()
    may_replace, entry = opened.decider.may_replace, state.store.workspace.entry
    gone = {path for name, path in lost if (there := entry(path)) and may_replace(path, there, [name])} | {*ended}
    declared = DeclaredByPlan(opened)
    refused = {path for path in gone if entry(path) is not None and declared.refusal(path) is not None}
    # A renamed stage takes the files of its former name over. Protected names that no stage declares stay (ADR 26).
    paths = sorted(gone - made - refused)
    return tuple(p for p in paths if not again.contains(p)), tuple(p for p in paths if again.contains(p))


def _left(
    state: ProjectState, name: str, record: Record, active: Container[str], made: Container[str]
) -> Iterator[str]:
    """Yield the files of the last result of a stage that are gone if no stage makes them again."""
    left = [path for path in written_paths(record) if path not in made]
    target = state.target(name, replace(record, outputs={}, deleted=())) if left else {}
    for path in left:
        there, owners = state.store.workspace.entry(path), state.owners.get(path, ())
        # The version of an earlier item of a chain is not left if that item may leave the file out, too.
        is_left_by_all = all(one in active or family_of(one) in active for one in owners)
        is_left_by_all = is_left_by_all and state.known_originals.get(path) is None and path in target
        if target.get(path, there) is None or is_left_by_all:
            yield path
