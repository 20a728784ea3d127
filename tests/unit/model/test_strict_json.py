"""Strict JSON agrees with `json` on plain values, and refuses texts with two meanings."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model import parsing
from orch23.model.parsing import StrictJsonError, parse_json, parse_stored

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN, st.sampled_from([None, 2]), st.booleans())
def test_what_json_writes_is_read_back(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parse_json(text) == json.loads(text)


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \n\\u', max_size=60))
def test_any_text_is_read_as_json_reads_it_or_refused(text: str) -> None:
    try:
        value = parse_json(text)
    except StrictJsonError as refused:
        place = (refused.line, refused.column)
    else:
        assert value == json.loads(text)
        return
    assert min(place) >= 1


@pytest.mark.parametrize(
    ("text", "kind", "line", "column"),
    [
        ('{"a": 1,\n "a": 2}', "duplicate", 2, 2),
        ('{"a": {"b": 1, "\\u0062": 2}}', "duplicate", 1, 16),
        ("[NaN]", "number", 1, 2),
        ("[-Infinity]", "number", 1, 2),
        ("[1e999]", "number", 1, 2),
        ("9" * 5000, "number", 1, 1),
        ("{} {}", "trailing", 1, 4),
        ("{}\n```", "trailing", 2, 1),
        ('["\\ud800"]', "surrogate", 1, 2),
        ('["\ud800"]', "surrogate", 1, 2),
        ("\ufeff{}", "bom", 1, 1),
        ("", "empty", 1, 1),
        (" \n ", "empty", 2, 2),
        ("```json\n{}\n```", "syntax", 1, 1),
        ("Here it is: {}", "syntax", 1, 1),
        ("{'a': 1}", "syntax", 1, 2),
        ("[1,]", "syntax", 1, 4),
        ('{"a": 1,}', "syntax", 1, 9),
        ('{"a" 1}', "syntax", 1, 6),
        ("[01]", "syntax", 1, 3),
        ("[1", "syntax", 1, 3),
        ('"a\nb"', "syntax", 1, 3),
        ('"a', "syntax", 1, 1),
        ('"\\x"', "syntax", 1, 2),
        ("[1 2]", "syntax", 1, 4),
        ("[\u00a01]", "syntax", 1, 2),
    ],
)
def test_what_is_not_plain_json_is_refused_with_its_place(text: str, kind: str, line: int, column: int) -> None:
    with pytest.raises(StrictJsonError) as caught:
        parse_json(text)
    assert (caught.value.kind, caught.value.line, caught.value.column) == (kind, line, column)
    assert f"line {line}, column {column}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n// a\n"a": 1}', "a key in double quotes is expected, not a comment"),
        ('{"a": 1 # one\n}', "a `,` or a `}` is expected, not a comment"),
        ('{"a": /* one */ 1}', "a value is expected, not a comment"),
        ("{'a': 1}", "a key in double quotes is expected, not \"'a':\""),
        ('<file path="a">', "a value is expected, not '<file'"),
        (f"[1 {'x' * 41}]", "a `,` or a `]` is expected"),
        ("[1", "the text ends too early"),
        ('{"a": ', "the text ends too early"),
    ],
)
def test_the_message_names_what_is_there_instead(text: str, message: str) -> None:
    with pytest.raises(StrictJsonError) as caught:
        parse_json(text)
    assert caught.value.message == message


def test_depth_is_capped_and_never_overflows_the_stack() -> None:
    assert parse_json("[" * 64 + "]" * 64) is not None
    for text in ("[" * 65 + "]" * 65, "[" * 500_000, '{"a":' * 100_000):
        with pytest.raises(StrictJsonError) as caught:
            parse_json(text)
        assert caught.value.kind == "depth"
    with pytest.raises(StrictJsonError):
        parse_json("[" * 100_000, max_depth=10**9)


def test_size_is_capped_in_bytes_not_characters() -> None:
    assert parse_json('"ää"', max_bytes=6) == "ää"
    with pytest.raises(StrictJsonError) as caught:
        parse_json('"ää"', max_bytes=5)
    assert caught.value.kind == "size"


BAD = [
    "",
    "{",
    '{"a":1,"a":1}',
    "NaN",
    "[Infinity]",
    "[1e999]",
    "[" * 200_000,
    '{"a":{"b":1,"b":2}}',
    "\ud800",
    "\ufeff1",
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_not_strict_is_not_read_from_the_store(text: str) -> None:
    with pytest.raises(StrictJsonError):
        parse_stored(text)
    with pytest.raises(ValueError):
        parse_stored(text.encode("utf-8", "surrogatepass"))


def test_what_is_stored_may_be_large_and_deep() -> None:
    assert parse_stored("[" * 150 + "]" * 150) is not None
    assert parse_stored(b'"' + b"a" * 2_000_000 + b'"') == "a" * 2_000_000


def test_bytes_are_utf_8() -> None:
    assert parse_json('"ä"'.encode()) == "ä"
    for data in ('"ä"'.encode("utf-16"), b'"\xff"', b'"\xed\xa0\x80"'):
        with pytest.raises(ValueError):
            parse_json(data)


@pytest.mark.parametrize("text", ['["\\ud800"]', '["\ud800"]', '["a\\udfffb", 1]'])
def test_half_of_a_surrogate_pair_may_be_allowed(text: str) -> None:
    assert parse_json(text, lone_surrogates=True) == json.loads(text)
    with pytest.raises(StrictJsonError):
        parse_json(text)
    with pytest.raises(StrictJsonError):
        parse_json(text[:-1], lone_surrogates=True)


@given(
    st.text(alphabet='{}[]",:0123456789.eE+-truefalsnNaIity \n\\ud8c\ud800\ufeff', max_size=40),
    st.integers(1, 4),
    st.booleans(),
)
def test_the_fast_reader_agrees_with_the_one_that_knows_places(text: str, depth: int, halves: bool) -> None:
    exact = outcome(lambda: parsing._Reader(text, depth, lone_surrogates=halves).whole())
    assert outcome(lambda: parse_json(text, max_depth=depth, lone_surrogates=halves)) == exact


def outcome(read: Callable[[], object]) -> str:
    try:
        return repr(read())
    except StrictJsonError as refused:
        return f"{refused.kind}: {refused}"


@given(PLAIN, st.integers(0, 6))
def test_depth_is_that_of_lists_and_mappings(value: object, depth: int) -> None:
    def levels(one: object) -> int:
        below = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if below is None else 1 + max(map(levels, below), default=0)

    text = json.dumps(value)
    if levels(value) <= depth:
        assert parse_json(text, max_depth=depth) == value
    else:
        with pytest.raises(StrictJsonError, match=f"deeper than {depth} levels"):
            parse_json(text, max_depth=depth)
