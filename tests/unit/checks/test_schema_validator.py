"""The validator of JSON schemas: patterns that mean what ECMA 262 says, in a time that grows with the text alone."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.checks.schema_validator import (
    MAX_WORK,
    PatternError,
    compile_regex,
    make_validator,
    schema_fault,
)

LIMIT_S = 8  # of the processor, on a busy machine
PATTERNS = (
    *(r"^(a+)+$", r"(a|a)*b", r"^[a-z]+(-[a-z]+)*$", r"^\d{3}-\d{2,4}$", r"\bfoo\b", r"a?b*c+?", r"^(ab|cd){2,3}$"),
    *(r"[^a-c\d_]", r"^$", r"a$", r"\Aab", "", r"(?:x|y(?:z|))*$", r"^.*b.$", r"\w+\s\S", r"\Bb", r"a{0}b", "(a*)*"),
    *(r"^(a|ab)(c|bcd)$", r"[\w.-]+@[\w-]+", r"[^\n]\D\W", "(?i)AB", r"^a{2,}$", r"^\u00e9", "(?i)(a+)+"),
)


@given(st.sampled_from(PATTERNS), st.text("aabcd xyz-_1é\n@.", max_size=12))
def test_a_pattern_matches_where_python_matches_with_ascii_classes_and_a_strict_end(pattern: str, text: str) -> None:
    expected = re.search(pattern.replace("$", r"\Z"), text, re.ASCII)
    assert compile_regex(pattern)(text) == (expected is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        *[("^a$", "a", True), ("^a$", "a\n", False), ("^a$", "b\na", False), ("^.$", "\n", False), ("^.$", "é", True)],
        *[(r"^\d$", "7", True), (r"^\d$", "٣", False), (r"^\w+$", "Zürich", False), (r"^\w+$", "a_1", True)],
        *[(r"^\s$", "\t", True), (r"^\s$", "x", False), (r"^\S$", "é", True), (r"^\p{L}+$", "Zürich", True)],
        *[
            (r"^\u00e9$", "é", True),
            (r"^\ud83d\ude00$", "😀", True),
            (r"^.$", "😀", True),
            ("(?<year>[0-9]{4})", "2026", True),
        ],
        *[
            ("a", "\ud800a", True),
            ("^[^a]+$", "\ud800", True),
            ("a{,5}", "a{,5}", True),
            (r"^\\u0041$", r"\u0041", True),
        ],
    ],
)
def test_a_pattern_means_what_ecma_262_says(pattern: str, text: str, matches: object) -> None:
    assert compile_regex(pattern)(text) is matches


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r".*.*.*x", r"^(.{0,50})*$", r"(a?){30}a{30}b"])
def test_the_time_of_a_pattern_is_linear_in_the_text(pattern: str) -> None:
    start = time.process_time()
    compile_regex(pattern)("a" * 50_000 + "\n!")
    assert time.process_time() - start < LIMIT_S


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "(?=(a+)+b)",
        r"(a+)\1*",
        "(?!(a|b)*)*",
        "(?=a)(a|a)+$",
        "(?=a)(a?a?)+$",
        "(?=a)" + "a?" * 40,
        "a{1001}",
        r"a\Z",
        r"\ud83d",
    ],
)
def test_a_pattern_that_re2_does_not_support_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [(r"^(?!\.)[a-z]+$", 2_000), ("(?<=a)bc*d*", 584), (r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d).{3,}$", 45)],
)
def test_look_arounds_are_searched_for_in_short_texts(pattern: str, longest: int) -> None:
    search = compile_regex(pattern)
    assert search("abcA1") is (re.search(pattern, "abcA1") is not None)
    assert search(".abcA1") is (re.search(pattern, ".abcA1") is not None)
    start = time.process_time()
    search("a" * longest)
    assert time.process_time() - start < LIMIT_S
    with pytest.raises(PatternError, match=f"at most {longest} characters"):
        search("a" * (longest + 1))


def test_a_pattern_that_takes_too_much_memory_is_refused() -> None:
    with pytest.raises(PatternError, match="too large"):
        compile_regex(r"(?:\p{L}{1000}){1}\p{L}{1000}")


@pytest.mark.slow
def test_a_large_pattern_is_searched_for_in_short_texts_only() -> None:
    search = compile_regex("(?:.{1000})" * 5)
    assert search("a" * 5_000)
    assert not search("a" * 4_999)
    with pytest.raises(PatternError, match="too large for a text of"):
        search("a" * (MAX_WORK // 5_000))


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
def test_the_replaced_keywords_mean_the_same(schema: object, value: object, holds: object) -> None:
    assert isinstance(schema, dict)
    assert make_validator(schema).is_valid(value) is holds


def test_unique_items_of_a_long_list_take_linear_time() -> None:
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
        ({"properties": {"a": {"pattern": "("}}}, "/properties/a"),
        ({"properties": {"a/b": {"type": "strng"}}}, "/properties/a~1b/type"),
        ({"items": {"$ref": "#/definitions/a/0"}, "definitions": {"a": {"minLength": 1}}}, "/items/$ref"),
        ({"items": {"$ref": "#/minLength/0"}, "minLength": 1}, "/items/$ref"),
        ({"$id": "http://a/", "items": {"$id": "http://["}}, ""),
        ({"type": "strng"}, "/type"),
    ],
)
def test_a_schema_that_cannot_be_used_is_reported_with_its_place(schema: object, where: str) -> None:
    found = schema_fault(schema)  # type: ignore[arg-type] # what a file may hold
    assert found is not None
    assert found[1] == where


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}},
        {"items": {"$ref": "#/definitions/a%20b"}, "definitions": {"a b": {"$ref": "#/definitions/c"}, "c": {}}},
        {"definitions": {"a": {"$id": "#name"}}, "items": {"$ref": "#name"}},
        {"$id": "http://a/b.json", "definitions": {"c": {"$id": "c.json"}}, "items": {"$ref": "c.json"}},
        {"items": {"$id": "sub/", "definitions": {"c": {"$id": "c.json"}}, "items": {"$ref": "c.json"}}},
        {"items": {"$ref": "#/definitions/a~1b~0c"}, "definitions": {"a/b~c": True}},
        {"pattern": r"^\p{L}+$"},
        {"const": {"$ref": "http://nowhere"}},
        {"items": [{}, {"$ref": "#/items/0"}]},
    ],
)
def test_a_schema_that_can_be_used_is_not_refused(schema: object) -> None:
    assert schema_fault(schema) is None  # type: ignore[arg-type] # what a file may hold
