"""`json_values`: keys that have to be what is known, in the order that is asked; no JSON makes it raise."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.checks.check import CheckInput
from orch23.checks.json_values import JSON_VALUES

REPORT = '{"task_id": "T1", "passed": true, "report": "ok"}'


def found(text: str, **options: Any) -> list[tuple[str, str | None]]:
    """Return code and subject of each error."""
    given_ = CheckInput(outputs={"a.json": text.encode()}, options=options)
    return [(one.code, one.subject) for one in JSON_VALUES.run(given_)]


def test_what_is_as_it_has_to_be_is_accepted() -> None:
    order = ["task_id", "passed", "report"]
    assert found(REPORT, values={"task_id": "T1", "passed": True}, order=order) == []
    assert found('{"a": {"x": 1, "y": [2]}}', values={"a": {"y": [2], "x": 1}}) == []


def test_every_key_that_differs_or_is_missing_is_named_at_once() -> None:
    problems = found(REPORT, values={"passed": False, "task_id": "T2", "code": 0})
    assert problems == [("E334", "a.json#/passed"), ("E334", "a.json#/task_id"), ("E334", "a.json#/code")]


@pytest.mark.parametrize(("text", "wanted"), [("1", True), ("true", 1), ("0", False), ('"1"', 1), ("null", False)])
def test_a_value_of_another_type_is_another_value(text: str, wanted: Any) -> None:
    assert found(f'{{"passed": {text}}}', values={"passed": wanted}) == [("E334", "a.json#/passed")]


@pytest.mark.parametrize("order", [["passed", "task_id", "report"], ["task_id", "passed"], ["task_id"]])
def test_the_order_is_of_all_keys(order: list[str]) -> None:
    assert found(REPORT, order=order) == [("E335", "a.json")]


def test_the_hint_has_the_required_value() -> None:
    (one,) = JSON_VALUES.run(CheckInput(outputs={"a.json": REPORT.encode()}, options={"values": {"passed": False}}))
    assert (one.message, one.hint) == ("is true, but must be false", "write false")


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("[]", {}, "E334"),
        ("{,}", {}, "E313"),
        (REPORT, {"values": [1]}, "E315"),
        (REPORT, {"order": "passed"}, "E315"),
        (REPORT, {"file": "b.json"}, "E310"),
    ],
)
def test_a_file_that_cannot_be_judged_is_reported(text: str, options: dict[str, Any], code: str) -> None:
    assert [one for one, _ in found(text, **options)] == [code]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), _JSON, max_size=4), st.dictionaries(st.text(max_size=4), _JSON, max_size=4))
def test_a_file_is_accepted_exactly_if_it_holds_every_value(value: dict[str, Any], wanted: dict[str, Any]) -> None:
    text = json.dumps(value)
    assert found(text, values=value, order=list(value)) == []
    held = {key for key in wanted if key in value and _sorted(value[key]) == _sorted(wanted[key])}
    assert [one for _, one in found(text, values=wanted)] == [f"a.json#/{key}" for key in wanted if key not in held]


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
