"""Find errors of stages that a build would find only when it reaches them: undefined names, missing slices.

Only what no stage upstream can change is reported. Files that stages make may not exist yet, or change. Warnings are
about what has no effect: paths of pytest and `llm.read`, and words that no JSON schema knows.
"""

import contextlib
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.decide.decisions import StageDecider
from orch23.decide.stage_view import StageTree
from orch23.model.diagnostic import Diagnostic, Location, Severity, nearest_names, quoted_names
from orch23.model.errors import MissingBytesError, Orch23Error, SafetyError
from orch23.model.parsing import StrictJsonError, parse_json
from orch23.model.paths import is_glob, match_any, static_prefix
from orch23.model.pipeline import Pipeline, SliceInput, Stage, definition_paths, family_of
from orch23.model.plan import Plan
from orch23.model.record import Facts
from orch23.plan.nodes import Where, WriterIndex, placed_inputs, reads_of, writes_of
from orch23.resolve.commands import missing_programs
from orch23.resolve.prompt_inputs import AuthorTexts
from orch23.resolve.resolution import NEVER_SENT, ResolvedStage, resolve_stage
from orch23.steps.registry import is_llm
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.steps.pytest.spec import PytestStep

_MISSING_SLICE = "E833"
# Codes of a prompt or program whose inputs are all known: it is rendered as for a request, or refused before.
_OF_PROMPTS = frozenset({"E812", "E831", "E832", "E834", "E837", NEVER_SENT, _MISSING_SLICE})
# Codes of the server that was called: a missing or refused key, no connection, or not a server of models.
_OF_SERVERS = frozenset({"E412", "E414", "E419", "E421"})


_ASK = "ask for the whole file in one block of code, ```python ... ```, or write `returns: text`"


def for_author(pipeline: Pipeline, name: str, found: Diagnostic) -> Diagnostic:
    """Return an error of a result as the author reads it: with the place in the pipeline, and a way out there."""
    key = {"E218": "llm/prompt", "E303": "outputs", "E306": "outputs"}.get(found.code, "")
    if not key or found.location is not None:
        return found
    outputs = next((one.outputs for one in pipeline.stages if one.name == name and isinstance(one, Stage)), ())
    entry = [number for number, path in enumerate(outputs) if f"`{path}`" in found.message][:1]
    place = pipeline.locate("stages", name, *key.split("/"), *entry)
    return replace(found, location=place, hint=_ASK if found.code == "E218" else found.hint)


def lasting_errors(
    plan: Plan, resolved: Iterable[ResolvedStage], sources: AuthorTexts, is_settled: Callable[[str], bool]
) -> tuple[Diagnostic, ...]:
    """Return the errors of these stages, each once, with their locations.

    `is_settled` returns whether the files of a stage upstream are known and do not change.
    """
    found: dict[tuple[str, str, str], Diagnostic] = {}
    # All items of a foreach render the same files, and all files may use the same names.
    undefined = cache(partial(_undefined, sources))
    for one in resolved:
        named = [problem for path in _rendered_files(one.stage) for problem in undefined(path)]
        for problem in (*named, *(_errors(plan, one, named, is_settled) if one.broken else ())):
            placed = _located(plan, one.stage, problem)
            found.setdefault((placed.code, placed.message, str(placed.location)), placed)
    return tuple(found.values())


def located_errors(plan: Plan, stage: Stage, sources: AuthorTexts, problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return errors of a stage with their locations; those about names with the exact ones."""
    named = {
        (one.message, one.location.file, one.location.line): one
        for path in _rendered_files(stage)
        for one in _undefined(sources, path)
        if one.location
    }
    exact = (
        problem
        if problem.location is None
        else named.get((problem.message, problem.location.file, problem.location.line), problem)
        for problem in problems
    )
    return [_located(plan, stage, problem) for problem in exact]


def provider_errors(pipeline: Pipeline, name: str, problems: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return errors of a model call with their locations: of the server if they are about it, else of the model."""
    step = f"stages/{family_of(name)}/llm"

    def place_of(problem: Diagnostic) -> Location | None:
        keys = ("base_url", "provider") if problem.code in _OF_SERVERS else ()
        ways = (definition_paths(f"{step}/{key}".split("/"), pipeline.locations) for key in keys)
        found = (pipeline.locations.get(path) for way in ways for path, is_above in way if not is_above)
        return next(filter(None, found), None) or pipeline.locate_written(f"{step}/model")

    return tuple(problem if problem.location else replace(problem, location=place_of(problem)) for problem in problems)


def _errors(
    plan: Plan, resolved: ResolvedStage, named: Sequence[Diagnostic], is_settled: Callable[[str], bool]
) -> Iterator[Diagnostic]:
    """Yield the errors of a stage that are certain. `named` are those about names, which are not repeated."""
    stage = resolved.stage
    places = {(one.location.file, one.location.line) for one in named if one.location}
    waits_for = {edge.why for edge in plan.edges if edge.reader == stage.name and not is_settled(edge.producer)}
    is_certain = not waits_for and all(map(is_settled, plan.upstream.get(stage.name, ())))
    for problem in resolved.broken:
        missing = _slice_of(stage, problem)
        at = problem.location
        if (at is None or (at.file, at.line) not in places) and (
            (is_certain and problem.code in _OF_PROMPTS) or (missing is not None and missing[1].path not in waits_for)
        ):
            yield problem


def _rendered_files(stage: Stage) -> Iterator[str]:
    """Yield the files that a stage renders, also those that only a retry renders."""
    step = stage.step
    paths = [step.system, step.prompt, stage.retry.prompt] if is_llm(step) else []
    yield from filter(None, [*paths, getattr(step, step.renders) if step.renders else None])


def _undefined(sources: AuthorTexts, path: str) -> tuple[Diagnostic, ...]:
    from orch23.resolve.prompt_files import PROMPT_NAMES  # noqa: PLC0415 - only for stages that render
    from orch23.resolve.template_errors import undefined_names  # noqa: PLC0415 - it loads jinja2

    text, _ = sources.text(path)
    return () if text is None else tuple(undefined_names(path, text, PROMPT_NAMES))


def _slice_of(stage: Stage, problem: Diagnostic) -> tuple[Where, SliceInput] | None:
    """Return the slice that an error is about, with its path in the stage; None if it is about something else."""
    if problem.code != _MISSING_SLICE:
        return None
    slices = ((where, one) for where, one in placed_inputs(stage) if isinstance(one, SliceInput))
    return next(((where, one) for where, one in slices if problem.message.startswith(f"`{one.text}`: ")), None)


def _places_of_never_sent(stage: Stage, problem: Diagnostic) -> Iterator[Where]:
    """Yield where a stage names the file that no model is shown."""
    if problem.code == NEVER_SENT:
        path = problem.message.split("`")[1]
        yield from (where for where, one in placed_inputs(stage) if getattr(one, "path", None) == path)
        yield from (("outputs", number) for number, output in enumerate(stage.outputs) if output == path)
        yield from (where for where, file in stage.author_files.items() if file == path)


def _located(plan: Plan, stage: Stage, problem: Diagnostic) -> Diagnostic:
    if problem.location is not None:
        return problem
    missing = _slice_of(stage, problem)
    where = missing[0] if missing else next(_places_of_never_sent(stage, problem), ())
    place = plan.pipeline.place_in(stage, *where)
    # The subject of the error, such as a file, comes before the stage, which the location shows.
    return replace(problem, location=place, subject=None if missing else problem.subject or stage.name)


def errors_of_all_stages(decider: StageDecider) -> tuple[Diagnostic, ...]:
    """Return the errors of all stages of a plan, without any result of an earlier build."""
    plan = decider.state.plan
    return lasting_errors(plan, resolved_stages(decider, _has_texts), decider.sources, lambda _: False)


def resolved_stages(decider: StageDecider, is_needed: Callable[[Stage], bool]) -> Iterator[ResolvedStage]:
    """Yield the stages that are needed, as far as their files can be read, without any result of an earlier build."""
    state = decider.state
    for node in state.plan.nodes.values():
        if isinstance(node, Stage) and is_needed(node):
            # Without facts about the machine: no tool is looked up and no plugin is called.
            tree, pipeline = StageTree(state, node.name), state.plan.pipeline
            # Files that cannot be read are reported by the stage when it is built.
            with contextlib.suppress(Orch23Error, MissingBytesError):
                yield resolve_stage(
                    node, tree, Facts(), decider.sources, pipeline=pipeline, read_yaml=decider.read_yaml
                )


def _has_texts(stage: Stage) -> bool:
    in_part = any(isinstance(one, SliceInput) for one in (*stage.inputs, *stage.verify.inputs))
    return stage.step.asks_model or bool(stage.step.renders) or in_part or any(missing_programs(stage, lambda _: False))


def stage_warnings(plan: Plan, stages: Sequence[Stage], workspace: Workspace) -> tuple[Diagnostic, ...]:
    """Return the warnings about paths and words of schemas that have no effect, each once.

    Schemas that are not valid are reported elsewhere.
    """
    found: tuple[Diagnostic, ...] = ()
    if testing := [stage for stage in stages if stage.runs_pytest]:
        found = pytest_path_warnings(plan, testing, workspace)
    files = dict.fromkeys(path for stage in stages for path in stage.schema_files)
    absent = dict.fromkeys(one for stage in stages for one in _absent_reads(plan, stage, workspace))
    return (*found, *absent, *(one for path in files for one in _ignored_words(path, workspace.read(path))))


def _absent_reads(plan: Plan, stage: Stage, workspace: Workspace) -> Iterator[Diagnostic]:
    """Yield a warning for each path of `llm.read` in the project that does not exist and that no stage makes."""
    for number, path in enumerate(getattr(stage.step, "read", ())):
        with contextlib.suppress(SafetyError):  # a link that leads out of the project
            if path.startswith(("/", "~/")) or workspace.resolved_path(path) is not None:
                continue
            writers = WriterIndex({**{one.name: one for one in plan.pipeline.stages}, **plan.nodes})
            if not any(map(writers.writers_of, (path, f"{path}/**"))):
                message = f"`llm.read` of `{stage.family}` has `{path}`, which does not exist, and no stage makes it"
                place = plan.pipeline.place_in(stage, "llm", "read", number)
                yield _warning(message, place, "correct it, or remove it")


def _ignored_words(path: str, data: bytes | None) -> Iterator[Diagnostic]:
    from orch23.checks.schema_drafts import ignored_words  # noqa: PLC0415 - it imports jsonschema

    try:
        words = ignored_words(parse_json((data or b"null").decode("utf-8", "replace")))
    except StrictJsonError:
        return
    if words:
        message = f"no draft of JSON schema knows {quoted_names(words[:8])}{', ...' * (len(words) > 8)}: ignored"  # noqa: PLR2004 - a line
        hint = "correct a misspelled word; annotations such as `x-order` have no effect"
        yield Diagnostic("W861", message, Location(path, 1, 1), hint, Severity.WARNING)


_LEAVES_OUT = ("--ignore", "--deselect")


def pytest_path_warnings(plan: Plan, stages: Iterable[Stage], workspace: Workspace) -> tuple[Diagnostic, ...]:
    """Return the warnings about the pytest steps of these stages, each once."""
    writers = None
    found: dict[str, Diagnostic] = {}
    for stage in stages:
        for where, step in _pytest_steps(stage):
            writers = writers or WriterIndex({**{one.name: one for one in plan.pipeline.stages}, **plan.nodes})
            problems = (
                *_unstaged_tests(plan, stage, step, workspace, writers),
                *_missing_folders(plan.pipeline, stage, where, step, workspace, writers),
            )
            for one in problems:
                found.setdefault(one.message, one)
    return tuple(found.values())


def _pytest_steps(stage: Stage) -> "Iterator[tuple[tuple[str | int, ...], PytestStep]]":
    """Yield each pytest step of a stage with its place below the stage."""
    from orch23.steps.pytest.spec import PytestStep  # noqa: PLC0415 - only for such stages

    if isinstance(stage.step, PytestStep):
        yield ("pytest",), stage.step
    for number, step in enumerate(stage.verify.steps):
        if isinstance(step, PytestStep):
            yield ("verify", "steps", number, "pytest"), step


def _unstaged_tests(
    plan: Plan, stage: Stage, step: "PytestStep", workspace: Workspace, writers: WriterIndex
) -> Iterator[Diagnostic]:
    """Yield a warning for each test file directly below a path of pytest that is not an input.

    The items of a foreach may share a directory of tests: a file that another stage reads is not forgotten.
    """
    if any(arg.startswith(_LEAVES_OUT) for arg in step.args):
        return
    given = (*reads_of(stage), *writes_of(stage))
    key = "inputs" if stage.step is step else "verify.inputs"
    for path in step.paths:
        folder = posixpath.normpath(f"{stage.cwd}/{path}")
        if is_glob(path) or "::" in path or folder.startswith(".."):
            continue
        for file in sorted(workspace.neighbours("x" if folder == "." else f"{folder}/x")):
            if not _is_test(file) or match_any(given, file) or writers.writers_of(file):
                continue
            if not any(match_any(reads_of(node), file) for node in plan.nodes.values()):
                message = f"`{file}` is not in `inputs`, so pytest does not run it in stage `{stage.family}`"
                place = plan.pipeline.locate("stages", stage.family, *key.split("."))
                added = f"inputs: [..., {file}]"
                added = added if key == "inputs" else f"verify: {{{added}}}"
                yield _warning(message, place, f"add it to `{key}`: `{added}`")


def _is_test(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith("_test.py") or (name.startswith("test_") and name.endswith(".py"))


def _missing_folders(
    pipeline: Pipeline,
    stage: Stage,
    where: tuple[str | int, ...],
    step: "PytestStep",
    workspace: Workspace,
    writers: WriterIndex,
) -> Iterator[Diagnostic]:
    """Yield a warning for each directory of modules that does not exist and that no stage makes."""
    for number, path in enumerate(step.pythonpath):
        folder = posixpath.normpath(f"{stage.cwd}/{path}")
        if path.startswith("/") or folder == "." or folder.startswith(".."):
            continue
        if not workspace.is_folder(folder) and not writers.writers_of(f"{folder}/**"):
            place = pipeline.place_in(stage, *where, "pythonpath", number)
            message = (
                f"`pythonpath` of stage `{stage.family}` has `{path}`, which does not exist, and no stage makes it"
            )
            yield _warning(message, place, _folder_hint(folder, stage, workspace))


def _folder_hint(folder: str, stage: Stage, workspace: Workspace) -> str:
    """Return the hint for a directory that does not exist, with a path relative to the directory of the step."""
    writes = writes_of(stage)
    made = {static_prefix(path) if is_glob(path) else posixpath.dirname(path) for path in writes}
    made = {path.rstrip("/") for path in made} - {""}
    above = posixpath.dirname(folder)
    there = {posixpath.join(above, name) for name in workspace.subfolders(above)}
    if near := nearest_names(folder, sorted(made | there)):
        return f"did you mean `{posixpath.relpath(near[0], stage.cwd)}`?"
    if len(made) == 1:
        return f"did you mean `{posixpath.relpath(made.pop(), stage.cwd)}`, where the stage writes?"
    return "correct it, or remove it"


def _warning(message: str, place: Location | None, hint: str) -> Diagnostic:
    return Diagnostic("W827", message, place, hint, Severity.WARNING)
