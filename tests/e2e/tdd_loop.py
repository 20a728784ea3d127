"""The template `tdd_loop` in a project of a test: with its tests built once, with other answers, and what it says."""

import json
import shutil
from typing import Any

import pytest
import yaml

from tests.e2e.pipelines import green
from tests.e2e.templates import HERE, answered, copied
from tests.project import Project

PIPELINE = "pipelines/tdd_loop.yaml"
SPEC = "specs/tdd_loop/spec.yaml"
PLACE = "workspace/tdd_loop"
ANSWERS: dict[str, Any] = yaml.safe_load((HERE / "pipelines/tdd_loop.answers.yaml").read_text())
RED, PATCH = (json.loads(text) for text in ANSWERS["code"][-1]["answers"])
RED_TEXT, PATCH_TEXT = json.dumps(RED), json.dumps(PATCH)


def with_tests(project: Project, factory: pytest.TempPathFactory) -> Project:
    """Give the template with skeleton and tests built, as nearly all of its stories begin; they are built once."""
    built = factory.getbasetemp() / "tdd_loop_with_tests"
    if not built.exists():
        made = copied(Project(factory.mktemp("tdd_loop") / "project"), "tdd_loop")
        green(made.build(PIPELINE, "tests"))
        made.root.rename(built)
    shutil.copytree(built, project.root, dirs_exist_ok=True, symlinks=True)
    return project


def code_answers(project: Project, *texts: str) -> None:
    """Let the stage `code` be answered so, one text an attempt."""
    answered(project, "tdd_loop", {"code": texts})


def state(project: Project) -> dict[str, Any]:
    """Return what the state.json of the newest run says."""
    found: dict[str, Any] = json.loads((project.journals()[-1].with_suffix("") / "state.json").read_text())
    return found


def shown_request(project: Project, stage: str, attempt: int) -> str:
    """Return what a model was asked at an attempt."""
    return project.run("show", PIPELINE, stage, "--prompt", "--attempt", str(attempt)).out
