"""The check `planner_tasks`: shape, stable ids and unambiguous artifacts of a plan's tasks."""

from collections.abc import Iterator, Mapping, Sequence

from orch23.checks.check import PLAN_OPTIONS, Check, CheckInput, OptionReader
from orch23.checks.schema_errors import schema_errors
from orch23.model.diagnostic import Diagnostic, quoted_names
from orch23.model.digest import Json
from orch23.model.paths import match_any, unsafe_reason

_NAME = "planner_tasks"
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


_OPTIONS = PLAN_OPTIONS | {
    "plan_id": "The id that the plan must have. Default: `plan_0001`.",
    "tests": f"List of patterns of tests, which a task must not change. Default: {quoted_names(_TESTS)}.",
}


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    options = OptionReader(_NAME, given, _OPTIONS)
    file = options.json_path()
    present = options.project_paths()
    plan_id = options.text("plan_id", "plan_0001")
    tests = options.pattern_list("tests", _TESTS)
    plan = options.document(file, "E313")
    if options.failed:
        return tuple(options.errors)
    invalid = tuple(schema_errors(PLAN_SCHEMA, plan, file, f"see the schema `{PLAN_SCHEMA['title']}`"))
    if invalid or not isinstance(plan, Mapping):
        return (*options.errors, *invalid)
    tasks = plan["tasks"]
    return (
        *options.errors,
        *_plan_id_errors(file, plan["plan_id"], plan_id),
        *_task_errors(tasks if isinstance(tasks, Sequence) else (), _Project(present), tests),
    )


PLANNER_TASKS = Check(
    _NAME,
    1,
    _run,
    summary="A plan has small tasks with valid ids and paths. For the template `planner_coder_tester`.",
    codes=("E330", "E331", "E332", "E333"),
    options=_OPTIONS,
    example="""- check: planner_tasks
  with: {plan_id: plan_0001, under: project}
""",
)


class _Project:
    """The paths of a project, to find out whether another path is ambiguous."""

    __slots__ = ("_files", "_folders", "_spelt")

    def __init__(self, files: Sequence[str]) -> None:
        self._files = frozenset(files)
        self._folders = frozenset(path[:at] for path in files for at, char in enumerate(path) if char == "/")
        self._spelt = {one.casefold(): one for one in sorted({*self._files, *self._folders}, reverse=True)}

    def ambiguity(self, path: str) -> str | None:
        """Return why a path is neither an existing file nor clearly a new one; None if it is one of them."""
        if path in self._files:
            return None
        reason = unsafe_reason(path)
        if reason is not None:
            return reason
        if path in self._folders:
            return "is a directory"
        parents = [path[:at] for at, char in enumerate(path) if char == "/"]
        if file := next((parent for parent in parents if parent in self._files), None):
            return f"is below `{file}`, which is a file"
        # On a file system that ignores case it would be the existing file or directory.
        for part in (*parents, path):
            other = self._spelt.get(part.casefold())
            if other is not None and part not in self._files and part not in self._folders:
                return f"differs from `{other}` only by case"
        return None


def _plan_id_errors(file: str, plan_id: Json, wanted: str) -> Iterator[Diagnostic]:
    if plan_id != wanted:
        what = f"is `{str(plan_id)[:80]}`, not `{wanted}`"
        yield Diagnostic("E330", what, hint=f"write `{wanted}`", subject=f"{file} plan_id")


def _task_errors(tasks: Sequence[Json], project: _Project, tests: tuple[str, ...]) -> Iterator[Diagnostic]:
    for number, task in enumerate(tasks):
        if not isinstance(task, Mapping):
            continue
        expected = f"T{number + 1}"
        label = expected if task["id"] == expected else f"tasks[{number}]"
        if task["id"] != expected:
            what = f"has the id `{str(task['id'])[:80]}`, not `{expected}`"
            yield Diagnostic("E331", what, hint="number the tasks from T1, in order, without a gap", subject=label)
        artifacts = task["artifacts"]
        for position, path in enumerate(artifacts if isinstance(artifacts, Sequence) else ()):
            yield from _artifact_errors(f"{label} artifacts[{position}]", str(path), project, tests)


def _artifact_errors(subject: str, path: str, project: _Project, tests: tuple[str, ...]) -> Iterator[Diagnostic]:
    shown = path[:80]
    reason = project.ambiguity(path)
    if reason is not None:
        hint = "name a file of the project exactly as it is written, or a path that does not exist"
        yield Diagnostic("E332", f"`{shown}` {reason}", hint=hint, subject=subject)
    elif match_any(tests, path):
        hint = "remove it: tests judge the work and are not changed by it"
        yield Diagnostic("E333", f"`{shown}` is a test file", hint=hint, subject=subject)
