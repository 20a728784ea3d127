"""The check `planner_tasks`: shape, stable ids and unambiguous artifacts of a plan's tasks."""

from collections.abc import Iterator, Mapping, Sequence

from orch23.checks.check import Check, CheckInput, Codes, unknown_options
from orch23.checks.check_options import (
    PLAN_OPTIONS,
    parse_json_output,
    pattern_list_option,
    plan_path,
    project_paths,
    text_option,
)
from orch23.checks.schema_errors import describe_violation
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.paths import match_any, unsafe_reason

CODES: Codes = {
    "E330": (
        "a plan has the wrong id",
        "The `plan_id` is neither `plan_0001` nor the one that the option `plan_id` of the check `planner_tasks` "
        "asks for. Ids are stable: write exactly the one that is named, or change the option.",
    ),
    "E331": (
        "the tasks of a plan are not counted T1 to Tn",
        "Tasks have the ids T1, T2 and so on, in the order in which they are done, without a gap and none twice. "
        "Renumber them.",
    ),
    "E332": (
        "an artifact is neither a file nor clearly a new one",
        "A task names the files that it edits or makes. This path is not a plain relative one, is a folder, lies "
        "below a file, or differs from a path of the project by its case alone, so it is not sure what is meant. "
        "Name an existing file as it is written, or a path that nothing else has.",
    ),
    "E333": (
        "a task would change tests",
        "An artifact is a file of tests: `test_*.py`, `*_test.py`, `conftest.py`, or what the option `tests` of the "
        "check names. Tests judge the work, and are never part of it. Take the path off the artifacts.",
    ),
}
"""The codes of this check alone."""


_NAME = "planner_tasks"
_OPTIONS = (*PLAN_OPTIONS, "plan_id", "tests")
_TESTS = ("**/test_*.py", "**/*_test.py", "**/conftest.py")
_TEXT: Json = {"type": "string", "minLength": 1, "maxLength": 4000}

PLAN_SCHEMA: Mapping[str, Json] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "plan.v1",
    "description": "A minimal, ordered set of small tasks that can be tested.",
    "type": "object",
    "required": ["plan_id", "tasks"],
    "additionalProperties": False,
    "properties": {
        "plan_id": {"type": "string", "description": "plan_0001 unless another is given."},
        "tasks": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["id", "title", "rationale", "acceptance", "artifacts"],
                "additionalProperties": False,
                "properties": {
                    "id": {"type": "string", "description": "T1, T2 and so on, in the order of the work."},
                    "title": _TEXT,
                    "rationale": _TEXT,
                    "acceptance": _TEXT,
                    "artifacts": {
                        "type": "array",
                        "minItems": 1,
                        "uniqueItems": True,
                        "items": {"type": "string"},
                    },
                },
            },
        },
    },
}


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    """Judge one plan; ids and artifacts only where its shape is right."""
    wrong = unknown_options(_NAME, given.options, _OPTIONS)
    read = (
        plan_path(_NAME, given),
        project_paths(_NAME, given),
        text_option(_NAME, given.options, "plan_id", "plan_0001"),
        pattern_list_option(_NAME, given.options, "tests", _TESTS),
    )
    match read:
        case (str() as file, tuple() as present, str() as plan_id, tuple() as tests):
            pass
        case _:
            return (*wrong, *(one for one in read if isinstance(one, Diagnostic)))
    plan = parse_json_output(file, given.outputs[file], "E313")
    if isinstance(plan, Diagnostic):
        return (*wrong, plan)
    shape = tuple(_shape_problems(file, plan))
    if shape or not isinstance(plan, Mapping):
        return (*wrong, *shape)
    tasks = plan["tasks"]
    return (
        *wrong,
        *_plan_id_problems(file, plan["plan_id"], plan_id),
        *_task_problems(tasks if isinstance(tasks, Sequence) else (), _Project(present), tests),
    )


PLANNER_TASKS = Check(_NAME, 1, _run)


class _Project:
    """The paths of a project, asked whether a further one is sure."""

    __slots__ = ("_files", "_folders", "_spelt")

    def __init__(self, files: Sequence[str]) -> None:
        self._files = frozenset(files)
        self._folders = frozenset(path[:at] for path in files for at, char in enumerate(path) if char == "/")
        self._spelt = {one.casefold(): one for one in sorted({*self._files, *self._folders}, reverse=True)}

    def doubt(self, path: str) -> str | None:
        """Return why a path is neither an existing file nor clearly a new one, or None."""
        if path in self._files:
            return None
        reason = unsafe_reason(path)
        if reason is not None:
            return reason
        if path in self._folders:
            return "is a folder"
        ends = [at for at, char in enumerate(path) if char == "/"]
        for folder in (path[:at] for at in ends):
            if folder in self._files:
                return f"lies below `{folder}`, which is a file"
        for part in (*(path[:at] for at in ends), path):
            other = self._spelt.get(part.casefold())
            if other is not None and part not in self._files and part not in self._folders:
                return f"is spelt like `{other}`, but for its case"
        return None


def _shape_problems(file: str, plan: Json) -> Iterator[Diagnostic]:
    from jsonschema import Draft7Validator  # noqa: PLC0415 - heavy, and hardly ever needed

    for error in sorted(
        Draft7Validator(PLAN_SCHEMA).iter_errors(plan), key=lambda one: list(map(str, one.absolute_path))
    ):
        for pointer, message in describe_violation(error):
            hint = f"see the schema `{PLAN_SCHEMA['title']}`"
            yield Diagnostic(code="E314", message=message, hint=hint, subject=f"{file}#{pointer}")


def _plan_id_problems(file: str, plan_id: Json, wanted: str) -> Iterator[Diagnostic]:
    if plan_id != wanted:
        what = f"is `{str(plan_id)[:80]}`, not `{wanted}`"
        yield Diagnostic("E330", what, hint=f"write `{wanted}`", subject=f"{file} plan_id")


def _task_problems(tasks: Sequence[Json], project: _Project, tests: tuple[str, ...]) -> Iterator[Diagnostic]:
    for number, task in enumerate(tasks):
        if not isinstance(task, Mapping):
            continue
        expected = f"T{number + 1}"
        label = expected if task["id"] == expected else f"tasks[{number}]"
        if task["id"] != expected:
            what = f"has the id `{str(task['id'])[:80]}`, not `{expected}`"
            yield Diagnostic("E331", what, hint="count the tasks from T1, in order, without a gap", subject=label)
        artifacts = task["artifacts"]
        for position, path in enumerate(artifacts if isinstance(artifacts, Sequence) else ()):
            yield from _artifact_problems(f"{label} artifacts[{position}]", str(path), project, tests)


def _artifact_problems(subject: str, path: str, project: _Project, tests: tuple[str, ...]) -> Iterator[Diagnostic]:
    shown = path[:80]
    doubt = project.doubt(path)
    if doubt is not None:
        hint = "name a file of the project as it is written, or a path that nothing else has"
        yield Diagnostic("E332", f"`{shown}` {doubt}", hint=hint, subject=subject)
    elif match_any(tests, path):
        hint = "take it off: tests judge the work and are not changed by it"
        yield Diagnostic("E333", f"`{shown}` is a file of tests", hint=hint, subject=subject)
