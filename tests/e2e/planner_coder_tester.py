"""The template planner_coder_tester in a project of a test: its files, other answers, and its communication log."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e import templates
from tests.project import Project

HERE = Path(__file__).parents[2]
PIPELINE = "pipelines/planner_coder_tester.yaml"
ANSWERS = "pipelines/planner_coder_tester.answers.yaml"
GOAL = "specs/planner_coder_tester/goal.md"
TESTS = "specs/planner_coder_tester/tests"
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


def reported(project: Project) -> list[dict[str, Any]]:
    """Return the entries of the communication log of the newest run."""
    log = f"logs/{project.journals()[-1].stem}/communication_log.jsonl"
    return [json.loads(line) for line in project.read(log).splitlines()]


def calls(project: Project) -> int:
    """Count the answers of the newest run that were not recorded."""
    return sum(event["data"]["calls"] for event in project.events_of("stage_finished"))
