"""Predict what a build would do, without running or writing anything."""

import errno
import os
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.decisions import DecidedStage, StageDecider
from orch23.engine.outcomes import StageOutcome, stopped_by
from orch23.engine.ownership import check_left_out
from orch23.engine.plan_walk import (
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
from orch23.engine.project_state import ProjectState, written_paths
from orch23.engine.session import Session
from orch23.engine.stage_view import ObsoleteFiles, StageTree
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import InvalidInputError
from orch23.model.paths import PatternSet, is_glob, match_any, normalize_pattern, static_prefix
from orch23.model.pipeline import ForeachStage, Stage, family_of
from orch23.model.plan import Blocked, Decision, Edited, Expand, Fresh, Maybe, Plan, Restore, Run, VerifyOnly
from orch23.model.record import LockFile, Record
from orch23.plan.nodes import Node, writes_of
from orch23.plan.planner import ALL_STAGES, Selection
from orch23.store.safe_files import unsafe_path_error

if TYPE_CHECKING:
    from orch23.engine.shared_results import SharedResults


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
    from orch23.engine.shared_walk import SharedWalk  # noqa: PLC0415 - most builds use no shared cache

    return SharedWalk(decider, selection, blocks, is_over, wake)


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


def files_at_stake(state: ProjectState, node: ForeachStage, items: tuple[Stage, ...] = ()) -> tuple[str, ...]:
    """Return the files of the last items of a chain that are not, or in another form, among its new items."""
    values = {one.name: one.item and one.item.value for one in items}
    last = [record for name, record in state.former.items() if family_of(name) == node.name and node.foreach.sequential]
    gone = [one for one in last if one.stage not in values or values[one.stage] != one.manifest.get("item")]
    return tuple(sorted({path for record in gone for path in record.outputs}))


class Preview(Struct, frozen=True, kw_only=True):
    """The decisions in the order of the plan, with the resolved stages.

    `obsolete` are the files that a green build would remove: those of ended stages, and those that newer results lack.
    `uncertain` are those that it removes unless a stage makes them again.
    `released` are those that stay, with the name of the stage; `skipped` are the stages that are switched off. `shared`
    are the results in a shared cache. `failures` are the ends of stages that fail whatever models respond.
    """

    plan: Plan
    decisions: Mapping[str, Decision]
    decided_stages: Mapping[str, DecidedStage]
    obsolete: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    released: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    shared: "SharedResults | None" = None
    failures: Mapping[str, StageOutcome] = field(default_factory=dict)

    def unsettled(self, name: str) -> list[str]:
        """Return the stages before this one that may still change a file."""
        ups = self.plan.upstream.get(name, ())
        return [up for up in ups if not isinstance(self.decisions.get(up), Fresh | Restore | None)]


def check_ownership(session: Session) -> None:
    """Refuse a pipeline that declares outputs which another pipeline of the project owns.

    Raises:
        InvalidInputError: with every such output.

    """
    state, earlier = session.state, session.decider.earlier
    own = frozenset[str]() if earlier is None else earlier.untouched(state.plan)
    problems = [
        replace(problem, location=state.plan.pipeline.locate("stages", stage.family, "outputs"), subject=None)
        for name, stage in state.plan.nodes.items()
        if isinstance(stage, Stage) and name not in own
        for problem in state.ownership_errors(stage.name, stage.literal_outputs)
    ]
    if problems:
        raise InvalidInputError(*problems)


def preview(session: Session, selection: Selection = ALL_STAGES) -> Preview:
    """Return what a build of the same selection would do.

    Raises:
        NotFoundError: a name is not a stage.
        InvalidInputError: a foreach over an existing file cannot be expanded.

    """
    selected = selection.nodes(session.state.plan)
    check_left_out(session.state.git, session.pipeline, map(session.state.plan.nodes.__getitem__, selected))
    check_ownership(session)
    decided: dict[str, DecidedStage] = {}
    decisions, plan = DryRun(session.decider, selection, decided).run(), session.state.plan
    seen = Preview(
        plan=plan,
        decisions=decisions,
        # With a shared cache, stages are decided as their lookups finish.
        decided_stages={name: decided[name] for name in plan.order if name in decided},
        skipped=selection.skipped(plan),
        shared=session.state.shared,
    )
    removed, uncertain = _removals(session, seen, selection)
    released = ObsoleteFiles(session.state).released() if selection.selects_all and not plan.unexpanded else {}
    seen = replace(seen, obsolete=removed, uncertain=uncertain, released=released)
    failures = {name: errors for name in decisions if (errors := tuple(_failures(session.state, seen, name)))}
    keys = {name: decided[name].resolved.key if name in decided else "" for name in failures}
    ends = {name: stopped_by(keys[name], *errors) for name, errors in failures.items()}
    return replace(seen, failures={name: replace(end, kind="preflight") for name, end in ends.items()})


def _failures(state: ProjectState, seen: Preview, name: str) -> Iterator[Diagnostic]:
    """Yield the errors with which a stage will certainly fail: unmet conditions, and outputs that it cannot write."""
    decision, node = seen.decisions[name], seen.plan.nodes[name]
    found = list[tuple[Diagnostic, str]]()
    if isinstance(decision, Run | Maybe | Expand):
        found += ((error, "outputs") for error in place_errors(state, node))
    if isinstance(decision, Run) and isinstance(node, Stage) and node.requires:
        from orch23.engine.attempt import unmet_conditions, unmet_error  # noqa: PLC0415 - few stages have conditions

        made = PatternSet(path for up in seen.unsettled(name) for path in writes_of(seen.plan.nodes[up]))
        unmet = (one for one in unmet_conditions(seen.decided_stages[name].resolved) if not made.may_overlap(one.path))
        found += ((unmet_error(one, StageTree(state, name)), "requires") for one in unmet)
    for error, key in found:
        yield replace(error, location=seen.plan.pipeline.place_in(node, key), subject=name)


def place_errors(state: ProjectState, node: Stage | ForeachStage) -> Iterator[Diagnostic]:
    """Yield an error for each output of a node that cannot be written. A former output may be in the way of it."""
    base, former = Path(os.path.realpath(state.store.root)), state.former.get(node.name)
    for output in map(normalize_pattern, node.outputs if isinstance(node, Stage) else node.writes):
        place = base / (static_prefix(output) if is_glob(output) else output)
        there = next(filter(os.path.lexists, (place, *place.parents)))
        path, is_file = os.path.relpath(there, base), there == place and not is_glob(output)
        fault = 0 if os.access(there.parent if is_file else there, os.W_OK | os.X_OK) else errno.EACCES
        if os.path.realpath(there) != str(there):
            yield from unsafe_path_error(path).diagnostics
            continue
        if not (there.is_file() if is_file else there.is_dir()):
            own = former.outputs if former is not None else ()
            fault = 0 if any(PurePosixPath(one).is_relative_to(path) for one in own) else errno.EEXIST
        if fault:
            hint = "move away what is there, or give this user permission, or name another path"
            yield Diagnostic("E650", f"{os.strerror(fault)}: {path}", hint=f"no model was called; {hint}")


def certain_failures(state: ProjectState, look: Callable[[], Preview]) -> Mapping[str, StageOutcome]:
    """Return the `failures` of the preview if models are called. `look` is called if some path suggests that."""
    nodes, root = state.plan.nodes.values(), state.store.root
    if not any(node.kind == "llm" for node in nodes):
        return {}
    needs = (one for node in nodes if isinstance(node, Stage) for one in node.requires)
    is_unmet = any(os.path.lexists(root / one.path) == (one.kind == "file_absent") for one in needs)
    return look().failures if is_unmet or any(True for node in nodes for _ in place_errors(state, node)) else {}


def _removals(session: Session, seen: Preview, selection: Selection) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that a green build removes, and those that it removes unless a stage makes them again."""
    state = session.state
    active = {n: d for n, d in seen.decisions.items() if isinstance(d, Run | Maybe | VerifyOnly | Restore | Expand)}
    made, writes, lost = set[str](), list[str](), list[tuple[str, str]]()
    for name, one in active.items():
        node = seen.plan.nodes[name]
        if isinstance(one, Restore) or (isinstance(one, VerifyOnly) and one.is_final):
            made.update(one.record.outputs)
            lost += [(name, path) for path in one.record.deleted]
            continue
        writes += writes_of(node)
        if isinstance(node, Stage):
            # The files of a failed attempt may be fewer.
            made.update(path for path in node.outputs if not is_glob(path) and node.on_failure != "keep")
            base = seen.decided_stages[name].resolved.base if node.fence.delete else ()
            lost += [(name, path) for path in base if match_any(node.fence.delete, path)]
    again = PatternSet(writes)
    for name in state.former:
        # Of a foreach that is not expanded, any item may be made again.
        if name in active or family_of(name) in active:
            lost += [(name, path) for path in _left(state, name, state.former[name], active, made)]
    ended = ObsoleteFiles(state).replacements() if selection.selects_all else ()
    if not (lost or ended):
        return (), ()
    from orch23.engine.commit import Committer  # noqa: PLC0415 - it decides this in a build; few plans remove files

    committer, entry = Committer(session), state.store.workspace.entry
    gone = {path: None for name, path in lost if committer.may_replace(path, entry(path), [name]) and entry(path)}
    gone |= dict.fromkeys(ended)
    # A renamed stage takes the files of its former name over. Protected names that no stage declares stay (ADR 26).
    paths = sorted(gone.keys() - made - committer.refused(gone).keys())
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


class Replan(Struct, frozen=True):
    """The decisions of the next build, the state that it decides in, and the stages that were not decided again."""

    decisions: Mapping[str, Decision]
    state: ProjectState
    unaffected: frozenset[str]


def replan(session: Session, lock: LockFile, selection: Selection) -> Replan:
    """Return the decisions of the next build of a selection, which keeps user edits.

    `lock` is the lock file that this build wrote. Stages that this build forced are forced again: the
    result is stored for the same command line.
    """
    before = session.decider
    old = before.state
    state = ProjectState(
        old.plan,
        session.store.for_one_moment(),
        lock,
        git=old.git,
        other_pipelines=old.other_pipelines,
        trusts_lock=old.trusts_lock,
    )
    state.reads.update((node, reads) for node, reads in old.reads.items() if node in old.plan.expansions)
    decider = StageDecider(
        state,
        before.facts_of,
        before.sources,
        before.read_yaml,
        forced=before.forced,
        earlier=before.earlier and before.earlier.after(session.store.workspace.written_paths),
    )
    dry_run = DryRun(decider, selection)
    return Replan(dry_run.run(), state, dry_run.unaffected)
