"""Strict YAML: one meaning, all locations, and no surprise."""

import gc
import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orch23.load.yaml_errors import DATA_LIMITS, PIPELINE_LIMITS, TextLimits, decode_text
from orch23.load.yaml_text import LazyLocations, NodeLocations, parse_yaml, parse_yaml_scalar
from orch23.model.diagnostic import Location


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("True", "True"),
        ("yes", "yes"),
        ("on", "on"),
        ("NULL", "NULL"),
        ("0", 0),
        ("-12", -12),
        ("007", "007"),
        ("0644", "0644"),
        ("0o17", "0o17"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", ".5"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.3", "1.2.3"),
        ('"1"', "1"),
        ("'true'", "true"),
        ('""', ""),
        ("٣", "٣"),
        ("a b", "a b"),
    ],
)
def test_a_scalar_has_one_meaning(text, value):
    parsed = parse_yaml(f"k: {text}\n", "f.yaml")
    assert parsed.diagnostics == ()
    assert parsed.tree == {"k": value}
    assert type(parsed.tree["k"]) is type(value)


def test_every_node_has_its_place():
    parsed = parse_yaml("stages:\n  code:\n    outputs: [a, 'b c']\n    llm: {model: m}\n", "f.yaml")
    assert parsed.tree == {"stages": {"code": {"outputs": ["a", "b c"], "llm": {"model": "m"}}}}
    assert parsed.positions["stages/code/outputs/1"] == Location("f.yaml", 3, 18, 5)
    assert parsed.positions["stages/code/outputs"] == Location("f.yaml", 3, 14, 10)
    assert parsed.positions["stages/code"] == Location("f.yaml", 2, 3, 4)
    assert parsed.positions["stages/code/llm/model"] == Location("f.yaml", 4, 18, 1)
    assert parsed.key_positions["stages/code/llm"] == Location("f.yaml", 4, 5, 3)
    assert parsed.location_of("stages/code/outputs/9") == parsed.positions["stages/code/outputs"]


def test_deeper_locations_of_a_valid_text_are_parsed_when_they_are_used(monkeypatch):
    text = 'stages:\n  "a":\n    inputs: [x.txt]\n    shell: "true"\nname: demo\n'
    places = parse_yaml(text, "p.yaml").positions
    upper = LazyLocations(text, "p.yaml", places)
    monkeypatch.setattr("orch23.load.yaml_text.parse_yaml", None)
    for path in ("", "name", "stages", "stages/a"):
        assert upper[path] == places[path]
    assert upper.get("stages/b") is None
    monkeypatch.undo()
    assert upper["stages/a/inputs/0"] == places["stages/a/inputs/0"] == Location("p.yaml", 3, 14, 5)
    assert upper.get("stages/a/inputs/1") is None
    assert dict(upper) == dict(places)
    assert len(upper) == len(places)


@pytest.mark.slow
def test_no_object_of_a_parse_outlives_its_result():
    gc.collect()
    gc.disable()
    try:
        tree = parse_yaml("stages: {a: {inputs: [x.txt]}}", "p.yaml").tree
        left = [one for one in gc.get_objects() if isinstance(one, NodeLocations)]
    finally:
        gc.enable()
    assert tree == {"stages": {"a": {"inputs": ["x.txt"]}}}
    assert left == [], "of ten thousand stages this would be 60 MB"


def test_a_byte_order_mark_and_windows_lines_change_no_place():
    parsed = parse_yaml("\ufeffa: 1\r\nb: [2]\r\n", "f.yaml")
    assert parsed.tree == {"a": 1, "b": [2]}
    assert parsed.positions["b/0"] == Location("f.yaml", 2, 5, 1)


def test_columns_count_characters():
    assert parse_yaml("日本: {é: x}\n", "f.yaml").positions["日本/é"] == Location("f.yaml", 1, 9, 1)


def test_block_texts_are_strings():
    assert parse_yaml("a: |\n  x\n  y\nb: >-\n  p\n  q\n", "f.yaml").tree == {"a": "x\ny\n", "b": "p q"}


def test_a_broken_rule_leaves_the_rest_readable():
    parsed = parse_yaml("a: &x 1\nb: *x\nb: 2\nc: !t 3\n<<: {d: 1}\n4: 5\n", "f.yaml")
    assert [(d.code, d.location and d.location.line) for d in parsed.diagnostics] == [
        ("E804", 1),
        ("E804", 2),
        ("E803", 3),
        ("E804", 4),
        ("E804", 5),
        ("E806", 6),
    ]
    assert parsed.tree == {"a": 1, "b": None, "c": "3", "4": 5}


def test_a_duplicate_key_shows_both_places():
    (found,) = parse_yaml("a:\n  k: 1\n  k: 2\n", "f.yaml").diagnostics
    assert found.location == Location("f.yaml", 3, 3, 1)
    assert found.related[0].location == Location("f.yaml", 2, 3, 1)


LIMIT_S = 5  # seconds of the processor: what grows with the square of the text takes minutes
MANY_LINES = "- a\n" * 250_000  # seconds under coverage
HOSTILE = [
    ("[" * 200_000, "E805"),
    ("- " * 200_000, "E805"),
    ("{" * 400_000, "E806"),
    ("a: " * 300_000, "E801"),
    ("? " * 300_000, "E806"),
    (MANY_LINES, "E805"),
    ("x" * (DATA_LIMITS.size_bytes + 1), "E805"),
    ("é" * (DATA_LIMITS.size_bytes // 2 + 1), "E805"),
    ("&a " * 100_000, "E804"),
    ("*a " * 100_000, "E804"),
    ("! " * 100_000, "E804"),
    ("k: " + "9" * 900_000, "E807"),
    ("k: 1e" + "9" * 900_000, "E807"),
    ('"' + "\\" * 500_000, "E801"),
    ("'" * 500_001, "E801"),
    ("%" * 100_000, "E801"),
    ("a: b: " * 100_000, "E801"),
    ("|\n" + " " * 500_000, None),
    ("\ud800", "E805"),
    ("\x00", "E805"),
    ("a: b\rc: d", "E805"),
]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [\n", "a value is expected here"),
        ("a: [b c: d]\nx\n", "a key without its `:`"),
        ("- a\nb: c\n", "a list item is expected here"),
        ("a:\n  - b\n c\n", "the indentation differs"),
        ("%YAML 9.9\n---\na\n", "this is not YAML"),
        ("a: [b, c\nd: e\n", "the list started with `[` is not closed"),
        ("*x : 1\n", "aliases"),
        ("a\n--- b", "second document"),
    ],
)
def test_syntax_errors_have_messages_of_our_own(text, message):
    assert message in parse_yaml(text, "f.yaml").diagnostics[0].message


def test_an_unclosed_bracket_shows_where_it_was_opened():
    (found,) = parse_yaml("a: [b, c\nd: e\n", "f.yaml").diagnostics
    assert "1:4" in str(found.location) or "1:4" in str(found.related[0].location)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(text, code, id=f"{n}-{code}", marks=pytest.mark.slow if text is MANY_LINES else ())
        for n, (text, code) in enumerate(HOSTILE)
    ],
)
def test_hostile_text_is_refused_with_an_error(text, code):
    start = time.process_time()
    parsed = parse_yaml(text, "f.yaml")
    assert time.process_time() - start < LIMIT_S
    assert (parsed.diagnostics[0].code if parsed.diagnostics else None) == code


def test_bytes_that_are_no_text_have_a_place():
    text, (found,) = decode_text(b"a: 1\nb: \xff\n", "f.yaml")
    assert text == ""
    assert (found.code, found.location) == ("E805", Location("f.yaml", 2, 4, 1))
    assert decode_text(b"\xef\xbb\xbfa", "f.yaml") == ("a", ())


def test_a_value_of_the_command_line_is_a_scalar_or_a_text():
    assert [parse_yaml_scalar(t) for t in ("3", "true", "null", "", "x: y", "[1", "9" * 40)] == [
        3,
        True,
        None,
        None,
        "x: y",
        "[1",
        "9" * 40,
    ]


@given(st.text(alphabet=st.sampled_from(list("ab:-[]{},&*!|>'\"%@`#?~ \n\t$.\\01é<")), max_size=80))
@example("0\n0:")
def test_no_text_makes_parsing_raise_and_every_error_has_a_location(text):
    parsed = parse_yaml(text, "f.yaml")
    lines = text.split("\n")
    for found in parsed.diagnostics:
        assert found.location is not None
        assert 1 <= found.location.line <= len(lines) + 1
        assert found.location.column >= 1
    for place in parsed.positions.values():
        assert 1 <= place.line <= len(lines)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(alphabet="ab é:#-'\"{}", max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet="abé:", max_size=4), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_json_reads_as_itself(value):
    parsed = parse_yaml(json.dumps(value), "f.yaml")
    assert parsed.diagnostics == ()
    assert parsed.tree == value


@pytest.mark.slow
@pytest.mark.parametrize("caps", [DATA_LIMITS, PIPELINE_LIMITS], ids=["data", "pipeline"])
def test_long_keys_above_many_values_are_refused_before_their_paths_fill_the_memory(caps: TextLimits) -> None:
    keys = "".join(f'"{"k" * 1_000}": {{' for _ in range(50))
    text = "{" + keys + ",".join(f"a{n}: 1" for n in range(20_000)) + "}" * 51
    parsed = parse_yaml(text, "f", caps)
    assert [one.code for one in parsed.diagnostics] == ["E805"]
    assert "the keys are too long" in parsed.diagnostics[0].message
    assert parsed.tree is None
    assert sum(map(len, parsed.positions)) <= caps.paths + len(text)


def test_long_keys_without_much_below_them_are_no_fault() -> None:
    text = "".join(f"{'k' * 1_000}{n}: {{a: 1, b: 2}}\n" for n in range(900))
    assert parse_yaml(text, "f").diagnostics == ()
