"""Read the keys of a stage: inputs, limits, promotion, step, conditions, verification."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

from orch23.language.document import (
    Conditions,
    ConditionsDocument,
    FindingsDocument,
    FormatStepDocument,
    InputDocument,
    StageDocument,
    TestResultsDocument,
    VerifyDocument,
    VerifyStepDocument,
    VerifySteps,
)
from orch23.language.pipeline_document import PoolDocument, SettingsDocument
from orch23.model.action import TMPDIR_PLACE
from orch23.model.diagnostic import quoted_names
from orch23.model.fields import Problem, Problems, given
from orch23.model.language import ConditionKind, language_of
from orch23.model.paths import is_glob, match_any, may_overlap, normalize_pattern, split_slice
from orch23.model.pipeline import (
    CheckStep,
    CommandsStep,
    Condition,
    EnsuresStep,
    Foreach,
    GlobInput,
    Input,
    ListInput,
    PathInput,
    SliceInput,
    Verify,
)
from orch23.model.step import ProcessStep, Step, VerifyStep
from orch23.resolve.commands import read_commands
from orch23.resolve.expression_syntax import UNKNOWN_MARK, ExpressionValue
from orch23.steps.registry import kinds_of

if TYPE_CHECKING:
    from orch23.steps.shell.spec import ReportPlace


def read_inputs(entries: Sequence[str | InputDocument], at: Problems) -> tuple[Input, ...]:
    """Return the inputs of a list, each once.

    An entry `!PATTERN` removes files from the patterns and listings before it; entries after it may add them again.
    """
    found: list[Input] = []
    numbers: list[int] = []
    for number, entry in enumerate(entries):
        if isinstance(entry, str) and entry.startswith("!"):
            unknown = any(_is_unknown(one) for one in entries[:number])  # an item may give a pattern
            found = _without(at, str(number), entry, found, unknown=unknown)
        elif (value := _read(at, str(number), entry)) is not None:
            found.append(value)
            numbers.append(number)
    written = dict(zip(reversed(found), reversed(numbers), strict=True))  # of two equal inputs, the first is kept
    kept = tuple(dict.fromkeys(found))
    at.moved.update((f"{at.path}/{n}", f"{at.path}/{written[one]}") for n, one in enumerate(kept) if written[one] != n)
    return kept


def _is_unknown(entry: str | InputDocument) -> bool:
    texts = (entry,) if isinstance(entry, str) else (entry.path, entry.list)
    return any(isinstance(text, str) and UNKNOWN_MARK in text for text in texts)


def _without(at: Problems, key: str, entry: str, found: list[Input], *, unknown: bool) -> list[Input]:
    """Return the inputs with an exclusion added to those that it concerns, or report that it has no effect."""
    # An exclusion without effect is an error: before its pattern in the list, it would silently exclude nothing.
    exclude = _excluded(at, key, entry)
    if not exclude:
        return found
    literal = (one.path for one in found if isinstance(one, PathInput | SliceInput) and match_any(exclude, one.path))
    if (path := next(literal, None)) is not None:
        message = f"`{entry}` excludes `{path}`, which is listed before it as a single file"
        at.add(key, "E850", message, "remove one of the two")
        return found
    limited = [
        replace(one, exclude=(*one.exclude, *exclude))
        if isinstance(one, GlobInput | ListInput) and any(may_overlap(one.pattern, other) for other in exclude)
        else one
        for one in found
    ]
    if limited == found and not unknown:
        shown = quoted_names(one.pattern for one in found if isinstance(one, GlobInput | ListInput))
        message = f"`{entry}` excludes nothing: " + (f"{shown} cannot match it" if shown else "no pattern is before it")
        hint = f'write it after the pattern that it limits, or remove it; a file of this name is written "./{entry}"'
        at.add(key, "E850", message, hint)
    return limited


def _excluded(at: Problems, key: str, entry: str) -> tuple[str, ...]:
    text = entry.removeprefix("!")
    file, _ = split_slice(text)
    if file != text:
        hint = f'write "!{file}", or remove the slice from the list'
        at.add(key, "E850", f"`{entry}` excludes a slice; only whole files can be excluded", hint)
        return ()
    path = at.path_at(key, text, "pattern")
    if path is None:
        return ()
    # The path may name a directory.
    return (normalize_pattern(path),) if is_glob(path) else (path, f"{path}/**")


def _read(at: Problems, key: str, entry: str | InputDocument) -> Input | None:
    if isinstance(entry, str):
        return _of_text(at, key, entry, optional=False)
    below = at.below(key)
    if entry.list is not UNSET:
        for name in ("optional", "schema"):
            if getattr(entry, name) is not UNSET:
                below.add(name, "E802", f"unknown key `{name}` beside `list`", "a listing has no other key; remove it")
        pattern = below.path_at("list", entry.list, "pattern")
        return None if pattern is None else ListInput(normalize_pattern(pattern))
    if entry.path is UNSET:
        return None
    schema = below.file("schema", entry.schema)
    found = _of_text(below, "path", entry.path, optional=given(entry.optional, False))  # noqa: FBT003 - its default
    if isinstance(found, PathInput):
        return PathInput(found.path, optional=found.optional, schema=schema)
    if found is not None and schema is not None:
        hint = "name the file, without `#` or wildcard"
        below.add("schema", "E856", "a `schema` needs a literal file as `path`", hint)
    return found


def _of_text(at: Problems, key: str, text: str, *, optional: bool) -> Input | None:
    path, selector = split_slice(text)
    if path == text:
        found = at.path_at(key, path, "pattern")
        if found is None:
            return None
        if not is_glob(found):
            return PathInput(found, optional=optional)
        is_folder = found.endswith("/") and not is_glob(found.rstrip("/"))
        return GlobInput(normalize_pattern(found), folder=is_folder, optional=optional)
    literal = at.path_at(key, path)
    if literal is None:
        return None
    if not selector.strip() or "\n" in selector:
        hint = "write file.md#Heading, file.json#/pointer, file.py#def name or file.txt#L10-40"
        at.add(key, "E850", f"the slice `{text}` selects nothing", hint)
        return None
    return SliceInput(literal, selector.strip(), optional=optional)


def read_pools(settings: SettingsDocument, at: Problems) -> dict[str, Any]:
    """Return the fields of a Pipeline that `pools` sets: sizes, executors and resources, by pool."""
    found: dict[str, dict[str, Any]] = {"pools": {}, "pool_executors": {}, "pool_resources": {}}
    for name, pool in given(settings.pools, {}).items():
        if not isinstance(pool, PoolDocument):
            found["pools"][name] = pool
            continue
        below = at.below("pools").below(name)
        resources = {key: below.quantity(f"resources/{key}", value) for key, value in given(pool.resources, {}).items()}
        stated = {"pools": pool.size, "pool_executors": pool.executor, "pool_resources": resources or UNSET}
        for field, value in stated.items():
            if value is not UNSET:
                found[field][name] = value
        if not any(name in values for values in found.values()):
            below.add(
                "",
                "E812",
                "there is nothing in this pool",
                "write `size: 2`, `executor: dask` or `resources: {gpu: 1}`",
            )
    return found


PROMOTE_EACH, PROMOTE_TOGETHER = "each", "together"


def read_group(name: str, at: Problems) -> str | None:
    """Return the group that `promote` of a stage names, or None if the stage is promoted by itself."""
    if name == PROMOTE_TOGETHER:
        message = "`promote` of a stage names a group; `together` is for the items of a foreach"
        way = "write `promote: NAME` at each stage of the group, or `foreach: {promote: together}`"
        at.add("promote", "E812", message, way)
        return None
    return None if name == PROMOTE_EACH else name


def read_item_group(name: str) -> tuple[bool, str | None]:
    """Return whether `promote` of a foreach promotes its items together, and in which named group."""
    return name != PROMOTE_EACH, None if name in (PROMOTE_EACH, PROMOTE_TOGETHER) else name


def group_conflict(group: str | None, of_items: ExpressionValue, at: str) -> Problem | None:
    """Return an error if `foreach.promote` (`of_items`) contradicts `promote` of its stage."""
    if group is None or of_items in (None, PROMOTE_TOGETHER, group):
        return None
    message = f"`promote: {group}` and `foreach.promote: {of_items}` contradict each other"
    hint = f"remove `foreach.promote`: all items belong to group `{group}` then; or write `promote: each` at the stage"
    return Problem(f"{at}/foreach/promote", "E856", message, hint)


def on_failure_conflict(
    group: str | None, on_failure: ExpressionValue, at: str, *, approve: ExpressionValue = False
) -> Problem | None:
    """Return an error if files of a failed stage would reach the workspace without its group, or unapproved."""
    if on_failure != "keep" or (group is None and approve is not True):
        return None
    key = "foreach.promote: together" if group == PROMOTE_TOGETHER else f"promote: {group}"
    way = "promote each item by itself" if group == PROMOTE_TOGETHER else "remove the stage from the group"
    key, way = (key, way) if group is not None else ("approve: true", "remove `approve`")
    message = f"`on_failure: keep` and `{key}` contradict each other"
    return Problem(f"{at}/on_failure", "E856", message, f"write `on_failure: rollback`, or {way}")


def group_label(foreach: Foreach, group: str | None) -> str | None:
    """Return the group of a foreach's items, `together`, or None if each is promoted by itself."""
    return group or (PROMOTE_TOGETHER if foreach.together else None)


def read_step(document: StageDocument | VerifyStepDocument, plugins: tuple[str, ...], at: Problems) -> Step | None:
    """Return the step of a stage or of `verify`, or None with a problem."""
    name = next((name for name in document.exactly_one if getattr(document, name) is not UNSET), None)
    step = None if name is None else language_of(kinds_of(plugins)[name]).read(getattr(document, name), at)
    step = None if step is None else step.of_plugins(plugins)
    return _with_reports(step, document, at)


_REPORTS = ("test_results", "findings")


def _with_reports(step: Step | None, document: StageDocument | VerifyStepDocument, at: Problems) -> Step | None:
    """Return a shell step with the report that it names; report the keys at any other step."""
    for key in _REPORTS:
        if (declared := getattr(document, key)) is UNSET:
            continue
        from orch23.steps.shell.spec import ShellStep  # noqa: PLC0415 - few steps have reports

        if not isinstance(step, ShellStep):
            at.add(key, "E856", f"`{key}` is for shell steps", "remove it")
        elif step.report is not None:
            at.add(key, "E856", f"`{step.report.key}` and `{key}` contradict each other", "use a step for each")
        else:
            step = replace(step, report=_read_place(key, declared, at.below(key)))
    return _with_reruns(step, document, at) if document.reruns else step


def _with_reruns(step: Step | None, document: StageDocument | VerifyStepDocument, at: Problems) -> Step | None:
    """Return a step with its reruns; report the key where another run is not another verdict on the same files."""
    if not isinstance(step, ProcessStep):
        at.add("reruns", "E856", "`reruns` is for shell and pytest steps", "write it at such a step of `verify`")
    elif isinstance(document, StageDocument) and step.kind == "shell" and document.test_results is UNSET:
        hint = "name the results of its tests, use `retry`, or write `reruns` at a step of `verify`"
        at.add("reruns", "E856", "`reruns` of a shell stage needs `test_results`", hint)
    elif getattr(step, "must_fail", False):
        at.add("reruns", "E856", "`reruns` and `must_fail` contradict each other", "remove one of them")
    elif "reruns" in getattr(step, "__struct_fields__", ()):
        return replace(step, reruns=document.reruns)  # type: ignore[type-var] # it is a Struct
    return step


def _read_place(key: str, document: TestResultsDocument | FindingsDocument, at: Problems) -> "ReportPlace":
    from orch23.steps.shell.spec import STDOUT, ReportPlace  # noqa: PLC0415 - few steps have reports

    form = next(name for name in document.exactly_one or ("sarif",) if getattr(document, name) is not UNSET)
    place, line = getattr(document, form), given(getattr(document, "line", UNSET), "")
    if place != STDOUT:
        path = place.removeprefix(TMPDIR_PLACE)
        place = f"{TMPDIR_PLACE if path != place else ''}{at.path_at(form, path, 'pattern')}"
    if form != "regex":
        if line:
            at.add("line", "E856", "`line` belongs to `regex`", "remove it")
        return ReportPlace(key, form, place)
    from orch23.verdict.readers.regex import pattern_fault  # noqa: PLC0415 - likewise

    if not line:
        at.add("", "E810", "`line` is missing", "write a pattern with the groups `id` and `outcome`")
    elif (fault := pattern_fault(line)) is not None:
        at.add("line", "E812", f"`line` {fault}", "write a pattern such as '^(?P<outcome>ok|not ok) (?P<id>.+)'")
    return ReportPlace(key, form, place, line)


def read_conditions(value: Conditions, at: Problems) -> tuple[Condition, ...]:
    """Return `requires` or `ensures`: a mapping of kinds to paths, or a list of `{kind, path}`."""
    if not isinstance(value, ConditionsDocument):
        listed = [(one.kind, at.path_at(f"{number}/path", one.path)) for number, one in enumerate(value)]
        return tuple(Condition(kind, path) for kind, path in listed if path is not None)
    found: list[Condition] = []
    kinds: tuple[ConditionKind, ...] = ("file_exists", "file_absent")
    for kind in kinds:
        paths = given(getattr(value, kind), ())
        places = {kind: paths} if isinstance(paths, str) else {f"{kind}/{n}": path for n, path in enumerate(paths)}
        read = (at.path_at(place, path, "place") for place, path in places.items())
        found += [Condition(kind, path) for path in read if path is not None]
    return tuple(found)


def read_verify(value: VerifySteps | VerifyDocument, plugins: tuple[str, ...], at: Problems) -> Verify:
    """Return `verify`, a list of steps or a mapping with `steps`. Files with lists of commands are inputs of it."""
    if not isinstance(value, VerifyDocument):
        steps = _verify_steps(value, plugins, at)
        return Verify(steps, _sources(steps))
    steps = _verify_steps(value.steps, plugins, at.below("steps"))
    inputs = tuple(dict.fromkeys((*read_inputs(value.inputs, at.below("inputs")), *_sources(steps))))
    may_fail = ("*",) if value.may_fail == "base" else tuple(dict.fromkeys(value.may_fail))
    if may_fail and not any(isinstance(step, ProcessStep) for step in steps):
        at.add("may_fail", "E856", "no step of `verify` runs tests or a linter", "remove `may_fail`, or add the step")
    base_tests = at.paths("fails_on_base", value.fails_on_base)
    return Verify(steps, inputs, value.all, value.first, may_fail, base_tests)


def read_format(
    documents: Sequence[FormatStepDocument], plugins: tuple[str, ...], at: Problems
) -> tuple[VerifyStep, ...]:
    """Return the steps of `format`."""
    found: list[VerifyStep] = []
    for number, one in enumerate(documents):
        step: object = language_of(kinds_of(plugins)["shell"]).read(one.shell, at.below(number))
        found += [step] if isinstance(step, VerifyStep) else []
    return tuple(found)


def _sources(steps: Sequence[VerifyStep]) -> tuple[Input, ...]:
    return tuple(step.source for step in steps if isinstance(step, CommandsStep) and step.source is not None)


def _verify_steps(
    documents: Sequence[VerifyStepDocument], plugins: tuple[str, ...], at: Problems
) -> tuple[VerifyStep, ...]:
    found: list[VerifyStep] = []
    for number, document in enumerate(documents):
        below = at.below(number)
        step, holds = _verify_step(document, plugins, below), below.condition("if", document.if_)
        if step is not None and holds:
            at.moved |= {f"{at.path}/{len(found)}": below.path} if len(found) != number else {}
            found.append(step)
    return tuple(found)


def _verify_step(document: VerifyStepDocument, plugins: tuple[str, ...], at: Problems) -> VerifyStep | None:
    if any(getattr(document, key) is not UNSET for key in VerifyStepDocument.exactly_one):
        _with_reports(None, document, at)
    if document.check is not UNSET:
        return CheckStep(document.check, given(document.options, {}))
    if document.options is not UNSET:
        at.add("with", "E856", "`with` belongs to `check`", "remove it")
    if document.ensures is not UNSET:
        return EnsuresStep(read_conditions(document.ensures, at.below("ensures")))
    if document.commands is not UNSET:
        return read_commands(document.commands.allow, document.commands.source, at.below("commands"))
    step = read_step(document, plugins, at)
    if not isinstance(step, VerifyStep):
        return None
    for key in step.output_keys:
        if getattr(step, key) is not None:
            hint = f"a {key} is an output: make it a stage of its own"
            at.add(f"{step.kind}/{key}", "E856", f"`{key}` cannot be used in verify, whose files are deleted", hint)
    return step
