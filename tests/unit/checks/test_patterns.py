"""Patterns of schemas: the same answers as Python's own engine, in a time that grows with the text alone."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.checks.schema_validator import (
    MAX_STATES,
    MAX_TEXT,
    PatternError,
    compile_regex,
    make_validator,
    schema_fault,
)

LIMIT_S = 8  # of the processor, on a busy machine
PATTERNS = (
    *(r"^(a+)+$", r"(a|a)*b", r"^[a-z]+(-[a-z]+)*$", r"^\d{3}-\d{2,4}$", r"\bfoo\b", r"a?b*c+?", r"^(ab|cd){2,3}$"),
    *(r"[^a-c\d_]", r"^$", r"a$", r"\Aab\Z", "", r"(?:x|y(?:z|))*$", r"^.*b.$", r"\w+\s\S", r"\Bb", r"a{0}b", "(a*)*"),
    *(r"(?=a)b|^a(?!b)", r"^(a|ab)(c|bcd)$", r"[\w.-]+@[\w-]+", r"[^\n]\D\W", "(?i)AB", r"^a{2,}$"),
)


@given(st.sampled_from(PATTERNS), st.text("aabcd xyz-_1é\n@.", max_size=12))
def test_a_pattern_is_found_where_python_finds_it(pattern: str, text: str) -> None:
    assert compile_regex(pattern)(text) == (re.search(pattern, text) is not None)


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r".*.*.*x", r"^(.{0,50})*$", r"(a?){30}a{30}b"])
def test_no_pattern_takes_more_than_the_text_asks_for(pattern: str) -> None:
    start = time.process_time()
    compile_regex(pattern)("a" * 50_000 + "\n!")
    assert time.process_time() - start < LIMIT_S


@pytest.mark.parametrize("pattern", ["(", "(?=(a+)+b)", r"(a+)\1*", "(?!(a|b)*)*", "(?i)(a+)+"])
def test_what_is_none_or_has_no_bound_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_regex(pattern)


@pytest.mark.slow
def test_a_pattern_may_have_so_many_states_and_no_more() -> None:
    """Beyond that it is searched for as look-arounds are: in short texts."""
    most = MAX_STATES - 3  # the start, and one each after `^` and after the repetition
    largest, larger = compile_regex(f"^a{{{most}}}"), compile_regex(f"^a{{{most + 1}}}")
    assert largest("a" * most)
    assert not largest("a" * (most - 1) + "b")
    assert not larger("ab")
    with pytest.raises(PatternError, match=rf"too large.* {MAX_TEXT} characters"):
        larger("a" * (MAX_TEXT + 1))


def test_look_arounds_are_searched_for_in_short_texts_alone() -> None:
    search = compile_regex(r"^(?!\.)[a-z]+$")
    assert search("abc")
    assert not search(".abc")
    with pytest.raises(PatternError, match=str(MAX_TEXT)):
        search("a" * (MAX_TEXT + 1))


@pytest.mark.parametrize(
    ("schema", "value", "holds"),
    [
        ({"uniqueItems": True}, [{"a": 1}, {"a": 2}], True),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 1.0}], False),
        ({"uniqueItems": True}, [1, True, "1", [1], None], True),
        ({"patternProperties": {"^a": {"type": "string"}}}, {"a": 1}, False),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"ab": 1}, True),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"b": 1}, False),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, {"a": 1, "b": 2}, False),
        ({"pattern": "^a$"}, 3, True),
    ],
)
def test_what_is_replaced_of_the_validator_means_the_same(schema: object, value: object, holds: object) -> None:
    assert isinstance(schema, dict)
    assert make_validator(schema).is_valid(value) is holds


def test_a_long_list_of_different_objects_is_compared_in_no_time() -> None:
    start = time.process_time()
    assert make_validator({"uniqueItems": True}).is_valid([{"a": number} for number in range(20_000)])
    assert time.process_time() - start < LIMIT_S


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"$ref": "#"}, "/$ref"),
        ({"items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"$ref": "#/definitions/a"}}}, "/items/$ref"),
        ({"items": {"$ref": "other.json"}}, "/items/$ref"),
        ({"items": [{"$ref": "#/items/1"}]}, "/items/0/$ref"),
        ({"properties": {"a": {"pattern": "(?=(a+)+)"}}}, "/properties/a"),
        ({"properties": {"a": {"patternProperties": {"(?=(a+)+)": {}}}}}, "/properties/a"),
        ({"type": "strng"}, "/type"),
    ],
)
def test_a_schema_that_cannot_be_used_is_told_with_its_place(schema: object, where: str) -> None:
    found = schema_fault(schema)  # type: ignore[arg-type] # what a file may hold
    assert found is not None
    assert found[1] == where


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}},
        {"items": {"$ref": "#/definitions/a%20b"}, "definitions": {"a b": {"$ref": "#/definitions/c"}, "c": {}}},
        {"definitions": {"a": {"$id": "#name"}}, "items": {"$ref": "#name"}},
        {"const": {"$ref": "http://nowhere"}},
        {"items": [{}, {"$ref": "#/items/0"}]},
    ],
)
def test_a_schema_that_can_be_used_is_not_refused(schema: object) -> None:
    assert schema_fault(schema) is None  # type: ignore[arg-type] # what a file may hold
