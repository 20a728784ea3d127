"""The template planner_coder_tester in a project of a test: its files, other answers, and its communication log."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e import templates
from tests.project import Project

HERE = Path(__file__).parents[2]
PIPELINE = "pipelines/planner_coder_tester.yaml"
ANSWERS = "pipelines/planner_coder_tester.answers.yaml"
GOAL = "specs/planner_coder_tester/goal.md"
TESTS = "specs/planner_coder_tester/tests"
TOOL = "specs/planner_coder_tester/tools/communication_log.py"
SRC = "workspace/planner_coder_tester/src"
RUNS = "workspace/planner_coder_tester/runs"
STOP = json.dumps({"status": "error", "reason": "tax.py is not in artifacts"})


def placed(project: Project) -> Project:
    """Copy the template's files into a project. Its tasks may add a module that other tests import."""
    made = templates.copied(project, "planner_coder_tester")
    made.replace(PIPELINE, "packages: [stats]", "packages: [stats, numbers_, a]")
    return made


def answered(project: Project, answers: Mapping[str, str], *, tests: Mapping[str, str] | None = None) -> Project:
    """Let the roles answer this, and let these be the tests."""
    project.write({ANSWERS: json.dumps({stage: [text] for stage, text in answers.items()})})
    if tests is not None:
        shutil.rmtree(project.root / TESTS)
        project.write({f"{TESTS}/{name}": text for name, text in tests.items()})
    return project


def task(number: int, *artifacts: str, **changed: Any) -> dict[str, Any]:
    said = {"title": f"do {number}", "rationale": "why", "acceptance": f"it does {number}"}
    return {"id": f"T{number}", **said, "artifacts": list(artifacts), **changed}


def plan(*tasks: Mapping[str, Any], plan_id: str = "plan_0001") -> str:
    return json.dumps({"plan_id": plan_id, "tasks": list(tasks)})


def edits(files: Mapping[str, str]) -> str:
    """Return the answer of a coder; paths are relative to the folder of sources."""
    return json.dumps({"edits": [{"path": f"{SRC}/{path}", "content": text} for path, text in files.items()]})


def logged(project: Project) -> None:
    """Run the program of the communication log."""
    subprocess.run([sys.executable, TOOL], cwd=project.root, check=True, capture_output=True)


def reported(project: Project) -> list[dict[str, Any]]:
    """Run the program of the communication log; return the entries of the newest run."""
    logged(project)
    run = project.journals()[-1].stem
    return [json.loads(line) for line in project.read(f"{RUNS}/{run}.log.jsonl").splitlines()]


def results(project: Project) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = json.loads(project.read(f"{RUNS}/test_results.json"))["results"]
    return found


def calls(project: Project) -> int:
    """Count the answers of the newest run that were not recorded."""
    return sum(event["data"]["calls"] for event in project.events_of("stage_finished"))
