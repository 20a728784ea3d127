"""What fits quickly is what the validator has nothing against."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.load.complaints import complaints
from orch23.load.fitting import compile_schema
from orch23.load.schema import fits, relaxed_schema, schema

SOUND: dict[str, Any] = {
    "version": 1,
    "name": "n",
    "vars": {"a": 1, "b": ["x"]},
    "jobs": 2,
    "stop_conditions": {"max_llm_calls": 3},
    "defaults": {"sandbox": "off", "llm": {"provider": "mock", "model": "m"}},
    "stages": {
        "make": {"shell": ["cp", "a", "b"], "inputs": ["a", {"path": "c", "optional": True}], "outputs": ["b"]},
        "ask": {
            "llm": {"prompt": "p.md", "returns": "code", "temperature": 0.5},
            "outputs": ["x.py"],
            "retry": {"max": 2},
            "verify": [{"pytest": {"paths": ["t"]}}, {"check": "python_syntax"}],
        },
        "each": {"foreach": {"in": ["a"], "as": "one"}, "shell": "x", "outputs": ["${{ one }}"], "timeout": "2m"},
    },
}
_ODD = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 1.0, 2.5, "", "on", "off", "x", "${{ vars.a }}", "2m", [], {}]),
    st.sampled_from([["a"], [1], {"max": 1}, {"path": "a"}, {"nobody": 1}]),
)
_KEYS = st.sampled_from(
    ["shell", "llm", "verify", "retry", "inputs", "if", "needs", "nobody", "a b", "pools", "timeout"]
)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, one in below for path in _paths(one, (*at, key)))]


def _changed(value: Any, path: tuple[Any, ...], odd: Any, key: str) -> Any:
    if not path:
        return {**value, key: odd} if isinstance(value, dict) else odd
    inner = _changed(value[path[0]], path[1:], odd, key)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    return [inner if number == path[0] else one for number, one in enumerate(value)]


@given(st.lists(st.tuples(st.sampled_from(_paths(SOUND)), _ODD, _KEYS), max_size=2))
def test_a_value_fits_exactly_where_there_is_nothing_to_complain_of(changes: list[tuple[Any, ...]]) -> None:
    value = copy.deepcopy(SOUND)
    for path, odd, key in changes:
        try:
            value = _changed(value, path, odd, key)
        except (KeyError, IndexError, TypeError):
            continue
    assert fits()(value) == (complaints(value, relaxed_schema()) == ())


def test_a_sound_pipeline_fits() -> None:
    assert fits()(SOUND)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": 1}, True),
        ({"const": 1}, 1.0),
        ({"enum": [0, "a"]}, False),
        ({"type": "integer"}, 1.0),
        ({"type": "integer"}, 1.5),
        ({"type": "integer"}, True),
        ({"type": ["number", "null"]}, True),
        ({"minimum": 2}, True),
        ({"minimum": 2}, 1),
        ({"maximum": 2}, 3),
        ({"exclusiveMinimum": 2}, 2),
        ({"minLength": 1}, ""),
        ({"minItems": 1}, []),
        ({"minProperties": 1}, {}),
        ({"pattern": "^a"}, "ba"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "a"),
        ({"required": ["a"]}, {"b": 1}),
        ({"propertyNames": {"pattern": "^a"}}, {"b": 1}),
        ({"properties": {"a": True}, "additionalProperties": False}, {"b": 1}),
        ({"additionalProperties": {"type": "string"}}, {"b": 1}),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}}, "a"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}}, 1),
        ({"items": {"type": "string"}}, ["a", 1]),
    ],
)
def test_each_keyword_means_what_it_means_to_the_validator(schema: dict[str, Any], value: Any) -> None:
    assert compile_schema(schema)(value) == (complaints(value, schema) == ())


def test_a_keyword_that_is_not_known_is_refused_and_not_passed_over() -> None:
    fits = compile_schema({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}})
    assert fits({"b": [1, 1]})
    with pytest.raises(ValueError, match="uniqueItems"):
        fits({"a": [1, 1]})


def test_the_schema_of_pipelines_has_no_keyword_that_is_not_known() -> None:
    for part in _parts(relaxed_schema()):
        compile_schema(part)


def _parts(schema: Any) -> Iterator[Any]:
    """Give a schema and all below it."""
    if isinstance(schema, dict):
        yield schema
        for below in (*schema.get("properties", {}).values(), *(schema.get(name) for name in _BELOW)):
            yield from _parts(below)
        for branch in schema.get("oneOf", ()):
            yield from _parts(branch)


_BELOW = ("additionalProperties", "propertyNames", "items", "if", "then", "else")


def test_the_format_of_the_schema_is_one_that_the_validator_does_not_check_either() -> None:
    assert "format" in str(schema())
    assert complaints("no date", {"format": "date"}) == ()
    assert compile_schema({"format": "date"})("no date")
