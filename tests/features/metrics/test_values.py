"""Metrics files: which values they have, and how two versions of a file differ."""

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.cli.project_loading import read_yaml
from orch23.features.metrics.values import (
    MAX_METRICS_BYTES,
    MetricChange,
    MetricsError,
    MetricValue,
    compare_metrics,
    flatten,
    read_metrics,
)

_KEYS = st.text("ab.", max_size=3)
_FINITE = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
_LEAVES = _FINITE | st.floats() | st.booleans() | st.text(max_size=3) | st.none() | st.lists(st.integers(), max_size=2)
_TREES = st.dictionaries(
    _KEYS, st.recursive(_LEAVES, lambda below: st.dictionaries(_KEYS, below, max_size=3), max_leaves=8), max_size=4
)


def _read(text: str, path: str = "m.json") -> dict[tuple[str, ...], MetricValue]:
    return dict(read_metrics(text.encode(), path, read_yaml))


def test_nested_mappings_are_flattened_in_the_order_of_the_file() -> None:
    text = '{"z": 1, "loss": {"val": 1.5, "train": {"last": 2}}, "a": "x", "ok": true, "list": [1], "none": null}'
    assert [*_read(text).items()] == [
        (("z",), 1),
        (("loss", "val"), 1.5),
        (("loss", "train", "last"), 2),
        (("a",), "x"),
        (("ok",), True),
    ]


def test_yaml_and_json_have_the_same_values() -> None:
    assert _read("loss: {val: 1.5}\nok: true\n", "m.yaml") == _read('{"loss": {"val": 1.5}, "ok": true}')
    assert _read("a: 1\n", "m.yml") == {("a",): 1}


def test_a_key_with_a_dot_is_not_a_nested_key() -> None:
    assert _read('{"a.b": 1, "a": {"b": 2}}') == {("a.b",): 1, ("a", "b"): 2}


@pytest.mark.parametrize(
    ("path", "text"),
    [("m.json", '{"a": NaN, "b": Infinity, "c": -Infinity}'), ("m.yaml", "a: .NaN\nb: .inf\nc: -.Inf\n")],
)
def test_nan_and_infinities_are_values(path: str, text: str) -> None:
    found = _read(text, path)
    assert math.isnan(float(found["a",]))
    assert (found["b",], found["c",]) == (math.inf, -math.inf)


def test_an_integer_of_any_length_can_be_written_again() -> None:
    found = _read('{"a": ' + "9" * 5000 + ', "b": ' + "9" * 300 + "}")
    assert found["a",] == math.inf
    assert str(found["b",]) == "9" * 300


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        ("m.json", b"{", "is not valid JSON: Expecting property name"),
        ("m.json", b"", "is not valid JSON"),
        ("m.yaml", b"a: [", "is not valid YAML: line 2"),
        ("m.json", b"[1]", "has no names"),
        ("m.yaml", b"", "has no names"),
        ("m.json", b"\xff", "is not UTF-8"),
        ("m.json", b'{"a":' * 100_000, "is nested too deeply"),
        ("m.json", b" " * (MAX_METRICS_BYTES + 1), "is larger than 1,048,576 bytes"),
    ],
)
def test_a_file_that_cannot_be_read(path: str, data: bytes, message: str) -> None:
    with pytest.raises(MetricsError, match=message):
        read_metrics(data, path, read_yaml)


def test_a_file_with_a_byte_order_mark_can_be_read() -> None:
    assert read_metrics(b'\xef\xbb\xbf{"a": 1}', "m.json", read_yaml) == {("a",): 1}


# ---- comparison -------------------------------------------------------------------------------


def test_differences_are_those_of_the_decimals() -> None:
    change = MetricChange(("a",), 0.1, 0.3)
    assert (change.status, change.difference) == ("changed", 0.2)
    assert change.percent == pytest.approx(200.0)
    assert MetricChange(("a",), 3, 1).difference == -2
    assert isinstance(MetricChange(("a",), 3, 1).difference, int)
    assert MetricChange(("a",), -2, -1).percent == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("before", "now", "status"),
    [
        (None, 1, "added"),
        (1, None, "removed"),
        (1, 1.0, "same"),
        (math.nan, math.nan, "same"),
        (math.nan, 1, "changed"),
        (1, math.inf, "changed"),
        (True, 1, "changed"),
        (0, False, "changed"),
        ("1", 1, "changed"),
        ("x", "x", "same"),
        (False, True, "changed"),
    ],
)
def test_what_has_no_difference(before: MetricValue | None, now: MetricValue | None, status: str) -> None:
    change = MetricChange(("a",), before, now)
    assert change.status == status
    assert change.difference in (None, 0)
    assert change.percent in (None, 0)


def test_there_is_no_percent_of_zero_and_no_difference_out_of_range() -> None:
    assert (MetricChange(("a",), 0, 5).difference, MetricChange(("a",), 0, 5).percent) == (5, None)
    assert MetricChange(("a",), -1.7e308, 1.7e308).difference is None
    assert MetricChange(("a",), 5e-324, 1e308).percent is None


def test_removed_values_come_last() -> None:
    found = compare_metrics({("a",): 1, ("b",): 2}, {("c",): 3, ("b",): 2})
    assert [(one.name, one.status) for one in found] == [(("c",), "added"), (("b",), "same"), (("a",), "removed")]


def _leaf(tree: Mapping[str, Any], name: tuple[str, ...]) -> Any:
    value: Any = tree
    for key in name:
        value = value[key]
    return value


def _count(tree: Any) -> int:
    if isinstance(tree, Mapping):
        return sum(_count(below) for below in tree.values())
    return isinstance(tree, bool | int | float | str)


@given(_TREES)
def test_flattening_loses_no_value_and_makes_none_up(tree: dict[str, Any]) -> None:
    found = [*flatten(tree)]
    assert len({name for name, _ in found}) == len(found) == _count(tree)
    assert all(_leaf(tree, name) is value for name, value in found)


@given(_TREES)
def test_a_file_is_read_as_python_wrote_it(tree: dict[str, Any]) -> None:
    found = _read(json.dumps(tree))
    changes = compare_metrics(dict(flatten(tree)), found)
    assert {one.status for one in changes} <= {"same"}


@given(_TREES, _TREES)
def test_the_other_way_round_all_is_reversed(one: dict[str, Any], other: dict[str, Any]) -> None:
    before, now = dict(flatten(one)), dict(flatten(other))
    there = {change.name: change for change in compare_metrics(before, now)}
    back = {change.name: change for change in compare_metrics(now, before)}
    assert there.keys() == back.keys() == before.keys() | now.keys()
    opposite = {"added": "removed", "removed": "added", "same": "same", "changed": "changed"}
    for name, change in there.items():
        assert back[name].status == opposite[change.status]
        assert (back[name].difference is None) == (change.difference is None)
        assert back[name].difference == (None if change.difference is None else -change.difference)
        # JSON has neither NaN nor infinities.
        json.dumps([change.difference, change.percent], allow_nan=False)


@given(_FINITE, _FINITE)
def test_numbers_that_differ_have_a_difference_with_the_right_sign(before: float, now: float) -> None:
    change = MetricChange(("a",), before, now)
    assert (change.status == "same") == (Decimal(before) == Decimal(now))
    if change.difference:
        assert (change.difference > 0) == (now > before)
