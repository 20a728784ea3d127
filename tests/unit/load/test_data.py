"""Data files and their schemas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.load.data import invalid_schema_errors, validate_data
from orch23.load.yaml_text import parse_yaml
from orch23.model.digest import Json

SCHEMA: Json = {
    "type": "object",
    "required": ["tasks"],
    "additionalProperties": False,
    "properties": {
        "tasks": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {
                    "id": {"type": "string", "pattern": "^T[0-9]+$"},
                    "n": {"type": "integer", "minimum": 1, "maximum": 3},
                    "kind": {"enum": ["a", "b"]},
                    "tags": {"type": "array", "uniqueItems": True, "maxItems": 2},
                },
            },
        }
    },
}


def test_a_data_file_is_read_as_strictly_as_a_pipeline():
    parsed = parse_yaml("a: [yes, 1]\n", "d.yaml")
    assert (parsed.tree, parsed.diagnostics) == ({"a": ["yes", 1]}, ())
    (found,) = parse_yaml("a: 1\na: 2\n", "d.yaml").diagnostics
    assert (found.code, str(found.location)) == ("E803", "d.yaml:2:1")


def test_valid_data_has_no_errors():
    assert validate_data({"tasks": [{"id": "T1", "n": 2, "kind": "a", "tags": ["x"]}]}, SCHEMA, "d.json") == ()


@pytest.mark.parametrize(
    ("value", "subject", "words"),
    [
        ([], None, "must be a mapping"),
        ({}, None, "`tasks` is missing"),
        ({"tasks": []}, "tasks", "is empty"),
        ({"tasks": "x"}, "tasks", "must be a list"),
        ({"tasks": [{"id": "T1"}], "more": 1}, None, "unknown key `more`"),
        ({"tasks": [{}]}, "tasks[0]", "`id` is missing"),
        ({"tasks": [{"id": "x"}]}, "tasks[0].id", "malformed"),
        ({"tasks": [{"id": "T1", "n": 0}]}, "tasks[0].n", "the minimum is 1"),
        ({"tasks": [{"id": "T1", "n": 9}]}, "tasks[0].n", "the maximum is 3"),
        ({"tasks": [{"id": "T1", "n": True}]}, "tasks[0].n", "must be a whole number"),
        ({"tasks": [{"id": "T1", "kind": "c"}]}, "tasks[0].kind", "allowed are `a`, `b`"),
        ({"tasks": [{"id": "T1", "tags": ["x", "x"]}]}, "tasks[0].tags", "the same item twice"),
        ({"tasks": [{"id": "T1", "tags": [1, 2, 3]}]}, "tasks[0].tags", "has 3 items; the maximum is 2"),
    ],
)
def test_broken_data_says_where_and_what(value, subject, words):
    (found,) = validate_data(value, SCHEMA, "d.json")
    assert (found.code, found.subject) == ("E860", subject)
    assert words in found.message


def test_with_its_text_each_error_has_a_location():
    parsed = parse_yaml("tasks:\n  - id: x\n    more: 1\nextra: 2\n", "d.yaml")
    found = validate_data(parsed.tree, SCHEMA, "d.yaml", parsed=parsed)
    assert sorted(str(d.location) for d in found) == ["d.yaml:2:9", "d.yaml:4:1"]


def test_all_missing_keys_are_named_each_once():
    found = validate_data({}, {"type": "object", "required": ["a", "b"]}, "d.json")
    assert [d.message for d in found] == ["`a` is missing", "`b` is missing"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": 3},
        [],
        "x",
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "#/definitions/none"},
        {"$ref": "other.json"},
        {"$ref": "#"},
        {"pattern": "("},
    ],
)
def test_an_unusable_schema_is_reported_and_nothing_is_fetched(schema):
    found = validate_data("x", schema, "s.json")
    assert [d.code for d in found] == ["E861"]
    is_reference = isinstance(schema, dict) and "$ref" in schema
    assert ("`$ref`" in str(found[0].hint)) == is_reference


def test_true_and_false_are_schemas():
    assert validate_data(1, True, "s.json") == ()
    assert [d.code for d in validate_data(1, False, "s.json")] == ["E860"]
    assert invalid_schema_errors({"type": "string"}, "s.json") == ()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tasks", "id", "n", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_no_data_makes_checking_raise(value):
    for found in validate_data(value, SCHEMA, "d.json"):
        assert found.code == "E860"
