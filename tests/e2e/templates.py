"""The templates at the top of the repository, copied into a project of a test."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.scripted_requests import without_requests
from tests.project import Project

HERE = Path(__file__).parents[2]


def copied(project: Project, name: str) -> Project:
    """Copy the files of a template, as its `.template.yaml` lists them. Its responses are for any request."""
    listed = yaml.safe_load((HERE / f"pipelines/{name}.template.yaml").read_text())["files"]
    for path in listed:
        target = project.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if (HERE / path).is_dir():
            shutil.copytree(HERE / path, target)
        else:
            shutil.copyfile(HERE / path, target)
    answers = f"pipelines/{name}.answers.yaml"
    if project.exists(answers):
        project.write({answers: without_requests(project.read(answers))})
    return project


def answered(project: Project, name: str, answers: Mapping[str, Sequence[str]]) -> None:
    """Give some stages of a template other scripted answers; the others keep theirs."""
    path = f"pipelines/{name}.answers.yaml"
    known: dict[str, Any] = yaml.safe_load(project.read(path))
    project.write({path: json.dumps({**known, **{stage: list(texts) for stage, texts in answers.items()}})})


def asked(project: Project) -> list[str]:
    """Return the stages whose model was asked in the newest run, recorded answers aside, in order."""
    return [one["role"] for one in project.events_of("llm_response") if not one["data"]["replayed"]]
