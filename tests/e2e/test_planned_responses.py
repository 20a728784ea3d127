"""`plan` and `validate` warn of scripted responses that the next build refuses (E404), in the same words."""

import json
from typing import Any

import pytest

from tests.project import Project, scripted

OTHER = "0" * 16


def edited(project: Project, *, requests: list[str]) -> Project:
    """Write a pipeline whose response was written for these requests."""
    files = scripted({"code": {"inputs": ["in.txt"], "outputs": ["app.py"], "llm": {"returns": "code"}}}, {})
    files["pipeline.answers.yaml"] = json.dumps({"code": [{"when": "", "requests": requests, "answers": ["x = 1\n"]}]})
    return project.write({**files, "in.txt": "one\n"})


def test_a_plan_warns_in_the_words_of_the_build(project: Project) -> None:
    edited(project, requests=[OTHER])
    planned = project.run("plan")
    assert planned.code == 0, planned.err
    assert "warning[W669]" in planned.err
    said = "the scripted responses were written for other requests"
    hint = planned.err[planned.err.index('requests: ["') :][:30]
    (warning,) = project.run("plan", "--json").json()["warnings"]
    assert (warning["code"], said in warning["message"]) == ("W669", True)
    validated = project.run("validate")
    assert validated.code == 0
    assert validated.err == planned.err
    built = project.build()
    assert built.code != 0
    assert "error[E404]" in built.err
    assert said in built.err
    assert hint in built.err


def test_a_response_for_the_request_needs_no_warning(project: Project) -> None:
    edited(project, requests=[OTHER])
    hint = project.run("plan").err
    digest = hint[hint.index('requests: ["') + len('requests: ["') :][:16]
    edited(project, requests=[digest])
    planned = project.run("plan")
    assert "E404" not in planned.err
    assert project.run("plan", "--json").json()["warnings"] == []
    assert project.run("validate").err == ""
    assert project.build().code == 0


def test_a_request_that_may_still_change_needs_no_warning(project: Project) -> None:
    edited(project, requests=[OTHER])
    pipeline = json.loads(project.read("pipeline.yaml"))
    pipeline["stages"]["first"] = {"outputs": ["in.txt"], "shell": "echo two > in.txt"}
    project.delete("in.txt")
    project.edit("pipeline.yaml", json.dumps(pipeline))
    assert "E404" not in project.run("plan").err
    assert "E404" not in project.run("validate").err


@pytest.mark.slow
def test_validate_counts_the_items_of_lists_that_exist(project: Project) -> None:
    item = "{outputs: ['${{ item }}.txt'], foreach: {in: [a, b, c]}, shell: [touch, '${{ item }}.txt']}"
    later = "{outputs: ['${{ item }}.md'], foreach: {from: names.json}, shell: [touch, '${{ item }}.md']}"
    lister = "{outputs: [names.json], shell: 'echo [1,2] > names.json'}"
    one = "version: 1\nstages:\n  first: {outputs: [first.txt], shell: 'echo > first.txt'}\n"
    project.write({"pipeline.yaml": one})
    assert project.run("validate").out == "ok: 1 stage\n"
    project.write({"pipeline.yaml": f"{one}  each: {item}\n  list: {lister}\n  later: {later}\n"})
    validated = project.run("validate")
    later = "the items of `later` are added when `list` has run"
    assert validated.out == f"ok: 6 stages, with the items of `each`; {later}\n", validated.err
    # The build counts the same.
    built = project.build()
    assert built.err.startswith("pipeline: 6 stages and the items of `later`   sandbox")
    assert "\n 7 stages: 7 built   " in built.err
    assert project.run("validate").out.startswith("ok: 6 stages, with the items of `each`; ")
    project.edit("pipeline.yaml", f"{one}  each: {item}\n  off: {{if: false, outputs: [o], shell: x}}\n")
    assert project.run("validate").out == "ok: 4 stages, with the items of each `foreach`, 1 skipped\n"


def requiring(project: Project, **conditions: str) -> Project:
    """Write a model stage with these conditions, beside a stage that makes `made.txt`."""
    stages: dict[str, Any] = {
        "make": {"inputs": ["in.txt"], "outputs": ["made.txt"], "shell": "cp in.txt made.txt"},
        "code": {"requires": conditions, "inputs": ["in.txt"], "outputs": ["app.py"], "llm": {"returns": "code"}},
    }
    return project.write({**scripted(stages, {"code": ["x = 1\n"]}), "in.txt": "one\n"})


def test_a_condition_that_is_not_met_is_in_the_plan_which_promises_no_call(project: Project) -> None:
    requiring(project, file_exists="gone.txt")
    planned, validated = project.run("plan"), project.run("validate")
    assert (planned.code, "LLM calls" in planned.out) == (0, False)
    for shown in (planned.err, validated.err):
        assert "warning[W669]: code: requires file_exists gone.txt: it is not there (E318)" in shown
    built = project.build("-k")
    assert "requires file_exists gone.txt: it is not there" in built.err
    assert project.run("plan").err == planned.err
    project.write({"gone.txt": "\n"})
    assert "LLM calls 1" in project.run("plan").out


def test_a_condition_that_a_stage_may_still_meet_is_in_no_plan(project: Project) -> None:
    requiring(project, file_exists="made.txt", file_absent="there.txt")
    planned = project.run("plan")
    assert ("LLM calls 1" in planned.out, planned.err) == (True, "")
    project.write({"there.txt": "\n"})
    planned = project.run("plan")
    assert "requires file_absent there.txt: it is there (E318)" in planned.err
    assert ("LLM calls" in planned.out, "made.txt: it is" in planned.err) == (False, False)
