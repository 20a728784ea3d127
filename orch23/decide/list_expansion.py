"""Expand the lists of a plan: the items of each foreach, or the errors of its list."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, did_you_mean, fix_of_hint
from orch23.model.parsing import YamlReader
from orch23.model.paths import match, match_any
from orch23.model.pipeline import CheckStep, ForeachStage, Pipeline, Stage, written_path
from orch23.model.plan import CompileCache, Plan
from orch23.plan.nodes import Node, WriterIndex, nodes_of, writes_of
from orch23.plan.planner import calls_model, extend_plan, unordered_plan
from orch23.resolve.resolution import never_sent_error

if TYPE_CHECKING:
    from orch23.language.expand import Expansion


def unknown_check_error(pipeline: Pipeline, node: Node, place: tuple[str | int, ...], name: str) -> Diagnostic | None:
    """Return the error that a step of `verify` names a check that does not exist; None if it exists."""
    from orch23.checks.registry import available_checks  # noqa: PLC0415 - few stages have checks

    if name in (known := available_checks(pipeline.plugins)):
        return None
    otherwise = f"the checks are: {', '.join(sorted(known))}"
    hint = did_you_mean(name, known, otherwise)
    where = pipeline.locate_written(written_path(node, *place, "check"))
    return Diagnostic(
        "E828", f"no check is named `{name}`", where, hint, fix=fix_of_hint(name, hint), otherwise=otherwise
    )


ReadList: TypeAlias = Callable[[Plan, ForeachStage, str], bytes | None]
"""Return the bytes of the file with the list of a foreach, or None if they are not known."""


FormerItems: TypeAlias = Callable[[ForeachStage], Mapping[str, Stage]]
"""Return items that were built earlier for the same foreach and the same vars, by name."""


def first_plan(
    pipeline: Pipeline,
    read: ReadList,
    read_yaml: YamlReader,
    former: FormerItems = lambda _: {},
    cache: CompileCache | None = None,
    is_folder: Callable[[str], bool] | None = None,
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan of a pipeline with the items of each list that no stage makes, or what is wrong with it.

    Its edges are those of the items. A list with errors stays as it is; its errors replace those of the graph. With
    `is_folder`, a missing list has an error.
    """
    plan = unordered_plan(pipeline, cache)
    found: dict[str, Expansion] = {}

    def more() -> Iterator[tuple[str, "Expansion"]]:
        sound = {name: one.stages for name, one in found.items() if not one.problems}
        writers = WriterIndex({node.name: node for node in nodes_of(pipeline, sound)})
        for node in (one for one in plan.unexpanded if one.name not in found):
            source = node.foreach.source
            is_made = source is not None and not {node.name}.issuperset(writers.writers_of(source))
            data = None if source is None or is_made else read(plan, node, source)
            if source is None or data is not None:
                yield node.name, items_of(plan, node, data, read_yaml, former(node))
            elif is_folder is not None and not is_made:
                yield node.name, missing_list(plan, node, is_folder)

    # Once the items of one list are known, another may turn out to be a file that no stage makes.
    while plan.unexpanded and (new := dict(more())):
        found |= new
    ordered, wrong = plan_with_items(plan, {name: one for name, one in found.items() if not one.problems})
    return ordered, tuple(problem for one in found.values() for problem in one.problems) or wrong


class Expanded(Struct, frozen=True):
    """The expansion of one foreach: the plan with its items, or the plan without them and the errors."""

    node: ForeachStage
    plan: Plan
    items: tuple[Stage, ...]
    problems: tuple[Diagnostic, ...]


def expand_each(
    plan: Plan, read: ReadList, read_yaml: YamlReader, former: FormerItems = lambda _: {}
) -> Iterator[Expanded]:
    """Expand the foreach stages with a list in a file one after the other, each in the plan of the one before it.

    One whose list is not known stays as it is and is not yielded.
    """
    for node in plan.unexpanded:
        data = None if node.foreach.source is None else read(plan, node, node.foreach.source)
        if data is None:
            continue
        found = items_of(plan, node, data, read_yaml, former(node))
        more, problems = plan_with_items(plan, {node.name: found})
        plan = plan if more is None else more
        yield Expanded(node, plan, found.stages if more is not None else (), problems)


def items_of(
    plan: Plan, node: ForeachStage, data: bytes | None, read_yaml: YamlReader, former: Mapping[str, Stage]
) -> "Expansion":
    """Return the items of a foreach, or the errors of its list, whose file has these bytes. A static list has none.

    `former` are items that were built earlier for the same foreach and the same vars, by name.
    """
    from orch23.language.expand import Expansion, expand  # noqa: PLC0415 - it loads the language of pipelines

    pipeline, source = plan.pipeline, node.foreach.source
    refused = never_sent_error(pipeline.never_send, source) if source and calls_model(node) else None
    if refused is not None:  # requests have texts of items
        return Expansion((), (replace(refused, location=pipeline.locate("stages", node.name, "foreach")),))
    text = None if data is None else data.decode("utf-8", errors="replace")
    found = expand(
        node, text, variables=pipeline.vars, read_yaml=read_yaml, locate=pipeline.locate_written, former=former
    )
    wrong = (*_items_on_pipeline(plan, node, found.stages), *_unknown_checks(plan, node, found.stages))
    return Expansion((), (*found.problems, *wrong)) if wrong else found


def missing_list(plan: Plan, node: ForeachStage, is_folder: Callable[[str], bool]) -> "Expansion":
    """Return the error of a foreach whose list does not exist and that no stage makes."""
    from orch23.language.expand import Expansion  # noqa: PLC0415 - it loads the language of pipelines

    source, place = node.foreach.source or "", plan.pipeline.locate("stages", node.name, "foreach")
    if is_folder(source):
        hint = "name a file below it that holds the list"
        return Expansion((), (Diagnostic("E822", f"`{source}` is a folder", place, hint),))
    hint = "create it, or add it to `outputs` of the stage that makes it"
    return Expansion((), (Diagnostic("E822", f"`{source}` does not exist, and no stage makes it", place, hint),))


def plan_with_items(plan: Plan, found: Mapping[str, "Expansion"]) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan with the items of these foreach stages, or its errors.

    Each expansion orders the whole plan again, so several are expanded at once where possible.
    """
    problems = tuple(problem for one in found.values() for problem in one.problems)
    if problems:
        return None, problems
    off = [skipped for one in found.values() for skipped in one.skipped]
    return extend_plan(plan, {name: one.stages for name, one in found.items()}, off)


def _unknown_checks(plan: Plan, node: ForeachStage, items: tuple[Stage, ...]) -> tuple[Diagnostic, ...]:
    """Return an error for each unknown check, once: the name may come from an item."""
    inside = ("steps",) if isinstance(node.body.get("verify"), Mapping) else ()
    names: dict[str, tuple[Stage, int]] = {}
    for item in items:
        for position, step in enumerate(item.verify.steps):
            if isinstance(step, CheckStep):
                names.setdefault(step.name, (item, position))
    found = (
        unknown_check_error(plan.pipeline, item, ("verify", *inside, position), name)
        for name, (item, position) in names.items()
    )
    return tuple(filter(None, found))


def _items_on_pipeline(plan: Plan, node: ForeachStage, items: tuple[Stage, ...]) -> tuple[Diagnostic, ...]:
    """Return an error for each item that would write the pipeline or its lock file: only the author may."""
    file = plan.pipeline.file
    # The items may come from a list that a model wrote: it must not rewrite the pipeline that controls it.
    own = [path for path in (file, f"{file.rpartition('.')[0]}.lock") if path not in node.writes]
    return tuple(
        Diagnostic(
            "E858",
            f"the item names `{path}`: it is the pipeline itself",
            plan.pipeline.locate_written(written_path(item, _where_named(item, path))),
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
