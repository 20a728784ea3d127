"""`json_schema` finds every value that does not fit, and tells an unusable schema from an unfit output."""

import json
from collections.abc import Mapping
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from orch23.checks.check import CheckInput
from orch23.checks.json_schema import JSON_SCHEMA
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json

Data: TypeAlias = "Json | bytes"  # JSON, or the bytes of a file as they are

PLAN: Json = {
    "title": "plan",
    "type": "object",
    "required": ["plan_id", "tasks"],
    "additionalProperties": False,
    "properties": {
        "plan_id": {"type": "string", "pattern": "^plan_[0-9]{4}$"},
        "tasks": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["id", "title"],
                "properties": {"id": {"type": "string"}, "title": {"type": "string", "maxLength": 10}},
            },
        },
    },
}


def _check(
    outputs: Mapping[str, Data], schema: Data = PLAN, with_: Mapping[str, Json] | None = None, **options: Json
) -> tuple[Diagnostic, ...]:
    def data(value: Data) -> bytes:
        return value if isinstance(value, bytes) else json.dumps(value).encode()

    given_ = CheckInput(
        outputs={path: data(value) for path, value in outputs.items()},
        inputs={"schema.json": data(schema)},
        options={"schema": "schema.json", **(with_ or {}), **options},
    )
    return JSON_SCHEMA.run(given_)


def test_a_valid_document_has_no_error() -> None:
    assert _check({"plan.json": {"plan_id": "plan_0001", "tasks": [{"id": "T1", "title": "do"}]}}) == ()


def test_every_invalid_value_is_reported_at_once_by_its_pointer() -> None:
    bad: Json = {"plan_id": "7", "tasks": [{"id": 1, "title": "much too long"}, {"a/b": 1}], "taks": []}
    found = _check({"plan.json": bad})
    assert [(d.code, d.subject, d.message) for d in found] == [
        ("E314", "plan.json#", "has unknown keys: `taks` (did you mean `tasks`?)"),
        ("E314", "plan.json#/plan_id", 'is "7", which does not match the pattern `^plan_[0-9]{4}$`'),
        ("E314", "plan.json#/tasks/0/id", "is the number 1, not text"),
        ("E314", "plan.json#/tasks/0/title", "has 13 characters, more than 10"),
        ("E314", "plan.json#/tasks/1", "lacks the key `id`"),
        ("E314", "plan.json#/tasks/1", "lacks the key `title`"),
    ]
    assert all("plan" in (d.hint or "") for d in found)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "object"}, [], "is a list, not an object"),
        ({"type": ["string", "null"]}, True, "is a boolean, not text or null"),
        ({"type": "boolean"}, None, "is null, not a boolean"),
        ({"type": "array"}, {}, "is an object, not a list"),
        ({"type": "integer"}, "x", 'is the text "x", not an integer'),
        ({"enum": ["red", "green"]}, "gren", 'is "gren", which is not one of "red", "green" (did you mean `green`?)'),
        ({"enum": [1, None]}, 2, "is 2, which is not one of 1, null"),
        ({"const": 1}, 2, "is 2, not 1"),
        ({"minLength": 2}, "a", "has 1 characters, fewer than 2"),
        ({"minItems": 2}, [1], "has 1 items, fewer than 2"),
        ({"maxItems": 1}, [1, 2], "has 2 items, more than 1"),
        ({"minProperties": 1}, {}, "has 0 keys, fewer than 1"),
        ({"maxProperties": 0}, {"a": 1}, "has 1 keys, more than 0"),
        ({"minimum": 2}, 1, "is 1, less than 2"),
        ({"maximum": 2}, 3, "is 3, more than 2"),
        ({"exclusiveMinimum": 2}, 2, "is 2, not more than 2"),
        ({"exclusiveMaximum": 2}, 2, "is 2, not less than 2"),
        ({"multipleOf": 2}, 3, "is 3, not a multiple of 2"),
        ({"uniqueItems": True}, [1, 1], "contains the same item twice"),
        ({"contains": {"const": 1}}, [2], "contains no item that matches `contains` of the schema"),
        ({"not": {"type": "string"}}, "a", 'is "a", which the schema excludes'),
        ({"items": [{}], "additionalItems": False}, [1, 2], "has more items than the schema allows"),
        ({"dependencies": {"a": ["b"]}}, {"a": 1}, "has a key that requires another key"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "has a key that has 2 characters, more than 1"),
        (False, 1, "is not allowed here"),
        ({"properties": {"a": False}}, {"a": 1}, "is not allowed here"),
        ({"oneOf": [{}, True]}, 1, "matches more than one of the forms of `oneOf`"),
        (
            {"anyOf": [{"type": "string"}, {"required": ["a"], "type": "object"}]},
            {},
            "matches none of the allowed forms; nearest: `/` lacks the key `a`",
        ),
        (
            {"patternProperties": {"^x": {}}, "additionalProperties": False},
            {"xa": 1, **{f"k{n}": n for n in range(7)}},
            "has unknown keys: `k0`, `k1`, `k2`, `k3`, `k4` and 2 more",
        ),
        ({"const": "short"}, "y" * 500, f'is "{"y" * 79}..., not "short"'),
    ],
)
def test_each_rule_of_the_draft_has_a_sentence(schema: Json, value: Json, message: str) -> None:
    (only,) = _check({"a.json": value}, schema)
    assert (only.code, only.message) == ("E314", message)


def test_keys_in_a_pointer_are_escaped() -> None:
    (only,) = _check({"a.json": {"a/b~c": 1}}, {"additionalProperties": {"type": "string"}})
    assert only.subject == "a.json#/a~1b~0c"


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b'{"a": 1,\n "a": 2}', 2, 2),
        (b'{"a": NaN}', 1, 7),
        (b'{"a": 1} and so on', 1, 10),
        (b"```json\n{}\n```", 1, 1),
        (b"", 1, 1),
        (b'{"a":\n "\xff"}', 2, 3),
        (b"[" * 100_000, 1, None),
    ],
)
def test_what_is_no_strict_json_is_an_error_at_its_place(data: bytes, line: int, column: int | None) -> None:
    (only,) = _check({"a.json": data}, True)
    assert (only.code, only.subject) == ("E313", "a.json")
    assert only.location is not None
    assert only.location.line == line
    assert column is None or only.location.column == column


@pytest.mark.parametrize(
    "schema",
    [
        b"{",
        b"\xff",
        [],
        "text",
        {"type": "objekt"},
        {"properties": 1},
        {"$ref": "https://example.org/schema.json"},
        {"$ref": "#/definitions/missing"},
        {"$ref": "#"},
        {"pattern": "("},
        {"patternProperties": {"(": {}}},
    ],
)
def test_an_unusable_schema_is_not_an_invalid_output(schema: Data) -> None:
    (only,) = _check({"a.json": {"k": "v"}} if schema != {"pattern": "("} else {"a.json": "v"}, schema)
    assert only.code == "E316"
    assert only.hint


def test_a_schema_at_the_limit_of_nesting_is_judged_or_refused() -> None:
    schema: Json = {"type": "integer"}
    for _ in range(60):
        schema = {"items": schema}
    value: Json = "x"
    for _ in range(60):
        value = [value]
    (only,) = _check({"a.json": value}, schema)
    assert only.code in {"E314", "E316"}


def test_a_schema_that_is_too_much_for_the_validator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr(Draft7Validator, "check_schema", too_deep)
    (only,) = _check({"a.json": 1}, {})
    assert only.code == "E316"


def test_the_schema_must_be_a_declared_input() -> None:
    (only,) = JSON_SCHEMA.run(CheckInput(outputs={"a.json": b"{}"}, options={"schema": "elsewhere.json"}))
    assert (only.code, only.subject) == ("E316", "elsewhere.json")
    assert "verify.inputs" in (only.hint or "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": None}, "missing"),
        ({"schema": 1}, "not a path"),
        ({"shema": "x"}, "did you mean `schema`?"),
        ({"files": 1}, "pattern"),
        ({"files": []}, "pattern"),
        ({"files": [1]}, "pattern"),
    ],
)
def test_a_wrong_option_is_reported(options: dict[str, Json], said: str) -> None:
    (only,) = _check({"a.json": {}}, {}, options)
    assert only.code == "E315"
    assert said in str(only)


def test_all_json_outputs_are_checked_unless_files_selects_some() -> None:
    outputs: dict[str, Data] = {"a.json": 1, "b/c.json": 1, "d.txt": 1}
    assert [d.subject for d in _check(outputs, False)] == ["a.json#", "b/c.json#"]
    assert [d.subject for d in _check(outputs, False, files="b/")] == ["b/c.json#"]
    assert [d.subject for d in _check(outputs, False, files=["d.txt", "a.json"])] == ["a.json#", "d.txt#"]


def test_a_check_that_finds_no_file_to_judge_fails() -> None:
    (only,) = _check({"a.txt": b"x"})
    assert only.code == "E310"
    (only,) = _check({"a.json": 1}, True, files=["b.json"])
    assert only.code == "E310"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab(*", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "items", "properties", "$ref", "anyOf", "oneOf", "not", "enum", "required", "pattern", "a"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(st.one_of(JSON, st.binary(max_size=20)), st.one_of(JSON, st.binary(max_size=20)))
@example({"items": ["", {"$ref": "a"}]}, {})
@example({"properties": None, "type": {"$ref": "a"}}, {})
def test_no_schema_and_no_document_make_it_raise(schema: Data, value: Data) -> None:
    assert all(found.code in {"E313", "E314", "E316"} for found in _check({"a.json": value}, schema))
