"""`validate` names the line of a prompt before which a provider can cache, if much that could be cached follows."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.project import Project, scripted

LONG = "word " * 1000
BAD = "Do it.\n{% if brief %}\nIt failed: {{ brief.excerpt }}\n{% endif %}\n{{ inputs | blocks }}\n"
GOOD = "Do it.\n{{ inputs | blocks }}\n{% if brief %}\nIt failed: {{ brief.excerpt }}\n{% endif %}\n"


def notes(project: Project, stage: Mapping[str, Any], files: Mapping[str, str]) -> list[dict[str, Any]]:
    llm = {"prompt": "p.j2", "returns": "code", **stage.get("llm", {})}
    stages = {"code": {"outputs": ["a.py"], "inputs": ["spec.md"], **stage, "llm": llm}}
    project.write({**scripted(stages, {}), "spec.md": LONG, **files})
    said = project.run("validate", "--output-format", "json")
    assert said.code == 0, said.err
    found: list[dict[str, Any]] = json.loads(said.out)
    # There are no scripted responses for these stages.
    return [one for one in found if one["code"] != "W669"]


def places(found: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(one["code"], one["location"]["file"], one["location"]["line"]) for one in found]


def test_feedback_before_the_inputs_is_named(project: Project) -> None:
    (note,) = notes(project, {"retry": 2}, {"p.j2": BAD})
    assert places([note]) == [("W836", "p.j2", 2)]
    assert note["severity"] == "note"
    assert "`brief` comes before text that all attempts of `code` share" in note["message"]
    assert "5,002 characters (about 1,250 tokens)" in note["message"]
    screen = project.run("validate")
    assert screen.code == 0
    assert "2 | {% if brief %}" in screen.err
    assert "move it to the end" in screen.err


@pytest.mark.parametrize(
    ("stage", "prompt", "spec"),
    [
        ({"retry": 2}, GOOD, LONG),
        ({}, BAD, LONG),  # a single attempt
        ({"retry": 2}, BAD, "word " * 700),  # too short to be cached
        ({"retry": {"max": 1, "prompt": "again.j2"}}, BAD, LONG),  # only the second attempt has its prompt
    ],
)
def test_nothing_is_named_where_it_makes_no_difference(
    project: Project, stage: Mapping[str, Any], prompt: str, spec: str
) -> None:
    assert notes(project, stage, {"p.j2": prompt, "again.j2": BAD, "spec.md": spec}) == []


@pytest.mark.parametrize("start", ["current", "baseline"])
def test_a_list_of_inputs_ends_with_the_files_of_the_last_attempt(project: Project, start: str) -> None:
    prompt = "{% for one in inputs %}- {{ one.path }}\n{% endfor %}\n{{ inputs | blocks }}\n"
    found = notes(project, {"retry": {"max": 1, "from": start}}, {"p.j2": prompt})
    assert places(found) == ([("W836", "p.j2", 1)] if start == "current" else [])
    assert all("`inputs`, which end with the files of the last attempt, come" in one["message"] for one in found)


def test_the_prompt_of_retries_is_what_further_attempts_share(project: Project) -> None:
    stage = {"retry": {"max": 2, "prompt": "again.j2"}}
    assert places(notes(project, stage, {"p.j2": BAD, "again.j2": BAD})) == [("W836", "again.j2", 2)]


def test_a_system_prompt_that_differs_is_named(project: Project) -> None:
    found = notes(project, {"retry": 1, "llm": {"system": "s.j2"}}, {"p.j2": GOOD, "s.j2": "{{ attempt }}\n"})
    assert places(found) == [("W836", "s.j2", 1)]


EACH = {"foreach": {"in": ["a", "b"], "as": "name"}, "outputs": ["${{ name }}.py"]}


def test_an_item_before_the_inputs_is_named(project: Project) -> None:
    (note,) = notes(project, EACH, {"p.j2": "Write {{ item }}.\n{{ inputs | blocks }}\n"})
    assert places([note]) == [("W836", "p.j2", 1)]
    assert "all items of `code` share" in note["message"]


def test_items_share_the_prompt_of_their_first_attempt(project: Project) -> None:
    prompts = {"p.j2": "Write {{ item }}.\n{{ inputs | blocks }}\n", "again.j2": GOOD}
    stage = {**EACH, "retry": {"max": 1, "prompt": "again.j2"}}
    assert places(notes(project, stage, prompts)) == [("W836", "p.j2", 1)]


def test_own_inputs_of_an_item_before_shared_ones_are_named(project: Project) -> None:
    files = {"p.j2": "Do it.\n{{ inputs | blocks }}\n{{ item }}", "specs/a.md": "a", "specs/b.md": "b"}
    (note,) = notes(project, {**EACH, "inputs": ["specs/${{ name }}.md", "spec.md"]}, files)
    assert places([note]) == [("W836", "p.j2", 2)]
    assert "inputs that differ come before inputs that all items" in note["message"]
    assert "5,001 characters" in note["message"]
    assert notes(project, {**EACH, "inputs": ["spec.md", "specs/${{ name }}.md"]}, files) == []


@pytest.mark.parametrize("items", [["a"], []])
def test_an_item_alone_shares_nothing(project: Project, items: list[str]) -> None:
    stage = {**EACH, "foreach": {"in": items, "as": "name"}}
    assert notes(project, stage, {"p.j2": "Write {{ item }}.\n{{ inputs | blocks }}\n"}) == []


def test_inputs_that_do_not_exist_yet_are_not_counted(project: Project) -> None:
    llm = {"prompt": "p.j2", "returns": "code"}
    stages: dict[str, dict[str, Any]] = {
        "make": {"render": {"template": "m.j2"}, "outputs": ["made.md"]},
        "code": {"outputs": ["a.py"], "inputs": ["made.md"], "llm": llm, "retry": 1},
    }
    project.write({**scripted(stages, {}), "p.j2": BAD, "m.j2": LONG})
    assert project.run("validate", "--output-format", "json").json() == []
