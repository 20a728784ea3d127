"""Build stages from rendered mappings, and report all of their problems."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from msgspec import UNSET, Struct
from msgspec.structs import replace

from orch23.language.document import AllowedPathsDocument, RetryDocument, StageDocument, VerifyDocument
from orch23.language.expressions import render_watched
from orch23.language.key_readers import read_attempts, read_depfile, read_explore
from orch23.language.pipeline_document import kinds_in_stage, stage_form
from orch23.language.reading import NO_NODES_BROKEN, NodeSet, independent_problems, read_document
from orch23.language.stage_fields import (
    group_label,
    on_failure_conflict,
    read_conditions,
    read_format,
    read_group,
    read_inputs,
    read_step,
    read_verify,
)
from orch23.model.action import LANDLOCK_TIER, NAMESPACES_TIER
from orch23.model.diagnostic import Severity
from orch23.model.digest import Json, is_identical
from orch23.model.fields import Problem, Problems, given, normalize_path
from orch23.model.file_policy import sealed_reason
from orch23.model.language import read_fields
from orch23.model.paths import is_glob, match, match_any, may_overlap
from orch23.model.pipeline import (
    ChainLink,
    CommandsStep,
    ForeachStage,
    Item,
    ListInput,
    OrderInput,
    PathInput,
    Retry,
    SkippedStage,
    SliceInput,
    Stage,
    WriteScope,
    source_path,
)
from orch23.model.step import ProcessStep, Step
from orch23.resolve.commands import missing_programs
from orch23.resolve.expression_syntax import UNKNOWN_MARK
from orch23.steps.registry import is_llm

_METRICS_SUFFIXES = (".json", ".yaml", ".yml")

# The stages of an earlier rendering, by name: none.
NO_STAGES: Mapping[str, Stage] = MappingProxyType({})


class _NoStep(Step, Struct, frozen=True):
    """The step of a stage whose own step is missing or broken."""


class BuiltStage(Struct, frozen=True):
    """A stage; None with errors, or if it is `skipped` by its `if`. `problems` has warnings of a valid stage too."""

    stage: Stage | None
    problems: tuple[Problem, ...] = ()
    skipped: SkippedStage | None = None


def make_stage(
    name: str,
    body: Mapping[str, Json],
    *,
    item: Item | None = None,
    chain: ChainLink | None = None,
    unknown: Collection[str] = (),
    plugins: tuple[str, ...] = (),
) -> BuiltStage:
    """Check and convert the body of one stage, with defaults merged and expressions evaluated.

    A single llm stage without a `chain` is a chain of one. An item is named `stage@key`; problems name the stage.
    `unknown` are nodes that depend on an item, or whose expression failed: with any, the rest of the body is checked,
    but no stage is returned. `plugins` are those of the pipeline.
    """
    open_nodes = NodeSet.at(unknown) if unknown else NO_NODES_BROKEN
    at = Problems(f"stages/{name.partition('@')[0]}")
    document, wrong = read_document(body, stage_form(kinds_in_stage(body, plugins)), at.path, unknown)
    if document is None:
        return BuiltStage(None, open_nodes.unaffected(wrong))
    step, edits = read_step(document, plugins, at), at.paths("edits", document.edits)
    step = step.with_edits(body.get(step.kind)) if edits and is_llm(step) else step
    usable = step or _NoStep()  # not returned: without a step there is an error
    named = map(OrderInput, usable.named_inputs)
    inputs = tuple(dict.fromkeys((*read_inputs(document.inputs, at.below("inputs")), *named)))
    outputs = tuple(dict.fromkeys((*_outputs(document.outputs, usable, at), *edits)))
    allowed = given(document.allowed_paths, AllowedPathsDocument())
    declared = read_fields(allowed, at.below("allowed_paths")) | ({"delete": edits} if edits else {})
    scope = WriteScope(**{"write": outputs, **declared})
    group = read_group(document.promote, at)
    stage = Stage(
        name=name,
        step=usable,
        inputs=inputs,
        outputs=outputs,
        edits=edits,
        fence=scope,
        format=read_format(document.format, plugins, at.below("format")),
        verify=read_verify(document.verify, plugins, at.below("verify")),
        requires=read_conditions(document.requires, at.below("requires")),
        ensures=read_conditions(document.ensures, at.below("ensures")),
        retry=_retry(document.retry, step, at),
        # Data from the network can differ at each run.
        cache=given(document.cache, not document.network),
        sandbox=document.sandbox != "off",
        min_tier=NAMESPACES_TIER if document.sandbox == NAMESPACES_TIER else LANDLOCK_TIER,
        promote=group,
        item=item,
        # A single llm stage, or one with `edits`, is a chain of one: it has a base, as an item of a chain has (ADR 19).
        chain=ChainLink(chain=name, index=0) if chain is None and (usable.asks_model or edits) else chain,
        moved=at.moved,
        **read_explore(at, "explore", document.explore),
        **read_depfile(at, "depfile", document.depfile),
        **read_fields(document, at),
    )
    holds = at.condition("if", document.if_)
    if not wrong:
        _check_together(document, stage, step, at, open_nodes)
    problems = open_nodes.unaffected((*wrong, *independent_problems(wrong, at.found)))
    broken = step is None or bool(unknown) or any(problem.severity is Severity.ERROR for problem in problems)
    # As if it were not declared, but its name stays known (ADR 12).
    if not broken and not holds:
        written = (*outputs, *scope.write)
        skipped = SkippedStage(name=name, kind=stage.kind, desc=stage.desc, writes=written, promote=group)
        return BuiltStage(None, problems, skipped)
    return BuiltStage(None if broken else stage, problems)


def _check_together(
    document: StageDocument, stage: Stage, step: Step | None, at: Problems, open_nodes: NodeSet
) -> None:
    """Report keys that contradict each other. If one key is broken, the others cannot be checked against it."""
    at.found += filter(None, (on_failure_conflict(stage.promote, stage.on_failure, at.path, approve=stage.approve),))
    _check_outputs(document, stage, step, at, open_nodes)
    for is_wrong, key, message, hint in _contradictions(document, stage, step):
        if is_wrong:
            at.add(key, "E856", message, hint)
    _check_shown(document, stage, at, open_nodes)
    _check_base_tests(stage, at, open_nodes)
    _check_metrics(document, stage, at, open_nodes)
    _check_own_inputs(stage, at)
    _check_own_commands(stage, at)
    _check_programs(document, stage, at)


def render_foreach(
    stage: ForeachStage,
    items: Sequence[tuple[str, Json]],
    variables: Mapping[str, Json],
    failed: Container[str] = (),
    former: Mapping[str, Stage] = NO_STAGES,
) -> tuple[BuiltStage, ...]:
    """Return the stage of each (key, value), in order; each with the errors of its rendering and checking.

    Values of a list in a file are data that a model may have written, so `item_rules` limits what they may decide.
    Values in the pipeline itself (`in`) have no such limits. `failed` are nodes of the body without a
    value: with any, no stage is returned, but all other errors are. `former` are stages that were returned earlier for
    the same foreach and variables, by name: those of equal items are returned again.
    """
    built: list[BuiltStage] = []
    # The index counts built items only: a skipped item has no place in the chain, as if it were not in the list.
    index = 0
    for key, value in items:
        known = former.get(f"{stage.name}@{key}")
        if known is not None and known.item is not None and is_identical(known.item.value, value):
            built.append(BuiltStage(known))
            continue
        names: dict[str, Json] = {"vars": variables, stage.foreach.name: value}
        skipped = _skipped_item(stage, key, names, failed)
        if skipped is not None:
            built.append(skipped)
            continue
        link = ChainLink(chain=stage.name, index=index) if stage.foreach.sequential else None
        index += 1
        built.append(_render_item(stage, Item(key=key, name=stage.foreach.name, value=value), names, link, failed))
    return tuple(built)


def _skipped_item(
    stage: ForeachStage, key: str, names: Mapping[str, Json], failed: Container[str]
) -> BuiltStage | None:
    """Return that an item is skipped, or what is wrong with its `if`: other expressions of a skipped item may fail."""
    at = f"stages/{stage.name}"
    rendered = render_watched({"if": stage.body.get("if", True)}, names, at, failed=failed)
    if rendered.failed or not isinstance(rendered.tree, Mapping):
        return BuiltStage(None, at_source(rendered.errors, stage.moved))
    problems = Problems(at)
    holds = problems.condition("if", rendered.tree["if"])
    if problems.found:
        return BuiltStage(None, tuple(problems.found))
    if holds:
        return None
    condition = str(stage.body.get("if"))
    written = SkippedStage(name=f"{stage.name}@{key}", kind=stage.kind, desc=stage.desc, condition=condition)
    return BuiltStage(None, skipped=written)


def _render_item(
    stage: ForeachStage, item: Item, names: Mapping[str, Json], link: ChainLink | None, failed: Container[str]
) -> BuiltStage:
    rendered = render_watched(stage.body, names, f"stages/{stage.name}", watch=item.name, failed=failed)
    body = cast("Mapping[str, Json]", rendered.tree)
    at = f"stages/{stage.name}"
    built = make_stage(
        f"{stage.name}@{item.key}", body, item=item, chain=link, unknown=rendered.failed, plugins=stage.plugins
    )
    conflict = on_failure_conflict(group_label(stage.foreach, stage.promote), body.get("on_failure"), at)
    refused: list[Problem] = []
    if stage.foreach.source is not None:
        from orch23.language.item_rules import item_errors  # noqa: PLC0415 - for lists in files only

        given_by_item = {path: source for path, source in rendered.watched.items() if path not in rendered.failed}
        refused += item_errors(body, given_by_item, at)
    refused += filter(None, (conflict,))
    if not (refused or built.problems or rendered.errors):
        return BuiltStage(built.stage and placed_stage(built.stage, rendered.moved, stage.moved))
    # A refused value may be invalid as well: a second error about the same node would only repeat the first.
    others = NodeSet.at(problem.path for problem in refused).unaffected(built.problems)
    errors = [problem for problem in others if problem.severity is Severity.ERROR]
    found = (*at_source(rendered.errors, stage.moved), *at_source((*refused, *errors), rendered.moved, stage.moved))
    return BuiltStage(None if found else built.stage, found)


def at_source(problems: Iterable[Problem], *moved: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return the problems at the paths where their nodes are written, undoing what each rendering moved."""
    for each in moved:
        problems = [replace(problem, path=source_path(problem.path, each)) for problem in problems]
    return tuple(problems)


def placed_stage(stage: Stage, *moved: Mapping[str, str]) -> Stage:
    """Return a stage that knows where its values are written, before each rendering moved them."""
    for each in filter(None, moved):
        stage = replace(stage, moved={**each, **{at: source_path(path, each) for at, path in stage.moved.items()}})
    return stage


def _outputs(texts: Sequence[str], step: Step, at: Problems) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for number, text in enumerate(texts):
        path = at.path_at(f"outputs/{number}", text, "place")
        if path is None:
            continue
        if path in found:
            at.add(f"outputs/{number}", "E853", f"the output `{path}` is listed twice", "remove one")
        found[path] = None
    return tuple(dict.fromkeys((*found, *step.named_outputs)))


def _check_metrics(document: StageDocument, stage: Stage, at: Problems, open_nodes: NodeSet) -> None:
    are_outputs_known = not open_nodes.touches(f"{at.path}/outputs")
    for number, path in enumerate(map(normalize_path, document.metrics)):
        key = f"metrics/{number}"
        if path not in stage.metrics:
            continue  # it is not a path, which is reported already
        if not path.endswith(_METRICS_SUFFIXES):
            hint = "write the values to a file that ends in .json, .yaml or .yml"
            at.add(key, "E863", f"the metrics file `{path}` is neither JSON nor YAML", hint)
        elif are_outputs_known and not match_any(stage.outputs, path):
            message = f"the metrics file `{path}` is not an output of this stage"
            at.add(key, "E863", message, "add it to `outputs`, or remove it from `metrics`")


def _check_outputs(document: StageDocument, stage: Stage, step: Step | None, at: Problems, open_nodes: NodeSet) -> None:
    may_write_more = open_nodes.touches(f"{at.path}/allowed_paths/write")
    _check_sealed(document, stage, at)
    for number, path in enumerate(stage.required_outputs):
        if UNKNOWN_MARK not in path:
            _check_output(stage.fence, path, at.below(f"outputs/{number}"), may_write_more=may_write_more)
    if step is not None and not stage.edits and not may_write_more and not open_nodes.touches(f"{at.path}/outputs"):
        step.check_outputs(stage.outputs, stage.fence.write, at)


def _contradictions(document: StageDocument, stage: Stage, step: Step | None) -> Iterator[tuple[object, str, str, str]]:
    """Yield conditions under which a key contradicts the step or another key, with the key, a message and a hint."""
    is_program, kind, edits = step is not None and not step.asks_model, stage.step.kind, stage.edits
    hint = "remove it, and run the program in the command of the stage"
    yield stage.format and is_program, "format", f"`format` is for llm stages, and this is a {kind} stage", hint
    hint = "remove it, or name the files in `inputs`"
    yield stage.explore and is_program, "explore", "`explore` is for llm stages", hint
    yield stage.depfile and kind != "shell", "depfile", "`depfile` is for shell stages", "remove it"
    message = f"a {kind} stage with `once` would replace your files when its task text changes"
    yield stage.once and is_program and not edits, "once", message, "name the files in `edits`, or remove `once`"
    message, hint = "`once` and `on_edit: rerun` contradict each other", "remove `once`, or write `on_edit: keep`"
    yield stage.once and stage.on_edit == "rerun", "once", message, hint
    if not edits:
        return
    hint = "remove it, or name the files in `outputs`"
    yield step is not None and not step.may_edit, "edits", "`edits` is for llm and shell stages", hint
    returns = step.returns if is_llm(step) else ""
    message = f"a response with `returns: {returns}` is one new file, and changes none of `edits`"
    hint = "write `returns: edits`, `files` or `blocks`, or use `outputs`"
    yield returns in ("json", "text", "code"), "llm/returns", message, hint
    for key in ("write", "delete"):
        message = f"`edits` and `allowed_paths.{key}` contradict each other: `edits` are the write scope"
        wrong = getattr(given(document.allowed_paths, AllowedPathsDocument()), key) not in (UNSET, ())
        yield wrong, f"allowed_paths/{key}", message, "move its patterns to `edits`, and remove the key"
    message = "`on_failure: keep` would leave files of yours as a failed attempt changed them"
    yield document.on_failure == "keep", "on_failure", message, "write `on_failure: rollback`"
    for number, path in enumerate(map(normalize_path, document.outputs)):
        pattern = next((one for one in edits if may_overlap(one, path)), None)
        message = f"the output `{path}` may be a file of `edits` (`{pattern}`)"
        yield pattern, f"outputs/{number}", message, "name each file in one of the two lists"


def _check_shown(document: StageDocument, stage: Stage, at: Problems, open_nodes: NodeSet) -> None:
    """Report patterns of `edits` of which the model sees no file: it can change only what it was shown."""
    if not stage.step.asks_model or any(open_nodes.touches(f"{at.path}/{key}") for key in ("inputs", "explore")):
        return
    named = (*(one for one in stage.edits if not is_glob(one)), *stage.explore)
    shown = (*named, *(one.pattern for one in stage.inputs if not isinstance(one, ListInput | OrderInput)))
    for number, path in enumerate(stage.edits):
        if is_glob(path) and UNKNOWN_MARK not in path and not any(may_overlap(path, one) for one in shown):
            message = f"the prompt shows no file of `{path}`, so the model cannot change one"
            hint = f"add `'{path}'` to `inputs`" if document.inputs else f"write `inputs: ['{path}']`"
            hint += f"; or write `explore: ['{path}']`: then the model finds the files" if not stage.explore else ""
            at.add(f"edits/{number}", "E856", message, hint)


def _check_base_tests(stage: Stage, at: Problems, open_nodes: NodeSet) -> None:
    """Report `fails_on_base` with which no result could pass: without a program, or with files that no result has."""
    steps = stage.verify.steps
    if stage.verify.fails_on_base and not any(isinstance(one, ProcessStep | CommandsStep) for one in steps):
        hint = "add a step that runs tests, as in `steps: [{pytest: {paths: [tests]}}]`"
        at.add("verify/fails_on_base", "E856", "`fails_on_base` has no program of `verify` that could fail", hint)
    if any(open_nodes.touches(f"{at.path}/{key}") for key in ("outputs", "edits", "allowed_paths")):
        return
    for number, path in enumerate(stage.verify.fails_on_base):
        if UNKNOWN_MARK not in path and not any(may_overlap(path, one) for one in (*stage.outputs, *stage.fence.write)):
            message = f"the stage cannot write a file that matches `{path}`, so no result could pass"
            way = "" if stage.edits else "name a test file in `outputs`; or, in place of `outputs`, "
            at.add(f"verify/fails_on_base/{number}", "E856", message, f"{way}add `{path}` to `edits`")


def _check_output(scope: WriteScope, path: str, at: Problems, *, may_write_more: bool) -> None:
    # A pattern covers a directory if it matches any file in it, at any depth: try a file and a nested file, with a
    # private-use character as their names, which no project has.
    probes = (f"{path}\ue000", f"{path}\ue000/\ue000") if path.endswith("/") else (path,)
    is_inside = path in scope.write or all(match_any(scope.write, probe) for probe in probes)
    if not is_inside and not may_write_more:
        hint = "add it to `allowed_paths.write`, or remove that key: then the outputs are the write scope"
        at.add("", "E851", f"the output `{path}` is outside of `allowed_paths.write`", hint)
    protecting = (pattern for pattern in scope.protect if all(match(pattern, probe) for probe in probes))
    if (pattern := next(protecting, None)) is not None:
        at.add("", "E852", f"the output `{path}` is under `protect` (`{pattern}`)", "remove one of the two")


def _check_sealed(document: StageDocument, stage: Stage, at: Problems) -> None:
    """Report each path that no stage may write, whatever it declares."""
    has_write = document.allowed_paths is not UNSET and document.allowed_paths.write is not UNSET
    declared = {
        "outputs": stage.required_outputs,
        "edits": stage.edits,
        "allowed_paths/write": stage.fence.write if has_write else (),  # else these are the outputs
        "allowed_paths/delete": () if stage.edits else stage.fence.delete,
    }
    for key, paths in declared.items():
        for number, path in enumerate(paths):
            # Each of these files can be used to run code or to forge results (ADR 26).
            if (reason := sealed_reason(path)) is not None:
                message = f"`{path}` cannot be declared: {reason}"
                at.add(f"{key}/{number}", "E852", message, "let the stage write elsewhere")


def _check_own_inputs(stage: Stage, at: Problems) -> None:
    """Report a stage that reads what it writes. An llm stage may: its inputs are the versions before it."""
    if stage.step.asks_model:
        return
    # Each run would change an input, and so make the next run necessary. Of a file that it edits, it reads the base.
    for number, one in enumerate(stage.inputs):
        if isinstance(one, PathInput | OrderInput | SliceInput) and match_any(stage.required_outputs, one.path):
            hint = "write the result to another file, or remove the input"
            written = at.moved.get(f"{at.path}/inputs/{number}", str(number)).rpartition("/")[2]
            at.add(f"inputs/{written}", "E854", f"the input `{one.path}` is also an output of this stage", hint)


def _check_own_commands(stage: Stage, at: Problems) -> None:
    """Report a stage that is verified by commands of its own result: it could choose commands that always succeed."""
    sources = (step.source for step in stage.verify.steps if isinstance(step, CommandsStep))
    for path in (source.path for source in sources if source is not None):
        if match_any((*stage.outputs, *stage.fence.write), path):
            hint = "let another stage make the list"
            at.add("verify", "E854", f"the commands come from `{path}`, an output of this stage", hint)


def _check_programs(document: StageDocument, stage: Stage, at: Problems) -> None:
    """Report a list whose program has a blank: it is a command line, or a list of them. A file of the stage may."""
    inside = "/steps" if isinstance(document.verify, VerifyDocument) else ""
    files = tuple(one.pattern for one in (*stage.inputs, *stage.verify.inputs))
    for where, message, hint in missing_programs(stage, lambda path: match_any(files, path)):
        key = "shell/0" if where or stage.step.kind == "shell" else "llm/command/0"
        below = where.replace("verify", f"verify{inside}")
        place = source_path(f"{at.path}/{below}", at.moved) if where else at.path
        at.found.append(Problem(f"{place}/{key}", "E812", message, hint))


def _retry(value: int | RetryDocument, step: Step | None, at: Problems) -> Retry:
    if isinstance(value, int):
        return Retry(max=read_attempts(at, "retry", value))
    below = at.below("retry")
    # `style` may be in the defaults of a pipeline, whose other stages do not use it.
    for key, is_given in (("prompt", value.prompt is not UNSET), ("escalate", bool(value.escalate))):
        if is_given and step is not None and not step.asks_model:
            below.add(key, "E856", f"`retry.{key}` is for llm stages", "remove it")
    return Retry(**read_fields(value, below))
