"""`--provider` and `--model`: what they replace, and what they drop."""

from typing import Any

import pytest

from orch23.language.stages import render_foreach
from orch23.load.overrides import ModelOverride
from orch23.load.pipeline import parse_pipeline
from orch23.model.diagnostic import Severity
from orch23.model.llm import OnTruncated
from orch23.steps.llm.spec import LLMStep

TEXT = """version: 1
vars: {who: openai}
defaults:
  llm: {provider: local, model: small, seed: 7, temperature: 0.5, prompt: p.j2}
stages:
  make: {shell: [x]}
  one:
    outputs: [a]
    llm: {api: chat, on_truncated: {retries: 3, factor: 4}, secrets: redact}
    retry: {max: 2, escalate: [small, big]}
  two:
    outputs: [b]
    llm: {provider: "${{ vars.who }}", base_url: "http://localhost:1", effort: high}
  each:
    foreach: {in: [u, v], as: n}
    outputs: ["${{ n }}"]
    llm: {provider: scripted, answers: a.yaml, max_tokens: 9}
    retry: {max: 1, escalate: ["${{ n }}"]}
"""


def steps(swap: ModelOverride) -> tuple[dict[str, LLMStep], dict[str, Any], list[str]]:
    parsed = parse_pipeline(TEXT, "p.yaml", override=swap)
    assert parsed.pipeline is not None, [str(d) for d in parsed.diagnostics]
    assert all(d.severity is Severity.NOTE for d in parsed.diagnostics)
    stages: Any = parsed.pipeline.stages
    _, one, two, each = stages
    items = [built.stage for built in render_foreach(each, [("u", "u"), ("v", "v")], {})]
    found: Any = [one, two, *items]
    retries = {stage.name: stage.retry.escalate for stage in found}
    return {stage.name: stage.step for stage in found}, retries, [str(d) for d in parsed.diagnostics]


def test_without_options_the_pipeline_selects_provider_and_model():
    found, retries, notes = steps(ModelOverride())
    assert [step.provider for step in found.values()] == ["local", "openai", "scripted", "scripted"]
    assert (found["one"].api, found["one"].secrets) == ("chat", "redact")
    assert found["one"].on_truncated == OnTruncated(3, 4)
    assert (found["two"].api, found["two"].on_truncated, found["two"].secrets) == (None, None, "refuse")
    assert retries["each@v"] == ("v",)
    assert notes == []


def test_a_provider_is_that_of_every_stage_and_takes_the_fields_of_the_others_away():
    found, retries, notes = steps(ModelOverride("openai", None, frozenset({"answers", "seed"})))
    assert {step.provider for step in found.values()} == {"openai"}
    assert {step.model for step in found.values()} == {"small"}
    assert {step.seed for step in found.values()} == {None}
    assert {step.answers for step in found.values()} == {None}
    assert (found["each@u"].max_tokens, found["two"].effort) == (9, "high")
    assert retries["one"] == ("small", "big")
    (note,) = notes
    assert "`--provider openai` drops `answers`, `api`, `seed`, `temperature` of each, one, two" in note
    assert note.startswith("note[W802]: ")


def test_an_address_and_settings_stay_with_the_provider_they_are_of():
    kept, _, _ = steps(ModelOverride("openai"))
    assert (kept["two"].base_url, kept["two"].effort) == ("http://localhost:1", "high")
    assert kept["one"].temperature is None
    dropped, _, notes = steps(ModelOverride("anthropic"))
    assert (dropped["two"].base_url, dropped["two"].effort) == (None, None)
    assert dropped["one"].api is None
    assert "`api`, `base_url`, `effort`" in notes[0]


def test_a_model_is_that_of_every_attempt():
    found, retries, notes = steps(ModelOverride(model="big"))
    assert {step.model for step in found.values()} == {"big"}
    assert {step.provider for step in found.values()} == {"local", "openai", "scripted"}
    assert set(retries.values()) == {()}
    (note,) = notes
    assert "`--model big` drops `retry.escalate` of each, one" in note


def test_a_pipeline_may_leave_both_to_the_command_line():
    text = "version: 1\nstages:\n  s: {llm: {prompt: p.j2}, outputs: [a]}\n"
    missing = parse_pipeline(text, "p.yaml")
    assert [d.code for d in missing.diagnostics] == ["E810", "E810"]
    parsed = parse_pipeline(text.replace("p.j2", "p.j2, seed: 3"), "p.yaml", override=ModelOverride("local", "m"))
    assert parsed.pipeline is not None
    assert parsed.diagnostics == ()
    stage: Any = parsed.pipeline.stages[0]
    assert (stage.step.provider, stage.step.model, stage.step.seed) == ("local", "m", 3)


@pytest.mark.parametrize("field", ["seed: x", "answers: /a", "temprature: 1"])
def test_mistakes_stay_mistakes_in_what_is_kept(field):
    text = f"version: 1\nstages:\n  s: {{llm: {{provider: p, model: m, prompt: p, {field}}}, outputs: [a]}}\n"
    assert parse_pipeline(text, "p.yaml", override=ModelOverride("local", "m")).pipeline is None
