"""Write down which stage looked at what, so that the next build can begin with what an edit reaches."""

import itertools
from collections.abc import Mapping, Sequence
from typing import cast

from orch23.cli.part import Part
from orch23.cli.wiring import Project
from orch23.engine.build import Build
from orch23.load.pipeline import document_keys
from orch23.model.digest import Json
from orch23.model.manifest import identity_of
from orch23.model.paths import is_glob
from orch23.model.pipeline import ForeachStage, ListInput, Pipeline, Stage
from orch23.model.plan import Plan
from orch23.model.record import Record
from orch23.plan.writers import writes_of
from orch23.snapshot.ties import Tie, Ties, begins_with

FEWEST = 64
"""Of fewer stages all are decided each time: that is quick, and each is told of."""


def ties_of(project: Project, build: Build, records: Mapping[str, Record], began: Mapping[str, Json]) -> Ties | None:
    """Return what a project at rest is tied by; None where its stages cannot be told apart by their text.

    `records` are the results of the stages, `began` what the run says of itself.
    """
    plan, text = build.session.world.plan, project.loaded.sources[project.pipeline.file]
    part = project.settings.part
    if part is not None:
        return _renewed(project, part, plan, records, began)
    # What an edit reaches may be some stages of a promotion group only: with groups everything is decided each time.
    flat = not plan.groups and all(isinstance(stage, Stage) for stage in plan.pipeline.stages)
    flat = flat and build.options.selection.is_all
    lines = block_lines(plan.pipeline, text) if flat else None
    if lines is None or len(plan.order) <= FEWEST or project.loaded.warnings:
        return None
    numbers = {name: number for number, name in enumerate(plan.order)}
    rows = [_tie(project, plan, name, records[name], numbers, lines[name]) for name in plan.order]
    found = [row for row in rows if row is not None]
    skipped = [list(lines[name]) for name in plan.skipped]
    return _ties(project, found, began, skipped, text) if len(found) == len(rows) else None


def _renewed(
    project: Project, part: Part, plan: Plan, records: Mapping[str, Record], began: Mapping[str, Json]
) -> Ties | None:
    """Return the ties with those of the stages that were decided as they are now."""
    before = part.ties
    stages = list(before.stages)
    numbers = {stages[number].name: number for number in (*part.reach.reached, *part.reach.around)}
    for number in part.reach.reached:
        name = stages[number].name
        tie = _tie(project, plan, name, records[name], numbers, stages[number].lines)
        if tie is None:
            return None
        stages[number] = tie
    return _ties(project, stages, began, before.skipped, before.text)


def _ties(project: Project, stages: list[Tie], began: Mapping[str, Json], skipped: list[list[int]], text: str) -> Ties:
    kept, said = project.store.disk.records, cast("dict[str, object]", dict(began))
    return Ties(stages, newest=kept.newest, shelves=kept.shelves(), began=said, skipped=skipped, text=text)


def _tie(
    project: Project, plan: Plan, name: str, record: Record, numbers: Mapping[str, int], lines: Sequence[int]
) -> Tie | None:
    """Return what ties one stage; None where it needs what is no stage."""
    stage = plan.nodes[name]
    if isinstance(stage, ForeachStage) or any(need not in numbers for need in stage.needs):
        return None
    makes = sorted({*record.outputs, *record.deleted, *stage.outputs})
    kept = project.store.records
    known = {record.key, *(one.key for one in kept.by_identity(identity_of(record.manifest)))}
    known |= {one.key for path in makes for one in kept.owners(path)}
    alone = stage.chain is None or len(plan.chains[stage.chain.chain]) == 1
    listing = any(isinstance(one, ListInput) for one in (*stage.inputs, *stage.verify.inputs))
    return Tie(
        name=name,
        after=[numbers[up] for up in plan.upstream[name]],
        named=[numbers[need] for need in stage.needs],
        looked=sorted(project.store.workspace.asked_for().get(name, ())),
        makes=makes,
        keys=sorted(known),
        lines=list(lines),
        free=alone and not listing and name not in plan.above and not any(map(is_glob, writes_of(stage))),
    )


def block_lines(pipeline: Pipeline, text: str) -> Mapping[str, tuple[int, int]] | None:
    """Return the lines of each stage's text, from and up to, counted from 0; None where stages share a line.

    A stage ends where the next begins, or the next key of the file.
    """
    lines = text.split("\n")
    starts: dict[str, int] = {}
    for stage in (*pipeline.stages, *pipeline.skipped):
        place = pipeline.locate("stages", stage.name)
        if place is None or not begins_with(lines[place.line - 1], stage.name):
            return None
        starts[stage.name] = place.line - 1
    if len({_indent(lines[start]) for start in starts.values()}) != 1 or len(set(starts.values())) != len(starts):
        return None
    last = max(starts.values())
    keys = (place.line - 1 for place in document_keys(pipeline).values())
    ends = sorted({*starts.values(), *(line for line in keys if line > last), len(lines)})
    following = dict(itertools.pairwise(ends))
    return {name: (start, following[start]) for name, start in starts.items()}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
