"""Whole builds through the port of executors: one that has no more than the bytes of an action."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orch23.cli import build_run
from orch23.execute.interpreters import matching_interpreter
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import Action, ActionOutcome, Completed, outcome_from_bytes, outcome_to_bytes
from orch23.model.digest import FileEntry
from orch23.model.ports import FileContentStore
from tests.doubles import MemoryContents
from tests.e2e.pipelines import green
from tests.project import Project, files_answer, scripted

pytestmark = pytest.mark.needs("remote")  # its worker takes inputs from a store

TESTS = "from app import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
GOOD, BAD = "def double(x):\n    return 2 * x\n", "def double(x):\n    return x\n"
STAGES: Mapping[str, Any] = {
    "code": {
        "inputs": ["spec.md"],
        "outputs": ["app.py"],
        "llm": {"returns": "files"},
        "verify": {"inputs": ["test_app.py"], "steps": [{"pytest": ["test_app.py"]}]},
        "retry": 1,
    },
    "test": {
        "inputs": ["app.py", "test_app.py"],
        "outputs": ["report.json"],
        "pytest": {"paths": ["test_app.py"], "report": "report.json"},
    },
    "copy": {"inputs": ["app.py"], "outputs": ["out/copy.py", "out/run"], "shell": "cp app.py out; chmod +x out/run"},
}
FILES = {"spec.md": "double a number\n", "test_app.py": TESTS}


def whole_build() -> dict[str, str]:
    """Return a pipeline with a model, whose first answer is wrong, a run of tests and a command."""
    stages = {
        **STAGES,
        "copy": {**STAGES["copy"], "shell": "cp app.py out/copy.py; cp app.py out/run; chmod +x out/run"},
    }
    answers = {"code": [files_answer({"app.py": BAD}), files_answer({"app.py": GOOD})]}
    return {**scripted(stages, answers), **FILES}


def built(project: Project) -> dict[str, bytes]:
    """Build from nothing, and return what was made and which keys it has."""
    green(project.write(whole_build()).build())
    assert project.ran() == ["code", "test", "copy"]
    assert project.build().err.endswith("up to date (3 stages)\n")
    made = {path: project.files()[path] for path in ("app.py", "report.json", "out/copy.py", "out/run")}
    assert os.access(project.root / "out/run", os.X_OK)
    return {
        **made,
        "keys": "\n".join(
            sorted(e["data"]["key"] for e in project.events_of("attempt_started", run=first(project)))
        ).encode(),
    }


def first(project: Project) -> str:
    return project.journals()[0].stem


class Serialising:
    """An executor that passes each action to another as bytes, and gets bytes back.

    The other one knows the contents and its own machine, but nothing of the project: not its root, and no sandbox
    directory of it.
    """

    def __init__(self, elsewhere: Path, contents: FileContentStore, **given: Any) -> None:
        from orch23.features.remote.worker import StoredInputs  # noqa: PLC0415 - of a feature

        found = partial(matching_interpreter, root=elsewhere, environ={"VIRTUAL_ENV": sys.prefix})
        sandbox_dirs = SandboxDirs(elsewhere, StoredInputs(contents))
        self._worker = LocalExecutor(
            **{**given, "sandbox_dirs": sandbox_dirs, "contents": contents, "interpreters": found}
        )
        self.sent: list[bytes] = []
        self.answers: list[bytes] = []
        self.sandbox, self.has_started = self._worker.sandbox, False

    def run(self, action: Action, hear: Callable[[str], None] | None = None) -> ActionOutcome:
        self.has_started = True
        self.sent.append(action.to_bytes())
        decoded = Action.from_bytes(self.sent[-1])
        assert decoded == action
        self.answers.append(outcome_to_bytes(self._worker.run(decoded)))
        return outcome_from_bytes(self.answers[-1])

    def cancel(self) -> None:
        self._worker.cancel()

    def close(self) -> None:
        self._worker.close()


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, bytes]:
    """Return what a build makes as always."""
    return built(Project(tmp_path / "as-always"))


def serialise(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> list[Serialising]:
    made: list[Serialising] = []

    def executor(*, sandbox_dirs: SandboxDirs, interpreters: object, **given: Any) -> Serialising:
        del sandbox_dirs, interpreters
        made.append(Serialising(elsewhere, **given))
        return made[-1]

    monkeypatch.setattr(build_run, "LocalExecutor", executor)
    return made


@pytest.mark.slow
def test_a_build_through_bytes_of_actions_and_outcomes_is_the_same(
    project: Project, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executors = serialise(monkeypatch, tmp_path / "elsewhere")
    (project.root / "envs").symlink_to(sys.prefix)
    for stage, python in (
        ("code", sys.executable),
        ("test", str(project.root / "envs")),
        ("copy", "./envs/bin/python"),
    ):
        monkeypatch.setitem(STAGES[stage], "python", python)
    assert built(project) == expected
    sent = [data for one in executors for data in one.sent]
    assert len({Action.from_bytes(data).python.declared for data in sent}) == 3
    answers = [data for one in executors for data in one.answers]
    assert len(sent) == 4, "two attempts, a run of tests and a command"
    for data in (*sent, *answers):
        for place in (project.root, tmp_path, Path(sys.prefix), Path(sys.executable).resolve().parent):
            assert os.fsencode(place) not in data
        assert b"envs" not in data
    outcomes = [outcome_from_bytes(data) for data in answers]
    assert all(isinstance(one, Completed) for one in outcomes)
    assert sum(isinstance(one, Completed) and one.result.report is not None for one in outcomes) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("forgetting", ["inputs", "tools"])
def test_a_worker_that_lacks_bytes_names_them_and_runs_nothing(tmp_path: Path, forgetting: str) -> None:
    lost = FileEntry(MemoryContents().put(b"lost"))
    worker = Serialising(tmp_path, MemoryContents(), workers=1)
    given: dict[str, Any] = {"inputs": {}, "tools": {}, forgetting: {"a.txt": lost}}
    outcome = worker.run(Action(argv=("touch", str(tmp_path / "ran")), **given))
    worker.close()
    assert outcome_to_bytes(outcome) == b'{"paths":["a.txt"],"type":"inputs_changed"}'
    assert list(tmp_path.iterdir()) == []
