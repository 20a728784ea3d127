"""Predict which files a build removes, by the decisions on its stages."""

from collections.abc import Container, Iterator, Mapping

from msgspec.structs import replace

from orch23.decide.decisions import DecidedStage
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.project_state import ProjectState, written_paths
from orch23.decide.protected_files import DeclaredByPlan
from orch23.decide.stage_view import ObsoleteFiles
from orch23.model.paths import PatternSet, is_glob, match_any
from orch23.model.pipeline import Stage, family_of
from orch23.model.plan import Decision, Expand, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Record
from orch23.plan.nodes import writes_of


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
            base = decided[name].resolved.base if node.fence.delete else ()
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
