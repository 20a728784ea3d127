"""A template that writes an input itself, and not its text, is refused: a model must not get its fields."""

import pytest

from tests.project import Project

PIPELINE = "version: 1\nstages:\n  a: {inputs: [in.txt], outputs: [o.txt], render: t.j2}\n"


@pytest.mark.parametrize(
    "template",
    ["{{ inputs['in.txt'] }}", "{{ inputs }}", "{{ inputs[0] ~ '' }}", "{{ inputs | join }}", "{{ inputs | string }}"],
)
def test_an_input_is_no_text(project: Project, template: str) -> None:
    project.write({"pipeline.yaml": PIPELINE, "in.txt": "hi\n", "t.j2": f"a line\n{template}\n"})
    built = project.build()
    assert (built.code, project.exists("o.txt")) == (1, False)
    assert "error[E832]: `in" in built.err
    assert "not a text: write `" in built.err
    assert "--> t.j2:2:" in built.err
    assert "Struct" not in built.err
    assert "digest" not in built.err


def test_a_list_of_inputs_shows_their_names_only(project: Project) -> None:
    project.write({"pipeline.yaml": PIPELINE, "in.txt": "hi\n", "t.j2": "{{ inputs | list }} {{ inputs[0].text }}"})
    assert project.build().code == 0
    assert project.read("o.txt") == "[<input in.txt>] hi\n"


def test_a_plan_reports_it(project: Project) -> None:
    project.write({"pipeline.yaml": PIPELINE, "in.txt": "hi\n", "t.j2": "{{ inputs[0] }}"})
    planned = project.run("plan")
    assert (planned.code, "error[E832]" in planned.err) == (65, True), planned.err
