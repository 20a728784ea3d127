"""The wire schema: nothing in it that structured output refuses, nothing that would refuse what the schema wants."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import canonical_json, digest_bytes
from orch23.model.llm import Proposal, RefusedResponse
from orch23.model.pipeline import WriteScope
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.providers.wire import FILES_SCHEMA, MAX_SCHEMA_NODES, reduce_schema, sent_schema, wire_schema
from orch23.steps.llm.spec import LLMStep

TEXT = {"type": "string"}
FIXED = {"additionalProperties": False}


def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "required": required or list(properties), **FIXED}


def plain(schema):
    return json.loads(canonical_json(schema))


def sdk_reduces(schema):
    from anthropic import transform_schema  # noqa: PLC0415 - heavy

    return transform_schema(plain(schema))


# ---- the envelope of files ------------------------------------------------------------------------


def answer(**changes) -> dict:
    write = {"path": "a.py", "base_sha256": None, "content": "x = 1\n"}
    return {"summary": "s", "writes": [write], "deletes": [], "error": None, **changes}


def judged(value, base=None):
    jsonschema.validate(value, plain(FILES_SCHEMA))
    step = LLMStep(provider="anthropic", model="m", prompt="p")
    write_scope = WriteScope(write=("**",))
    return judge_response(
        json.dumps(value),
        "end",
        ProposalScope(cwd=".", write_scope=write_scope, base=base or {"a.py": None}),
        step=step,
        outputs=("a.py",),
    )


def test_the_sdk_would_change_nothing_in_the_envelope() -> None:
    assert sdk_reduces(FILES_SCHEMA) == plain(FILES_SCHEMA)


def test_the_envelope_is_flat_and_all_of_it_is_required() -> None:
    envelope = plain(FILES_SCHEMA)
    for node in (envelope, envelope["properties"]["writes"]["items"]):
        assert set(node["required"]) == set(node["properties"])
        assert node["additionalProperties"] is False
    assert "enum" not in canonical_json(FILES_SCHEMA).decode()


def test_no_digest_is_in_the_envelope_that_is_sent() -> None:
    sent = plain(sent_schema(FILES_SCHEMA))
    entry = sent["properties"]["writes"]["items"]
    assert set(entry["properties"]) == set(entry["required"]) == {"path", "content"}
    assert "sha256" not in json.dumps(sent)
    assert sdk_reduces(sent) == sent
    jsonschema.validate(answer(writes=[{"path": "a.py", "content": "x = 1\n"}]), sent)


def test_the_envelope_in_fingerprints_is_the_one_of_all_versions_and_other_schemas_are_sent_as_they_are() -> None:
    pinned = "c7694c57e79c4e943dfec697aac5a384a433cb4914458c0a433eee1b731e7fb4"
    assert digest_bytes(canonical_json(FILES_SCHEMA)).sha256 == pinned
    assert sent_schema(obj(a=TEXT)) == obj(a=TEXT)
    assert sent_schema(None) is None


def test_a_response_that_fits_the_envelope_is_a_proposal() -> None:
    assert isinstance(judged(answer()), Proposal)


@pytest.mark.parametrize("claimed", [digest_bytes(b"old = 1\n").sha256, ""])
def test_a_base_that_is_echoed_or_left_empty_is_accepted(claimed: str) -> None:
    write = {"path": "a.py", "base_sha256": claimed, "content": "x = 1\n"}
    assert isinstance(judged(answer(writes=[write]), {"a.py": "old = 1\n"}), Proposal)


def test_an_empty_error_beside_writes_is_none() -> None:
    assert isinstance(judged(answer(error="")), Proposal)


def test_an_error_by_the_envelope_is_the_models_own() -> None:
    refused = judged(answer(writes=[], error="the spec contradicts itself"))
    assert isinstance(refused, RefusedResponse)
    assert refused.kind == "agent_error"
    assert "contradicts itself" in refused.diagnostics[0].message


# ---- the reduction --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (obj(a=TEXT), obj(a=TEXT)),
        ({"properties": {"a": TEXT}}, {**obj(a=TEXT), "required": []}),
        ({**obj(a=TEXT), "additionalProperties": True}, obj(a=TEXT)),
        ({**obj(a=TEXT), "$schema": "x", "$id": "y", "$comment": "z"}, obj(a=TEXT)),
        ({"type": "array", "items": TEXT, "minItems": 1}, {"type": "array", "items": TEXT, "minItems": 1}),
        ({"type": ["string", "null"]}, {"anyOf": [TEXT, {"type": "null"}]}),
        ({"type": ["string"], "description": "d"}, {**TEXT, "description": "d"}),
        ({"oneOf": [TEXT, {"type": "integer"}]}, {"anyOf": [TEXT, {"type": "integer"}]}),
        ({"allOf": [TEXT], "title": "T"}, {**TEXT, "title": "T"}),
        ({"type": "string", "enum": ["a", "b"]}, {"enum": ["a", "b"]}),
        ({"const": 3, "description": "three"}, {"const": 3, "description": "three"}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
    ],
)
def test_rules_that_the_subset_has_are_kept(schema, expected) -> None:
    assert plain(reduce_schema(schema)) == expected
    assert sdk_reduces(expected) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "pattern": "^a"}, {**TEXT, "description": '{"pattern": "^a"}'}),
        (
            {"type": "integer", "minimum": 1, "description": "n"},
            {"type": "integer", "description": 'n\n\n{"minimum": 1}'},
        ),
        (
            {"type": "array", "items": TEXT, "minItems": 2},
            {"type": "array", "items": TEXT, "description": '{"minItems": 2}'},
        ),
        ({"type": "string", "format": "regex"}, {**TEXT, "description": '{"format": "regex"}'}),
    ],
)
def test_rules_that_the_subset_lacks_are_in_the_description(schema, expected) -> None:
    assert plain(reduce_schema(schema)) == expected
    assert sdk_reduces(expected) == expected


def test_references_are_written_out() -> None:
    schema = {
        **obj(a={"$ref": "#/$defs/id", "description": "mine"}, b={"$ref": "#/definitions/x~1y"}),
        "$defs": {"id": {**TEXT, "description": "an id"}},
        "definitions": {"x/y": {"$ref": "#/$defs/id"}},
    }
    expected = obj(a={**TEXT, "description": "mine"}, b={**TEXT, "description": "an id"})
    assert plain(reduce_schema(schema)) == expected


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {},
        obj(a={}),
        obj(a=True),
        {"type": "object"},
        {"type": "object", "additionalProperties": TEXT},
        {**obj(a=TEXT), "additionalProperties": TEXT},
        {**obj(a=TEXT), "patternProperties": {"^x": TEXT}},
        {**obj(a=TEXT), "required": ["a", "b"]},
        {"type": "array"},
        {"type": "file"},
        {"type": {"odd": 1}},
        {"type": []},
        {"allOf": [obj(a=TEXT), obj(b=TEXT)]},
        {"not": TEXT},
        {"enum": [[1], [2]]},
        obj(a={"$ref": "other.json#/x"}),
        obj(a={"$ref": "#/$defs/none"}),
        {"$ref": "#"},
        {"$defs": {"t": obj(next={"$ref": "#/$defs/t"})}, "$ref": "#/$defs/t"},
        obj(required=["x0"], **{f"x{n}": TEXT for n in range(30)}),
        obj(**{f"x{n}": {"type": ["string", "null"]} for n in range(17)}),
    ],
)
def test_what_the_reduced_form_would_contradict_is_not_sent(schema) -> None:
    assert reduce_schema(schema) is None


def test_a_schema_that_grows_without_bounds_ends() -> None:
    defs = {f"d{n}": obj(**{k: {"$ref": f"#/$defs/d{n + 1}"} for k in "abcd"}) for n in range(20)}
    assert reduce_schema({"$ref": "#/$defs/d0", "$defs": {**defs, "d20": TEXT}}) is None
    deep: dict = TEXT
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    assert reduce_schema(deep) is None
    assert reduce_schema(obj(**{f"x{n}": TEXT for n in range(MAX_SCHEMA_NODES + 1)})) is None


LEAVES = st.sampled_from([
    TEXT,
    {"type": "integer", "minimum": 0},
    {"type": ["number", "null"]},
    {"enum": ["a", 1, None]},
    {"const": True, "type": "boolean"},
    {"type": "string", "format": "uuid", "maxLength": 5, "title": "t"},
    {"$ref": "#/$defs/d"},
    {},
    {"type": "object"},
])  # fmt: skip
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "uniqueItems": True}, inner),
        st.builds(lambda a, b: {"properties": {"a": a, "b": b}, "required": ["a"], "description": "d"}, inner, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a: {"oneOf": [a], "default": 3}, inner),
    ),
    max_leaves=8,
)


@given(SCHEMAS)
def test_the_sdk_would_change_nothing_in_any_reduced_schema(schema) -> None:
    found = reduce_schema({**schema, "$defs": {"d": {"type": "integer"}}})
    if found is not None:
        assert sdk_reduces(found) == plain(found)
        assert reduce_schema(found) is None or plain(reduce_schema(found)) == plain(found)


@given(SCHEMAS)
def test_the_schema_that_is_reduced_is_left_as_it_was(schema) -> None:
    before = canonical_json(schema)
    reduce_schema(schema)
    assert canonical_json(schema) == before


# ---- by step --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returns", "expected"), [("files", FILES_SCHEMA), ("json", obj(a=TEXT)), ("text", None), ("code", None)]
)
def test_each_kind_of_response_has_its_wire_schema(returns, expected) -> None:
    step = LLMStep(provider="anthropic", model="m", prompt="p", returns=returns)
    assert wire_schema(step, obj(a=TEXT)) == expected
    assert wire_schema(LLMStep(provider="anthropic", model="m", prompt="p", returns="json"), None) is None


@pytest.mark.needs("vendors")
def test_no_client_library_is_imported_to_make_it() -> None:
    script = (
        "import sys; from orch23.providers.registry import ADAPTERS; "
        "ADAPTERS['anthropic'].wire; print([m for m in ('anthropic', 'openai', 'httpx2') if m in sys.modules])"
    )
    environ = {"PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "node",
    [
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"$dynamicRef": "#node"}}},
        {"type": "object", "properties": {"a": {"$recursiveRef": "#"}}},
        {"type": "object", "properties": {"a": {"$ref": "#node"}}},
    ],
)
def test_rules_of_newer_drafts_that_the_reduced_form_lacks_are_not_sent(node) -> None:
    """Otherwise correct responses would be forbidden."""
    assert reduce_schema(node) is None
