"""Warn about the paths of pytest steps: tests that are not staged, and directories of modules that do not exist."""

import posixpath
from collections.abc import Iterable, Iterator

from orch23.model.diagnostic import Diagnostic, Location, Severity, nearest_names
from orch23.model.paths import is_glob, match_any, static_prefix
from orch23.model.pipeline import Pipeline, Stage
from orch23.model.plan import Plan
from orch23.plan.nodes import WriterIndex, reads_of, writes_of
from orch23.steps.pytest.spec import PytestStep
from orch23.store.workspace import Workspace

W_PYTEST_PATHS = "W827"
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


def _pytest_steps(stage: Stage) -> Iterator[tuple[tuple[str | int, ...], PytestStep]]:
    """Yield each pytest step of a stage with its place below the stage."""
    if isinstance(stage.step, PytestStep):
        yield ("pytest",), stage.step
    for number, step in enumerate(stage.verify.steps):
        if isinstance(step, PytestStep):
            yield ("verify", "steps", number, "pytest"), step


def _unstaged_tests(
    plan: Plan, stage: Stage, step: PytestStep, workspace: Workspace, writers: WriterIndex
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
    step: PytestStep,
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
    return Diagnostic(W_PYTEST_PATHS, message, place, hint, Severity.WARNING)
