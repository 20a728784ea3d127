"""A stage, an input and a check apply a JSON schema by the draft that it names."""

import json

import pytest

from tests.project import Project

NEW = "https://json-schema.org/draft/2020-12/schema"
PAIR = {"type": "object", "properties": {"a": {"type": "array", "prefixItems": [{"type": "string"}], "items": False}}}
PIPELINES = {
    "llm": "a: {outputs: [a.json], llm: {provider: scripted, model: s, answers: ans.yaml, prompt: p.j2, returns: json, "
    "schema: s.json}}",
    "check": "a: {inputs: [s.json, v.json], outputs: [a.json], shell: cp v.json a.json, "
    "verify: [{check: json_schema, with: {schema: s.json}}]}",
    "input": "a: {inputs: [{path: v.json, schema: s.json}], outputs: [a.json], shell: cp v.json a.json}",
}


def written(project: Project, kind: str, schema: object, value: object) -> Project:
    text = json.dumps(value)
    files = {"s.json": json.dumps(schema), "v.json": text, "ans.yaml": json.dumps({"a": [text]}), "p.j2": "hi"}
    return project.write({"pipeline.yaml": f"version: 1\nstages:\n  {PIPELINES[kind]}\n", **files})


@pytest.mark.slow
@pytest.mark.parametrize("kind", PIPELINES)
def test_the_named_draft_decides(project: Project, kind: str) -> None:
    named = {"$schema": NEW, **PAIR}
    assert written(project, kind, named, {"a": ["x"]}).build().code == 0
    refused = written(project, kind, named, {"a": ["x", 1]}).build("--force", "a")
    assert refused.code != 0
    assert "items" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize("kind", PIPELINES)
def test_without_a_draft_a_newer_word_is_an_error_with_the_line(project: Project, kind: str) -> None:
    done = written(project, kind, PAIR, {"a": ["x"]}).build()
    assert done.code != 0
    assert f'"$schema": "{NEW}"' in done.err
    written(project, kind, {"$schema": NEW, **PAIR}, {"a": ["x"]})
    assert project.build().code == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", PIPELINES)
def test_words_without_effect_are_one_warning_for_each_file(project: Project, kind: str) -> None:
    schema = {"type": "object", "x-order": 1, "properties": {"a": {"nullable": True, "requierd": []}}}
    written(project, kind, schema, {"a": None})
    for done in (project.run("validate"), project.run("plan"), project.build()):
        assert done.code == 0
        assert done.err.count("W861") == 1
        assert "`nullable`, `requierd`, `x-order`" in done.err
