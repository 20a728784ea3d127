"""`$schema` decides which draft a schema is applied as; words that would have no effect are reported."""

from typing import Any

import pytest

from orch23.checks.schema_drafts import DRAFTS, draft_fault, draft_of, ignored_words
from orch23.checks.schema_validator import MAX_STEPS, MAX_UNEVALUATED, PatternError, make_validator, schema_fault

NEW = "https://json-schema.org/draft/2020-12/schema"
OLD = "http://json-schema.org/draft-07/schema#"
PAIR = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}


def is_valid(schema: Any, value: Any) -> bool:
    assert schema_fault(schema) is None
    return make_validator(schema).is_valid(value)


@pytest.mark.parametrize("draft", DRAFTS, ids=lambda one: one.name)
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("end", ["", "#"])
def test_each_form_of_a_uri_selects_its_draft(draft: Any, scheme: str, end: str) -> None:
    uri = f"{scheme}:{draft.uri.partition(':')[2].rstrip('#')}{end}"
    assert draft_of({"$schema": uri}) is draft
    assert schema_fault({"$schema": uri, "type": "object"}) is None


def test_without_a_uri_draft_7_applies_and_another_uri_is_an_error() -> None:
    for schema in ({}, True, {"type": "object"}):
        assert draft_of(schema) is DRAFTS[3]
    for uri in (
        "https://example.org/own",
        "http://json-schema.org/schema#",
        "",
        "./local.json",
        "https://json-schema.org/draft/2020-12",
    ):
        message, pointer = schema_fault({"$schema": uri}) or ("", "")
        assert ("not the URI of a draft" in message, NEW in message, pointer) == (True, True, "/$schema")


@pytest.mark.slow
def test_each_draft_gives_the_verdict_of_the_library() -> None:
    """Compare with the classes of the library, for schemas that mean another thing in each draft."""
    schemas: list[dict[str, Any]] = [
        {"exclusiveMinimum": True, "minimum": 1},
        {"exclusiveMinimum": 1},
        {"items": [{"type": "string"}], "additionalItems": False},
        PAIR,
        {"dependentRequired": {"a": ["b"]}},
        {"contains": {"const": 1}, "minContains": 2},
        {"const": 1},
        {"unevaluatedProperties": False},
        {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
        {"$ref": "#/definitions/x", "maximum": 0, "definitions": {"x": {"type": "integer"}}},
        {"if": {"type": "integer"}, "then": {"minimum": 5}},
        {"dependencies": {"a": ["b"]}},
        {"divisibleBy": 2},
        {"patternProperties": {"^a": {"type": "integer"}}, "unevaluatedProperties": False},
    ]
    values: list[Any] = [
        0,
        1,
        2,
        5,
        "x",
        {},
        {"a": 1},
        {"a": 1, "b": 2},
        {"a": "x"},
        [1],
        [1, 1],
        ["x"],
        ["x", 1],
        ["x", 1, 2],
        [1, "x"],
    ]
    compared = 0
    for draft in DRAFTS:
        for rules in schemas:
            schema = {"$schema": draft.uri, **rules}
            if schema_fault(schema) is None:
                expected = [draft.validator(schema).is_valid(value) for value in values]
                assert [make_validator(schema).is_valid(value) for value in values] == expected, schema
                compared += 1
    assert compared > 40


@pytest.mark.parametrize(
    ("rules", "uri"),
    [
        ({"prefixItems": [{}]}, NEW),
        ({"unevaluatedProperties": False}, NEW),
        ({"properties": {"a": {"dependentRequired": {"x": ["y"]}}}}, NEW),
        ({"contains": {}, "minContains": 2}, NEW),
        ({"$defs": {"a": {"$anchor": "here"}}}, NEW),
        (
            {"items": [{}], "additionalItems": {}, "dependentSchemas": {"a": {}}},
            "https://json-schema.org/draft/2019-09/schema",
        ),
        ({"anyOf": [{"not": {"prefixItems": []}}]}, NEW),
        ({"$ref": "#/components/a", "components": {"a": {"prefixItems": []}}}, NEW),
        ({"$schema": NEW, "dependencies": {"a": ["b"]}}, OLD),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1}, NEW),
    ],
)
def test_a_word_of_another_draft_is_an_error_with_a_line_that_helps(rules: dict[str, Any], uri: str) -> None:
    message, _ = schema_fault(rules) or ("", "")
    assert f'"$schema": "{uri}"' in message
    assert draft_fault({**rules, "$schema": uri}) is None


def test_words_of_two_drafts_at_once_have_to_be_replaced() -> None:
    message, _ = schema_fault({"prefixItems": [], "dependencies": {}}) or ("", "")
    assert message.endswith(
        "`prefixItems` is a word of other drafts, and not of draft 7, which applies without `$schema`; replace it"
    )


def test_names_and_data_are_no_words() -> None:
    schema: dict[str, Any] = {
        "properties": {"prefixItems": {"const": {"prefixItems": 1}}, "$schema": {"type": "string"}},
        "$defs": {"unevaluatedItems": {"enum": [{"dependentRequired": 1}]}},
        "default": {"minContains": 1},
    }
    assert schema_fault(schema) is None
    assert ignored_words(schema) == ()


def test_words_that_no_draft_knows_are_listed_and_have_no_effect() -> None:
    schema: dict[str, Any] = {
        "nullable": True,
        "x-order": 1,
        "properties": {"a": {"discriminator": {"x-no": 1}, "deprecated": True, "requierd": []}},
    }
    assert ignored_words(schema) == ("discriminator", "nullable", "requierd", "x-order")
    assert is_valid(schema, {"a": 1})


@pytest.mark.parametrize(
    "below",
    [
        {"properties": {"a": {"$schema": NEW}}},
        {"definitions": {"x": {"$schema": NEW, "$id": "x"}}},
        {"items": {"$schema": "http://other"}},
    ],
)
def test_a_draft_below_the_first_level_is_an_error(below: dict[str, Any]) -> None:
    message, _ = schema_fault(below) or ("", "")
    assert "below the first level" in message


def test_a_draft_in_data_that_a_reference_leads_to_selects_no_other_validator() -> None:
    schema: dict[str, Any] = {"$ref": "#/const/x", "const": {"x": {"$schema": OLD, "pattern": "^[0-9]+$"}}}
    below = next(iter(make_validator({"$schema": NEW, **schema}).descend("7", schema["const"]["x"])), None)
    assert below is None
    made = make_validator({"$schema": NEW})
    assert type(made.evolve(schema={"$schema": OLD})) is type(made)


def test_a_list_of_items_in_the_newest_draft_is_an_error_and_not_a_crash_of_the_library() -> None:
    message, pointer = schema_fault({"$schema": NEW, "items": [{"type": "string"}]}) or ("", "")
    assert "draft 2020-12" in message
    assert pointer == "/items"


@pytest.mark.slow
def test_rules_that_compare_all_keys_have_a_largest_value() -> None:
    schema: dict[str, Any] = {"$schema": NEW, "properties": {"a": {}}, "unevaluatedProperties": {"type": "integer"}}
    assert is_valid(schema, {str(number): number for number in range(MAX_UNEVALUATED)})
    with pytest.raises(PatternError, match="at most"):
        is_valid(schema, {str(number): number for number in range(MAX_UNEVALUATED + 1)})
    message, _ = schema_fault({**schema, "patternProperties": {"^(a|b*)*$": {}}}) or ("", "")
    assert "could take long" in message
    with pytest.raises(PatternError, match="keys of at most"):
        is_valid({**schema, "patternProperties": {"^a+$": {}}}, {"a" * 20_000: 1})


@pytest.mark.slow
def test_the_steps_of_a_validator_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    schema: dict[str, Any] = {"unevaluatedProperties": False}
    for _ in range(8):
        schema = {"allOf": [schema, schema], "unevaluatedProperties": False}
    monkeypatch.setattr("orch23.checks.schema_validator.MAX_STEPS", MAX_STEPS // 20_000)
    with pytest.raises(PatternError, match="too many steps"):
        is_valid({"$schema": NEW, **schema}, {})


def test_a_large_schema_is_searched_for_unevaluated_keys_once() -> None:
    looked: list[object] = []

    class Counted(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            looked.append(key)
            return super().__contains__(key)

    schema: dict[str, Any] = {"properties": {str(number): Counted() for number in range(500)}}
    make_validator(schema)
    assert looked.count("unevaluatedProperties") == 500


@pytest.mark.parametrize("fault", [{"$ref": "other.json"}, {"pattern": "(a)\\1"}])
def test_a_key_named_like_a_word_has_a_schema_and_an_annotation_has_none(fault: dict[str, Any]) -> None:
    for name in ("default", "enum", "const", "examples"):
        message, pointer = schema_fault({"properties": {name: fault}}) or ("", "")
        assert message
        assert pointer.startswith(f"/properties/{name}")
    assert schema_fault({"x-example": fault}) is None


def test_what_a_reference_leads_to_outside_of_schemas_may_be_of_any_type() -> None:
    assert schema_fault({"$ref": "#/x/a", "x": {"a": {"pattern": ["("], "patternProperties": 1}}}) is None


PAIR_BELOW = {"type": "array", "prefixItems": [{"type": "string"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"p": {"$ref": "#/parts/A%20B"}}, "parts": {"A B": PAIR_BELOW}},
        {"properties": {"p": {"$ref": "#/x-list/0"}}, "x-list": [PAIR_BELOW]},
        {"$id": "http://a/b", "properties": {"p": {"$ref": "b#/parts/A"}}, "parts": {"A": PAIR_BELOW}},
    ],
)
def test_words_are_found_wherever_a_reference_leads(schema: dict[str, Any]) -> None:
    message, _ = schema_fault(schema) or ("", "")
    assert f'"$schema": "{NEW}"' in message


@pytest.mark.parametrize("reference", ["http://x/y", "#/x", "#/x-list/7"])
def test_a_reference_to_no_schema_is_found_before_a_value_is_judged(reference: str) -> None:
    for name in ("a", "default", "const", "enum", "examples"):
        message, _ = schema_fault({"properties": {name: {"$ref": reference}}, "x": 5, "x-list": []}) or ("", "")
        assert message.startswith(f"`$ref` leads to `{reference}`")


@pytest.mark.parametrize(
    ("draft", "rules", "good", "bad"),
    [
        (0, {"extends": {"type": "object"}}, {}, 1),
        (0, {"properties": {"n": {"type": "number", "required": True}}}, {"n": 1}, {}),
        (1, {"minimum": 0, "exclusiveMinimum": True}, 1, 0),
    ],
)
def test_words_that_mean_something_else_in_old_drafts_are_words_there(
    draft: int, rules: dict[str, Any], good: Any, bad: Any
) -> None:
    schema = {"$schema": DRAFTS[draft].uri, **rules}
    assert (is_valid(schema, good), is_valid(schema, bad)) == (True, False)
