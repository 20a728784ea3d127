"""`plan` and `validate` find errors of prompts and slices that a build would find at their stages."""

import json
import re

import pytest

from tests.e2e.pipelines import pipeline
from tests.project import Project

pytestmark = pytest.mark.slow

STAGES = """\
  first: {inputs: ["spec.md#Design"], outputs: [first.md], llm: {prompt: first.md.j2, returns: text}}
  second:
    inputs: [first.md, "spec.md#Tests", "first.md#Made later"]
    outputs: [second.md]
    llm: {prompt: second.md.j2, returns: text}
    retry: {max: 1, prompt: again.md.j2}
  list: {inputs: ["spec.md#Design"], outputs: [list.txt], shell: "touch list.txt"}
"""
FILES = {
    "spec.md": "# App\n\n## Design\nx\n\n## Tests\ny\n",
    "first.md.j2": "first\n{{ inputs | blocks }}\n",
    "second.md.j2": "second\n{{ inputs | blocks }}\n",
    "again.md.j2": "again\n{{ brief.excerpt }}\n",
}


@pytest.fixture
def planned(project: Project) -> Project:
    return project.write(pipeline(STAGES, FILES))


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_a_sound_pipeline_has_no_errors(planned: Project, command: str) -> None:
    outcome = planned.run(command)
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_all_are_reported_at_once_with_their_places(planned: Project, command: str) -> None:
    planned.edit("first.md.j2", "first\n{{ inptus | blocks }}\n")
    planned.edit("again.md.j2", "again\n{{ breif.excerpt }}\n")
    planned.edit("spec.md", "# App\n\n## Desgin\nx\n\n## Test\ny\n")
    outcome = planned.run(command)
    assert outcome.code == 65
    found = re.findall(r"error\[(.*)\]: (.*)\n +--> (.*)\n", outcome.err)
    assert sorted(found) == [
        ("E832", "`breif` is not defined", "again.md.j2:2:4"),
        ("E832", "`inptus` is not defined", "first.md.j2:2:4"),
        ("E833", "`spec.md#Design`: no heading is named `Design`", "pipeline.yaml:12:19"),
        ("E833", "`spec.md#Design`: no heading is named `Design`", "pipeline.yaml:6:20"),
        ("E833", "`spec.md#Tests`: no heading is named `Tests`", "pipeline.yaml:8:24"),
    ]
    assert "2 | {{ inptus | blocks }}\n  |    ^^^^^^\n  = help: did you mean `inputs`?\n" in outcome.err
    assert "help: did you mean `Desgin`?" in outcome.err


def test_the_plan_is_shown_beside_its_errors(planned: Project) -> None:
    planned.edit("first.md.j2", "first\n{{ inptus | blocks }}\n")
    outcome = planned.run("plan")
    assert " > first " in outcome.out
    document = json.loads(planned.run("plan", "--json").out)
    assert [(one["code"], one["location"]["line"]) for one in document["errors"]] == [("E832", 2)]


def test_a_slice_of_a_file_that_a_stage_makes_is_left_to_the_build(planned: Project) -> None:
    assert planned.build().code == 1  # `first.md` has no heading `Made later`
    assert "no heading is named `Made later`" in planned.build().err
    outcome = planned.run("plan")
    assert outcome.code == 65
    assert "no heading is named `Made later`" in outcome.err


def test_a_template_is_checked_too(planned: Project) -> None:
    planned.write(pipeline("  page: {outputs: [page.md], render: page.j2}\n", {"page.j2": "{{ vras.title }}\n"}))
    outcome = planned.run("validate")
    assert (outcome.code, "`vras` is not defined" in outcome.err) == (65, True)
