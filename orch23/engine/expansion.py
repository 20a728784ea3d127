"""Expand foreach stages: the one place where a list becomes items, and items become a plan."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from orch23.checks.registry import checks_of
from orch23.engine.unknown_names import unknown_check
from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import match, match_any, meets
from orch23.model.pipeline import CheckStep, ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.plan.graph import extend
from orch23.plan.writers import writes_of
from orch23.resolve.slices import YamlReader

if TYPE_CHECKING:
    from orch23.resolve.expand import Expansion

TextOf: TypeAlias = Callable[[Plan, ForeachStage], str | None]
"""Return the text of the file with the list of a foreach, or None if that is not known; a static list has no text."""


class Expanded(Struct, frozen=True):
    """What the expansion of one foreach gave: the plan with its items, or the plan without them and what is wrong."""

    node: ForeachStage
    plan: Plan
    items: tuple[Stage, ...]
    problems: tuple[Diagnostic, ...]


def expand_each(plan: Plan, text_of: TextOf, read_yaml: YamlReader) -> Iterator[Expanded]:
    """Expand the foreach stages of a plan one after the other, each in the plan that the one before it gave.

    One whose list is not known stays as it is, and is not among what this gives.
    """
    for node in plan.unexpanded:
        text = text_of(plan, node)
        if text is None:
            continue
        found = items_of(plan, node, text, read_yaml)
        more, problems = expanded(plan, {node.name: found})
        plan = plan if more is None else more
        yield Expanded(node, plan, found.stages if more is not None else (), problems)


def items_of(plan: Plan, node: ForeachStage, text: str | None, read_yaml: YamlReader) -> "Expansion":
    """Return the items of a foreach, or what is wrong with its list. A static list needs no text."""
    from orch23.resolve.expand import Expansion, expand  # noqa: PLC0415 - it loads the language of pipelines

    pipeline = plan.pipeline
    found = expand(node, text, variables=pipeline.vars, read_yaml=read_yaml, locate=pipeline.locate_written)
    wrong = (*_items_on_pipeline(plan, node, found.stages), *_unknown_checks(plan, node, found.stages))
    return Expansion((), (*found.problems, *wrong)) if wrong else found


def no_items(plan: Plan, node: ForeachStage, is_folder: Callable[[str], bool]) -> "Expansion":
    """Return the complaint about a foreach whose list is not there, and is made by no stage."""
    from orch23.resolve.expand import Expansion  # noqa: PLC0415 - it loads the language of pipelines

    source, place = node.foreach.source or "", plan.pipeline.locate("stages", node.name, "foreach")
    if is_folder(source):
        hint = "name a file below it that holds the list"
        return Expansion((), (Diagnostic("E822", f"`{source}` is a folder", place, hint),))
    hint = "create it, or give it to the outputs of the stage that makes it"
    return Expansion((), (Diagnostic("E822", f"`{source}` does not exist, and no stage makes it", place, hint),))


def expanded(plan: Plan, found: Mapping[str, "Expansion"]) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan with the items of these foreach stages, or what is wrong with it.

    All of it is ordered again, so several are expanded together where that can be.
    """
    problems = tuple(problem for one in found.values() for problem in one.problems)
    if problems:
        return None, problems
    off = [skipped for one in found.values() for skipped in one.skipped]
    return extend(plan, {name: one.stages for name, one in found.items()}, off)


def source_producers(plan: Plan, node: ForeachStage) -> tuple[str, ...]:
    """Return the stages that make the file a foreach runs over: it can be expanded when they are settled."""
    source = node.foreach.source
    if source is None:
        return ()
    return tuple(up for up in plan.upstream[node.name] if any(meets(w, source) for w in writes_of(plan.nodes[up])))


def _unknown_checks(plan: Plan, node: ForeachStage, items: tuple[Stage, ...]) -> tuple[Diagnostic, ...]:
    """Complain of checks that there are not, each once; an item may decide which one is named."""
    known = checks_of(plan.pipeline.plugins)
    inside = ("steps",) if isinstance(node.body.get("verify"), Mapping) else ()
    names: dict[str, int] = {}
    for item in items:
        for position, step in zip(item.verify.places, item.verify.steps, strict=True):
            if isinstance(step, CheckStep) and step.name not in known:
                names.setdefault(step.name, position)
    return tuple(
        unknown_check(plan.pipeline, node.name, ("verify", *inside, position), name) for name, position in names.items()
    )


def _items_on_pipeline(plan: Plan, node: ForeachStage, items: tuple[Stage, ...]) -> tuple[Diagnostic, ...]:
    """Complain of items that would write the pipeline or its lock file: only its author may name these as outputs."""
    file = plan.pipeline.file
    own = [path for path in (file, f"{file.rpartition('.')[0]}.lock") if path not in node.writes]
    return tuple(
        Diagnostic(
            "E858",
            f"the item names `{path}`: it is the pipeline itself",
            plan.pipeline.locate_written(f"stages/{node.name}/{_where_named(item, path)}"),
            "correct the item",
            subject=item.name,
        )
        for item in items
        for path in own
        if match_any(writes_of(item), path)
    )


def _where_named(item: Stage, path: str) -> str:
    """Return where in its stage an item names a path that it would write."""
    outputs = (f"outputs/{number}" for number, output in enumerate(item.outputs) if match(output, path))
    return next(outputs, "allowed_paths/write")
