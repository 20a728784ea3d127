"""The action for GitHub and the template for GitLab: valid, and their shell commands build a project."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.e2e.pipelines import shell
from tests.project import Project

HERE = Path(__file__).parents[2]
ACTION, TEMPLATE = HERE / "integrations/github/action.yml", HERE / "integrations/gitlab/orch23.yml"
STAGES = "  a: {outputs: [a.txt], shell: echo a > a.txt}\n  b: {shell: 'exit 3'}\n"
PROGRAM = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(HERE)!r})
from orch23.entry import run
run()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "file"), [("github-actions", ACTION), ("gitlab-ci", TEMPLATE)])
def test_the_file_is_valid(schema: str, file: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def step(name: str) -> dict[str, Any]:
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    (found,) = [one for one in steps if one.get("name") == name]
    return dict(found)


def run(script: str, project: Project, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run a script as a runner does, where `orch23` is this tree."""
    program = project.home / "orch23/bin/orch23"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONDONTWRITEBYTECODE": "1", **environ}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=project.root, env=env, capture_output=True, text=True, check=False, timeout=120)


def suite_of(path: Path) -> tuple[str | None, str | None]:
    suite = ET.parse(path).getroot()[0]
    return suite.get("tests"), suite.get("failures")


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "code", "tests"), [("", 1, "2"), ("--only a -j1", 0, "1")])
def test_the_action_builds(project: Project, arguments: str, code: int, tests: str) -> None:
    project.write({"own.yaml": shell(STAGES)["pipeline.yaml"]})
    output = project.home / "output"
    given = {"PIPELINE": "own.yaml", "ARGUMENTS": arguments, "RUNNER_TEMP": str(project.home)}
    actions = {"GITHUB_OUTPUT": str(output), "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(project.root)}
    done = run(step("Build")["run"], project, **given, **actions)
    assert done.returncode == code, done.stderr
    junit = Path(output.read_text().removeprefix("junit=").strip())
    assert suite_of(junit) == (tests, str(code))
    assert (junit.parent / "trace.json").exists()
    assert ("::error title=b" in done.stderr) == bool(code)
    assert run(step("Write the report")["run"], project, RUNNER_TEMP=str(project.home)).returncode == 0
    assert "<!doctype html>" in (junit.parent / "report.html").read_text().lower()


@pytest.mark.slow
def test_the_action_builds_the_default_pipeline(project: Project) -> None:
    project.write(shell("  a: {outputs: [a.txt], shell: echo a > a.txt}\n"))
    output = project.home / "output"
    given = {"PIPELINE": "", "ARGUMENTS": "", "RUNNER_TEMP": str(project.home), "GITHUB_OUTPUT": str(output)}
    assert run(step("Build")["run"], project, **given).returncode == 0


def test_no_expression_is_part_of_a_script() -> None:
    """GitHub pastes expressions into scripts as they are: an input with a quote would be a command."""
    scripts = [one["run"] for one in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if "run" in one]
    assert len(scripts) == 3
    assert not any("${{" in script for script in scripts)


def test_only_trusted_events_save_the_store() -> None:
    condition = step("Save the store")["if"]
    assert '["push", "schedule", "workflow_dispatch", "merge_group"]' in condition
    assert "pull_request" not in condition
    template = yaml.safe_load(TEMPLATE.read_text())[".orch23"]
    assert template["variables"]["ORCH23_CACHE_POLICY"] == "pull"
    pushing = [one["if"] for one in template["rules"] if "pull-push" in str(one.get("variables"))]
    assert pushing == ["$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH"]
    assert template["cache"][0]["policy"] == "$ORCH23_CACHE_POLICY"


@pytest.mark.needs("exports", "pages")
@pytest.mark.slow
def test_the_template_of_gitlab_builds(project: Project) -> None:
    project.write({"own.yaml": shell(STAGES)["pipeline.yaml"]})
    template = yaml.safe_load(TEMPLATE.read_text())[".orch23"]
    variables = template["variables"] | {"ORCH23_PIPELINE": "own.yaml", "ORCH23_VENV": str(project.home / "orch23")}
    done = run("\n".join(template["script"]), project, **variables)
    assert done.returncode == 1, done.stderr
    assert suite_of(project.root / template["artifacts"]["reports"]["junit"]) == ("2", "1")


def test_the_template_of_gitlab_requires_what_pip_installs(project: Project) -> None:
    template = yaml.safe_load(TEMPLATE.read_text())[".orch23"]
    done = run(template["before_script"][1], project, **template["variables"])
    assert done.returncode != 0
    assert "ORCH23_INSTALL: set it to what pip installs" in done.stderr
