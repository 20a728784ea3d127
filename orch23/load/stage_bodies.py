"""Read the stages of a pipeline: merge defaults, render variables, check foreach stages."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from orch23.language.document import CommonDocument, ForeachDocument
from orch23.language.expressions import (
    RenderedTree,
    members_used,
    node_at,
    possible_patterns,
    render_watched,
    uses_name,
)
from orch23.language.reading import (
    NO_NODES_BROKEN,
    NodeSet,
    independent_problems,
    is_missing_kind,
    is_misspelt,
    read_document,
)
from orch23.language.stage_fields import (
    PROMOTE_EACH,
    group_conflict,
    group_label,
    on_failure_conflict,
    read_group,
    read_item_group,
)
from orch23.language.stages import at_source, make_stage, placed_stage, render_foreach
from orch23.load.overrides import ModelOverrides, set_note
from orch23.load.value_errors import at_name, with_fix
from orch23.load.yaml_text import ParsedText
from orch23.model.diagnostic import Diagnostic, Location, Related, Severity, fix_of_hint
from orch23.model.digest import Json
from orch23.model.fields import Problem, Problems, given
from orch23.model.language import language_of, read_fields
from orch23.model.parsing import json_at
from orch23.model.pipeline import Foreach, ForeachStage, SkippedStage, Stage, definition_paths, source_path
from orch23.model.step import Step
from orch23.resolve.expression_syntax import UNKNOWN, ExpressionValue
from orch23.steps.registry import kinds_of

NOTHING_MOVED: Final[Mapping[str, str]] = {}


class LoadContext(Struct):
    """The context in which the stages of one text are read, and the diagnostics so far.

    `without_kind` are the mappings whose step kind is not known, because a plugin is not installed. `outside` are
    the vars that are set outside of the text, with their locations. `meant` are the keys that are probably
    meant by misspelt ones, each with its mapping.
    """

    parsed: ParsedText
    variables: Mapping[str, Json]
    broken: frozenset[str] = frozenset()
    overrides: ModelOverrides = field(default_factory=ModelOverrides)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    # A mistake under `defaults` would otherwise be reported for each stage.
    seen: set[tuple[str, str, Location | None]] = field(default_factory=set)
    broken_nodes: NodeSet = NO_NODES_BROKEN
    named_pools: list[tuple[str, str]] = field(default_factory=list)
    plugins: tuple[str, ...] = ()
    without_kind: Collection[str] = ()
    outside: Mapping[str, Location | None] = {}
    meant: Collection[tuple[str, str]] = ()

    def report(self, problem: Problem, subject: str | None = None, item: str = "") -> None:
        """Add the diagnostic of a problem at its location in the text, once. `item` is the path of its item, if any."""
        written, place = self._written(problem.path)
        same = (problem.code, problem.message, place)
        if same not in self.seen:
            self.seen.add(same)
            related = [*self._set_outside(written)]
            if item:
                above, place_of_item = self._written(item)
                shown = "this item" if above == item else "an item of this list"
                related += (Related(shown, place_of_item), *self._set_outside(above))
            found = Diagnostic(
                problem.code, problem.message, place, problem.hint, problem.severity, tuple(related), subject=subject
            )
            if place is not None and place.length > 1:
                found = replace(found, fix=fix_of_hint(self.parsed.text_at(place), problem.hint))
            if problem.name:
                found = at_name(found, self.parsed.text, problem.name, problem.near)
            elif problem.near and "${{" not in str(node_at(self.parsed.tree, written)):
                found = with_fix(found, self.parsed, (problem.near,), written)
            self.diagnostics.append(found)

    def render(self, tree: Json, at: str, *, item: str | None = None, defer: bool = False) -> RenderedTree:
        """Evaluate a tree with the vars. An item of this name is not known yet: its uses are watched, or deferred.

        Nodes that use a var without a value fail without an error, because the error of the var is reported already.
        """
        names: dict[str, ExpressionValue] = {"vars": self.variables}
        if item is not None:
            names[item] = UNKNOWN
        watch, later = (None, item) if defer else (item, None)
        return render_watched(tree, names, at, watch=watch, defer=later, lacking=self.broken)

    def report_all(
        self,
        problems: Iterable[Problem],
        moved: Mapping[str, str] = NOTHING_MOVED,
        subject: str | None = None,
        item: str = "",
    ) -> bool:
        """Report problems where their nodes are written; return whether one of them is an error.

        Problems that may follow from a broken node are left out, because its own errors are reported already; so are
        those of a step kind that a missing plugin may add.
        """
        found = at_source(problems, moved)
        for problem in self.broken_nodes.unaffected(found):
            is_consequence = is_missing_kind(problem.code, problem.path, self.without_kind)
            if not is_consequence and not is_misspelt(problem.code, problem.path, problem.message, self.meant):
                self.report(problem, subject, item)
        return any(problem.severity is Severity.ERROR for problem in found)

    def collect_pools(self, at: str, rendered: RenderedTree) -> None:
        """Remember the pools that a stage names, with their paths: pools are checked after all stages."""
        named = json_at(rendered.tree, "pools")
        for number, name in enumerate(named if isinstance(named, list | tuple) else ()):
            path = f"{at}/pools/{number}"
            if isinstance(name, str) and path not in rendered.unknown:
                self.named_pools.append((source_path(path, rendered.moved), name))

    def report_expression_errors(self, rendered: RenderedTree, lost: Callable[[str], bool] | None = None) -> bool:
        """Report the errors of a tree's expressions, without names that are `lost`; return whether a node failed."""
        for problem in rendered.errors:
            if lost is None or not lost(problem.name):
                self.report(problem)
        return bool(rendered.failed)

    def lost_names(self, foreach: Json, at: str) -> Callable[[str], bool]:
        """Return whether a name may be the one of the items that broken keys of a foreach do not define."""
        is_broken, is_name_broken = self.broken_nodes.touches(at), self.broken_nodes.touches(f"{at}/as")
        # `AS: task` is an unknown key.
        written = [*foreach.values()] if isinstance(foreach, Mapping) else []
        return lambda name: name.isidentifier() and (is_name_broken or (is_broken and name in written))

    def _written(self, path: str) -> tuple[str, Location | None]:
        """Return path and location at which a node, or its nearest ancestor, is written, also under `defaults`."""
        keys, values = self.parsed.key_positions, self.parsed.positions
        for one, is_above in definition_paths(path.split("/"), values):
            if place := (keys.get(one) if is_above else None) or values.get(one):
                return one, place
        return "", self.parsed.location_of("")

    def _set_outside(self, path: str) -> Iterator[Related]:
        """Yield the vars of the expression at a path that are set outside of the pipeline, and where."""
        # A value of `--set` is checked where a stage uses it: the error there must say where the value came from.
        text = node_at(self.parsed.tree, path) if self.outside else None
        for name in sorted(members_used(text, "vars") & self.outside.keys()) if isinstance(text, str) else ():
            yield set_note(name, self.outside[name])


def read_stage(
    name: str, raw: Mapping[str, Json], defaults: Json, context: LoadContext
) -> Stage | ForeachStage | SkippedStage | None:
    """Return one declared stage, or None and report all of its errors."""
    body = _with_defaults(raw, defaults, context.plugins)
    if "foreach" in body:
        return _read_foreach(name, body, context)
    rendered = context.render(body, f"stages/{name}")
    context.report_expression_errors(rendered)
    rendered = context.overrides.apply(name, rendered)
    tree = cast("Mapping[str, Json]", rendered.tree)
    built = make_stage(name, tree, unknown=rendered.failed, plugins=context.plugins)
    context.report_all(built.problems, rendered.moved)
    if built.skipped is not None:
        condition = raw.get("if")
        return replace(built.skipped, condition=condition if isinstance(condition, str) else "false")
    context.collect_pools(f"stages/{name}", rendered)
    return built.stage and placed_stage(built.stage, rendered.moved)


def _with_defaults(raw: Mapping[str, Json], defaults: Json, plugins: tuple[str, ...] = ()) -> Mapping[str, Json]:
    """Return a stage merged with the defaults; the stage wins. Those of a step kind are for stages of this kind.

    `format` is for stages that call a model.
    """
    if not isinstance(defaults, Mapping):
        return raw
    kinds = kinds_of(plugins)
    usable = {key: value for key, value in defaults.items() if key in raw or key not in kinds}
    if "format" in usable and "format" not in raw and not any(kinds[key].asks_model for key in raw if key in kinds):
        del usable["format"]
    written = dict(raw)
    for key, step in raw.items():
        if key in kinds and isinstance(usable.get(key), Mapping) and isinstance(step, list | tuple):
            # A list abbreviates a mapping, into which the defaults merge.
            short = language_of(kinds[key]).short
            written[key] = {short: step} if short else step
    return _merge(usable, written)


def _merge(below: Mapping[str, Json], above: Mapping[str, Json]) -> dict[str, Json]:
    # Only mappings merge: a list of the stage replaces the default list.
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        out[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return out


def _read_foreach(name: str, body: Mapping[str, Json], context: LoadContext) -> ForeachStage | SkippedStage | None:
    """Return a foreach, or None and report all of its errors. Keys that all items share are checked without items."""
    at = f"stages/{name}"
    rest = {key: value for key, value in body.items() if key not in ("foreach", "promote")}
    foreach, group, is_sound = _read_header(at, body, context)
    unknown = context.render(rest, at, item=foreach.name)
    if json_at(body, "foreach", "as") not in (None, foreach.name):  # it is refused, so the name is not known
        foreach = replace(foreach, values=())
        own = tuple(one for one in unknown.errors if not one.name or one.name.startswith("vars."))
        unknown = replace(unknown, errors=own)
    on_failure = cast("Mapping[str, Json]", unknown.tree).get("on_failure")
    conflict = on_failure_conflict(group_label(foreach, group), on_failure, at)
    failed = [
        not is_sound,
        context.report_expression_errors(unknown, context.lost_names(body["foreach"], f"{at}/foreach")),
        _report_item_uses(foreach, unknown, at, context),
        context.report_all(filter(None, (conflict,))),
    ]
    unknown = context.overrides.apply(name, unknown)
    body_left = context.overrides.apply(name, context.render(rest, at, item=foreach.name, defer=True))
    stage = _node(name, foreach, unknown, body_left, group, context)
    tree = cast("Mapping[str, Json]", unknown.tree)
    # The parts that do not depend on the item are checked like those of a stage.
    built = make_stage(name, tree, unknown=unknown.unknown, plugins=context.plugins)
    failed.append(context.report_all(built.problems, unknown.moved))
    is_off = not uses_name(rest.get("if"), foreach.name) and not Problems(at).condition("if", tree.get("if", True))
    failed.append(_report_item_errors(stage, body_left.failed, context, is_off=is_off))
    if any(failed):
        return None
    if is_off:
        written = body.get("if")
        condition = written if isinstance(written, str) else "false"
        off = SkippedStage(name=name, kind=stage.kind, desc=stage.desc, condition=condition)
        return replace(off, writes=stage.writes, promote=group)
    context.collect_pools(at, unknown)
    return stage


def _read_header(at: str, body: Mapping[str, Json], context: LoadContext) -> tuple[Foreach, str | None, bool]:
    """Return what is the same for all items, their promotion group, and whether there is no error: else a stand-in."""
    rendered = context.render(body["foreach"], f"{at}/foreach")
    failed = context.report_expression_errors(rendered)
    document, wrong = read_document(rendered.tree, ForeachDocument, f"{at}/foreach", rendered.failed)
    if document is None:  # it is not a mapping, or has expressions for keys
        document = ForeachDocument(values=())
    found = Problems(at)
    foreach, group_of_items = _foreach(document, found.below("foreach"))
    group = _group_of_stage(body, document, found, context) or group_of_items
    _check_item(body, foreach, found)
    problems = NodeSet.at(rendered.failed).unaffected((*wrong, *independent_problems(wrong, found.found)))
    is_broken = context.report_all(problems, rendered.moved)
    return foreach, group, not (failed or is_broken)


def _check_item(body: Mapping[str, Json], foreach: Foreach, problems: Problems) -> None:
    # `needs` makes edges of the graph, which is built before the items of a list in a file are known. Items may come
    # from a model, which may not decide that no user looks at its result.
    hints = {"needs": "use `foreach.needs`", "pools": "write names of pools out", "approve": "write `approve: true`"}
    for key, hint in hints.items():
        if uses_name(body.get(key), foreach.name):
            problems.add(key, "E857", f"an item may not decide `{key}`", hint)
    # A model may have written the items (ADR 12).
    if foreach.source is not None and uses_name(body.get("if"), foreach.name):
        hint = "leave items out of the list where it is made"
        problems.add("if", "E857", "an item of a file may not decide `if`", hint)


def _report_item_uses(foreach: Foreach, unknown: RenderedTree, at: str, context: LoadContext) -> bool:
    """Report where items of a file, which a model may have written, would decide a program or its code."""
    if foreach.source is None:
        return False
    from orch23.language.item_rules import foreach_template_errors  # noqa: PLC0415 - for lists in files only

    return context.report_all(foreach_template_errors(unknown.tree, unknown.watched, at), unknown.moved)


def _group_of_stage(
    body: Mapping[str, Json], header: ForeachDocument, problems: Problems, context: LoadContext
) -> str | None:
    """Return the promotion group that the stage names itself, the same for all items, so not part of their body."""
    if uses_name(body.get("promote"), header.name):
        hint = "all items belong to one group: write its name out"
        problems.add("promote", "E857", "an item may not decide `promote`", hint)
        return None
    rendered = context.render({"promote": body.get("promote")}, problems.path)
    if "promote" not in body or context.report_expression_errors(rendered):
        return None
    document, wrong = read_document(rendered.tree, CommonDocument, problems.path)
    if document is None or wrong:
        problems.found += wrong
        return None
    group = read_group(document.promote, problems)
    problems.found += filter(None, (group_conflict(group, given(header.promote, None), problems.path),))
    return group


def _foreach(document: ForeachDocument, at: Problems) -> tuple[Foreach, str | None]:
    source, pointer = None, ""
    if document.source is not UNSET:
        path, _, pointer = document.source.partition("#")
        source = at.path_at("from", path)
        if pointer and not pointer.startswith("/"):
            message = f"`{document.source}` does not point to a list"
            at.add("from", "E850", message, "write file.json#/field, or file.json")
    together, group = read_item_group(given(document.promote, PROMOTE_EACH))
    return Foreach(source=source, pointer=pointer, together=together, **read_fields(document, at)), group


def _node(
    name: str, foreach: Foreach, unknown: RenderedTree, body: RenderedTree, group: str | None, context: LoadContext
) -> ForeachStage:
    """Return the foreach as one node of the graph, with the patterns that its items may read and write.

    The patterns of `allowed_paths.write` replace the outputs, which are within them.
    """
    tree = cast("Mapping[str, Json]", unknown.tree)
    writes, edits = json_at(tree, "allowed_paths", "write"), _list(tree.get("edits"))
    kinds = kinds_of(context.plugins)
    # A missing step is reported elsewhere; `shell` only takes its place here.
    kind = next((kind for kind in kinds if kind in tree), "shell")
    step = kinds[kind]
    body_of_step = tree.get(kind)
    named = [json_at(body_of_step, key) for key in step.output_keys]
    looked_at = [one for key in (("explore",), ("explore", "files")) for one in _list(json_at(tree, *key))]
    read = (*_list(tree.get("inputs")), *looked_at, *_verified(tree.get("verify")))
    return ForeachStage(
        name=name,
        foreach=foreach,
        body=cast("Mapping[str, Json]", body.tree),
        moved=body.moved,
        kind=kind,
        needs=tuple(need for need in _list(tree.get("needs")) if isinstance(need, str)),
        reads=possible_patterns((*read, *_files(tree, kind, step), *step.inputs_of(body_of_step))),
        writes=possible_patterns(
            [*_list(tree.get("outputs")), *named, *edits] if writes is None else [*_list(writes), *edits]
        ),
        promote=group,
        starts_processes=step.starts_processes,
        uses_network=step.network_of(body_of_step),
        plugins=context.plugins,
    )


def _list(value: Json) -> Sequence[Json]:
    """Return a list; a string is one entry: an expression of the item may stand for the whole list."""
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, Sequence) else ()


def _verified(verify: Json) -> list[Json]:
    whole = verify if isinstance(verify, Mapping) else {"steps": verify}
    bodies = [step.get("commands") for step in _list(whole.get("steps")) if isinstance(step, Mapping)]
    sources = [body.get("from") for body in bodies if isinstance(body, Mapping)]
    return [*_list(whole.get("inputs")), *(one for one in sources if isinstance(one, str) and "#" in one)]


def _files(tree: Mapping[str, Json], kind: str, step: type[Step]) -> list[Json]:
    """Return the files of the author that a step reads itself, and the prompt of later attempts."""
    written = tree.get(kind)
    body = written if isinstance(written, Mapping) else {language_of(step).short: written}
    found = (*(body.get(key) for key in step.author_keys), json_at(tree, "retry", "prompt"))
    return [one for one in found if isinstance(one, str)]


def _report_item_errors(stage: ForeachStage, failed: frozenset[str], context: LoadContext, *, is_off: bool) -> bool:
    """Report the errors of a list that is written in the pipeline; `failed` nodes are reported already.

    The items of a foreach that `if` switches off are checked as if it were on. Return whether there is an error.
    """
    if is_off:
        stage = replace(stage, body={key: value for key, value in stage.body.items() if key != "if"})
    # The list is known, so its errors are reported when the pipeline is loaded, not when the foreach is expanded. Keys
    # are checked then: here they are names for messages.
    items: list[tuple[str, Json]] = []
    field = stage.foreach.key
    for number, value in enumerate(stage.foreach.values):
        key = value.get(field) if isinstance(value, Mapping) and field is not None else value
        items.append((str(key if isinstance(key, str | int | float) else number), value))
    built = render_foreach(stage, items, context.variables, failed)
    found = [
        context.report_all(one.problems, subject=f"{stage.name}@{key}", item=f"stages/{stage.name}/foreach/in/{number}")
        for number, ((key, _), one) in enumerate(zip(items, built, strict=True))
    ]
    return any(found)
