"""Where the model of a stage is set, if not at its key."""

import pytest

from orch23.load.overrides import ModelOverride
from orch23.load.pipeline import parse_pipeline
from orch23.report.value_places import model_places

TEXT = """version: 1
vars: {model: gpt-9, other: x}
stages:
  s:
    outputs: [o]
    llm: {provider: openai, prompt: p.j2, returns: text, model: MODEL}
"""
OUTSIDE = "comes from outside of this file: from `--model`, `ORCH23_MODEL`"


@pytest.mark.parametrize(
    ("written", "sets", "override", "expected"),
    [
        ("gpt-9", {}, None, []),
        ('"${{ vars.model }}"', {}, None, [("`vars.model` is set here", 2)]),
        ('"${{vars.model}}"', {"model": "z"}, None, [(f"`z` {OUTSIDE}, `--set` or a file of `--vars`", 0)]),
        ('"${{ vars.model }}"', {}, "m", [(f"`m` {OUTSIDE}, `--set` or a file of `--vars`", 0)]),
        ("gpt-9", {}, "m", [(f"`m` {OUTSIDE}", 0)]),
    ],
)
def test_the_place_of_the_value_is_named(
    written: str, sets: dict[str, str], override: str | None, expected: list[tuple[str, int]]
) -> None:
    text = TEXT.replace("MODEL", written)
    pipeline = parse_pipeline(text, "p.yaml", sets=sets, override=ModelOverride(model=override)).pipeline
    assert pipeline is not None
    place = pipeline.locate("stages", "s", "llm", "model")
    assert place is not None
    found = model_places(pipeline, "s", place, text)
    assert [(one.message, one.location.line if one.location else 0) for one in found] == expected
    assert model_places(pipeline, "s", place, "") == ()
    assert model_places(pipeline, "t", place, text) == ()
