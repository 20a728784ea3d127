"""The template work_orders in a project of its own, with the answers that a test gives it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e import templates
from tests.project import Project, files_answer

PIPELINE = "pipelines/work_orders.yaml"
ANSWERS = "pipelines/work_orders.answers.yaml"
SPEC = "specs/work_orders/spec.md"
PLACE = "workspace/work_orders"
REPO = f"{PLACE}/project"
VERIFY = f"{REPO}/scripts/verify.sh"


def copied(project: Project) -> Project:
    """Copy the files of the template."""
    return templates.copied(project, "work_orders")


def answered(project: Project, plans: Sequence[Any], orders: Mapping[str, Sequence[str]] | None = None) -> Project:
    """Copy the template, with these plans for answers (a text as it is), and these answers to its orders."""
    texts = [plan if isinstance(plan, str) else json.dumps(plan) for plan in plans]
    given = {f"factory@{name}": list(answers) for name, answers in (orders or {}).items()}
    copied(project).write({ANSWERS: json.dumps({"plan": texts, **given})})
    return project


def verified_by(project: Project, script: str = "exit 0\n") -> Project:
    """Give the repository a verification of its own, from before any order."""
    return project.write({VERIFY: script})


def makes(number: int = 1, text: str = "X = 1\n") -> str:
    """Return the answer that makes the file of an order, `f<number>.py`."""
    return files_answer({f"f{number}.py": text})


def failures(project: Project, stage: str | None = None) -> list[dict[str, Any]]:
    """Return what is known of each failed attempt of the newest run, of one stage or of all."""
    events = project.events_of("attempt_finished")
    return [e["data"] for e in events if not e["data"]["passed"] and stage in (None, e["role"])]


def calls(project: Project) -> list[str]:
    """Return the stages that asked a model in the newest run, an entry a call."""
    return [event["role"] for event in project.events_of("llm_request")]


def kept(project: Project, stage: str, attempt: int, name: str) -> str:
    """Return what the newest run kept of an attempt."""
    return project.read(f"logs/{project.journals()[-1].stem}/{stage}/attempt-{attempt}/{name}")


def repository(project: Project) -> dict[str, str]:
    """Return the files of the repository that the orders work on."""
    return {path.removeprefix(f"{REPO}/"): data.decode() for path, data in project.files(REPO).items()}
