"""Decide how a step uses the caches of tools, and verify that some stage fills them before."""

from collections.abc import Iterator
from pathlib import Path

from orch23.attempt.pytest_trust import TestTrust
from orch23.model.action import CacheMode
from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import match_any
from orch23.model.pipeline import Stage, family_of
from orch23.model.plan import Plan
from orch23.model.step import ProcessStep
from orch23.plan.nodes import reads_of
from orch23.plan.planner import closure, depends_on_model
from orch23.store.safe_files import list_folder


def used_caches(trust: TestTrust, stage: Stage, step: ProcessStep | None, *, verifies: bool) -> dict[str, object]:
    """Return the fields of an action about caches: only a stage's own step with the network fills them.

    If it sees files made by a model, it fills views, which count when the stage is promoted.
    """
    fills = stage.network and step == stage.step and not verifies
    is_trusted = fills and not _may_see_models(trust, stage)
    mode: CacheMode = "fill" if is_trusted else "read-only" if verifies else "view"
    owner = stage.name if fills and not is_trusted else ""
    return {"tool_caches": tuple(sorted(stage.tool_caches)), "cache_mode": mode, "views_of": owner}


def _may_see_models(trust: TestTrust, stage: Stage) -> bool:
    """Return whether a stage may read what a model made, also through stages of other pipelines."""
    plan, others = trust.plan, trust.state.other_pipelines
    before = closure({stage.name}, plan.all_upstream) & plan.all_nodes.keys()
    reads = tuple(pattern for name in before for pattern in reads_of(plan.all_nodes[name]))
    if depends_on_model(plan, stage.name):
        return True
    return others is not None and any(match_any(reads, path) for path in others.files_of_models())


def unfilled_errors(plan: Plan, folder: Path) -> Iterator[Diagnostic]:
    """Yield an error for each cache of a stage without the network that no stage before it fills.

    `folder` has the caches.
    """
    stages = [one for one in plan.nodes.values() if isinstance(one, Stage) and not one.network]
    for stage, cache in ((one, cache) for one in stages for cache in one.tool_caches):
        others = (one for one in plan.all_nodes.values() if isinstance(one, Stage) and cache in one.tool_caches)
        fillers = [one.family for one in others if one.network]
        hint = f"add a stage with `network: true` and `tool_caches: [{cache}]`, and name it in `needs` of this one"
        if fillers:
            hint = f"write `needs: [{', '.join((*stage.needs, fillers[0]))}]` in `{stage.family}`"
        before = map(family_of, closure({stage.name}, plan.all_upstream))
        # Another pipeline of the project may fill it.
        if {*before}.isdisjoint(fillers) and (fillers or not list_folder(folder / cache)):
            message = f"no stage before `{stage.family}` fills the tool cache `{cache}`"
            yield Diagnostic("E856", message, plan.pipeline.place_in(stage, "tool_caches"), hint=hint)
