"""The template `layered_app` in a project of a test: its answers, other answers, feedback, and who was asked."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import yaml

from tests.e2e import templates
from tests.e2e.templates import HERE, asked
from tests.project import Project

PIPELINE = "pipelines/layered_app.yaml"
ANSWERS = "pipelines/layered_app.answers.yaml"
SPEC = "specs/layered_app/todo"
APP = "workspace/layered_app/todo"
DUE_DATE = f"{SPEC}/feedback/0001-due-date.md"
LAYERS = ("backend_models", "backend_services", "backend_routes", "backend_app", "frontend_ui")
OF_ENTITIES = tuple(name for name in LAYERS if name != "backend_app")


def copied(project: Project) -> Project:
    """Copy the files of the template."""
    return templates.copied(project, "layered_app")


def shipped() -> dict[str, list[Any]]:
    """Return the answers that the template brings."""
    answers: dict[str, list[Any]] = yaml.safe_load((HERE / ANSWERS).read_text())
    return answers


def answer(stage: str, *, after_feedback: bool = False) -> str:
    """Return what the template answers for a stage: to the request alone, or after the feedback of a due date."""
    cases = shipped()[stage]
    case = cases[0 if after_feedback else -1]
    return str(case if isinstance(case, str) else case["answers"][0])


def value(stage: str, *, after_feedback: bool = False) -> Any:
    """Return such an answer read as JSON, for the test to change."""
    return deepcopy(json.loads(answer(stage, after_feedback=after_feedback)))


def answered(project: Project, answers: Mapping[str, Sequence[Any]]) -> None:
    """Give some stages other answers, texts or cases; the others keep what the template says now."""
    templates.answered(project, "layered_app", answers)


def feedback(project: Project, text: str = "Add a due date to tasks.\n") -> None:
    """Add a file of feedback, as a person would."""
    project.write({DUE_DATE: text})


def layers_asked(project: Project) -> set[str]:
    """Return the layers whose model was asked in the newest run."""
    return {name.removeprefix("layers@") for name in asked(project) if name.startswith("layers@")}


def ends(project: Project) -> dict[str, str]:
    """Return how each stage of the newest run ended."""
    return {event["role"]: event["data"]["status"] for event in project.events_of("stage_finished")}


def code(project: Project) -> dict[str, bytes]:
    """Return the files of the app's code."""
    return project.files(f"{APP}/src")
