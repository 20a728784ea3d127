"""`max_tokens` and the models' own maximum, in `validate` and `plan`: nothing is called."""

import pytest

from tests.project import Outcome, Project

pytestmark = pytest.mark.needs("vendors")

SMALL, LARGE = "claude-3-haiku-20240307", "claude-opus-5"
PIPELINE = """\
version: 1
name: limits
defaults: {llm: {provider: anthropic, prompt: p.j2, returns: text}}
stages:
  one:
    llm: {model: MODEL, STATED}
    RETRY
    outputs: [one.txt]
"""


def asks(project: Project, model: str, *, stated: str = "", retry: str = "") -> Project:
    text = PIPELINE.replace("MODEL", model).replace("STATED", stated).replace("RETRY", retry or "retry: 0")
    return project.write({"pipeline.yaml": text, "p.j2": "hello"})


def refused(outcome: Outcome, model: str) -> None:
    assert outcome.code == 65, outcome.err
    assert "E409" in outcome.err
    assert f"is more than {model} can return, which is 4,096 tokens" in outcome.err


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_a_stated_maximum_over_that_of_the_model_is_refused_before_a_call(project: Project, command: str) -> None:
    refused(asks(project, SMALL, stated="max_tokens: 5000").run(command), SMALL)
    assert asks(project, SMALL, stated="max_tokens: 4096").run(command).code == 0
    assert asks(project, SMALL).run(command).code == 0


def test_the_models_of_escalate_replace_that_of_the_step(project: Project) -> None:
    both = f"retry: {{max: 1, escalate: [{LARGE}, {SMALL}]}}"
    refused(asks(project, LARGE, stated="max_tokens: 5000", retry=both).run("validate"), SMALL)
    # The second model is not used without a retry, and the step's own never.
    none = f"retry: {{max: 0, escalate: [{LARGE}, {SMALL}]}}"
    assert asks(project, SMALL, stated="max_tokens: 5000", retry=none).run("validate").code == 0


def test_the_items_of_a_foreach_are_checked_too(project: Project) -> None:
    text = """\
version: 1
name: limits
stages:
  each:
    foreach: {in: [MODEL], as: model}
    llm: {provider: anthropic, model: "${{ model }}", prompt: p.j2, returns: text, max_tokens: 5000}
    outputs: ["${{ model }}.txt"]
"""
    project.write({"pipeline.yaml": text.replace("MODEL", SMALL), "p.j2": "hello"})
    refused(project.run("plan"), SMALL)
