"""Decide how a step uses the caches of tools, and verify that some stage fills them before."""

from collections.abc import Iterator
from pathlib import Path

from orch23.model.action import CacheMode
from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import TOOL_CACHES_FOLDER
from orch23.model.pipeline import ForeachStage, Stage, family_of
from orch23.model.plan import Plan
from orch23.model.step import ProcessStep
from orch23.plan.nodes import WriterIndex, program_files_of, reads_of
from orch23.plan.planner import calls_model, closure
from orch23.store.safe_files import list_folder


def used_caches(plan: Plan, stage: Stage, step: ProcessStep | None, *, verifies: bool) -> dict[str, object]:
    """Return the fields of an action about caches: only a stage's own step with the network fills them.

    If it sees files made by a model, it fills views, which count when the stage is promoted.
    """
    fills = stage.network and step == stage.step and not verifies
    is_trusted = fills and not _sees_model_files(plan, stage)
    mode: CacheMode = "fill" if is_trusted else "read-only" if verifies else "view"
    owner = stage.name if fills and not is_trusted else ""
    return {"tool_caches": tuple(sorted(stage.tool_caches)), "cache_mode": mode, "views_of": owner}


def _sees_model_files(plan: Plan, stage: Stage) -> bool:
    """Return whether a stage calls a model, or reads what a stage made that does, also by way of others."""
    # Not by the edges: a plan of a part does not have those of all stages.
    nodes, writers = plan.all_nodes, WriterIndex(plan.all_nodes)
    lists = {one.name: one.foreach.source for one in plan.pipeline.stages if isinstance(one, ForeachStage)}
    found, left = {stage.name}, [stage.name]
    while left:
        node = nodes[left.pop()]
        if calls_model(node):
            return True
        read = (*reads_of(node), *program_files_of(node), *node.edits, lists.get(family_of(node.name)))
        makers = {maker for pattern in read if pattern for maker in writers.writers_of(pattern)} - found
        found |= makers
        left += makers
    return False


def unfilled_errors(plan: Plan, store: Path) -> Iterator[Diagnostic]:
    """Yield an error for each cache of a stage without the network that no stage before it fills."""
    stages = [one for one in plan.nodes.values() if isinstance(one, Stage) and one.tool_caches]
    for stage, cache in ((one, cache) for one in stages if not one.network for cache in one.tool_caches):
        fillers = [one.family for one in stages if one.network and cache in one.tool_caches]
        hint = f"add a stage with `network: true` and `tool_caches: [{cache}]`, and name it in `needs` of this one"
        if fillers:
            hint = f"write `needs: [{', '.join((*stage.needs, fillers[0]))}]` in `{stage.family}`"
        before = map(family_of, closure({stage.name}, plan.upstream))
        # Another pipeline of the project may fill it.
        if {*before}.isdisjoint(fillers) and (fillers or not list_folder(store.parent / TOOL_CACHES_FOLDER / cache)):
            message = f"no stage before `{stage.family}` fills the tool cache `{cache}`"
            yield Diagnostic("E856", message, plan.pipeline.place_in(stage, "tool_caches"), hint=hint)
