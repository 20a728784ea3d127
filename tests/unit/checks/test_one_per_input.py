"""`one_per_input`: a list in a JSON file has one entry for each input file, in their order; no JSON makes it raise."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.checks.check import CheckInput
from orch23.checks.one_per_input import ONE_PER_INPUT

FILES = ("fb/b.md", "request.md", "fb/a.md", "other.txt")
PATTERNS = ["request.md", "fb/*.md"]
RIGHT = ("request.md", "fb/a.md", "fb/b.md")


def listed(*sources: Any, key: str = "history", field: str = "source") -> dict[str, Any]:
    """Return a document with an entry for each of these."""
    return {key: [{field: one, "summary": "s"} for one in sources]}


def found(value: Any, files: tuple[str, ...] = FILES, **options: Any) -> list[str]:
    """Return the code of each error."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    said = {"inputs": PATTERNS, **options}
    given_ = CheckInput(outputs={"a.json": data}, inputs=dict.fromkeys(files, b""), options=said)
    return [one.code for one in ONE_PER_INPUT.run(given_)]


def test_one_entry_for_each_file_in_the_order_of_the_patterns_and_names_is_right() -> None:
    assert found(listed(*RIGHT)) == []
    assert found(listed(*RIGHT, key="log", field="from"), list="log", field="from") == []
    assert found(listed(*sorted(FILES)), inputs=["**"]) == []
    assert found(listed(), files=()) == []


@pytest.mark.parametrize(
    "value",
    [
        listed(*RIGHT[:2]),
        listed(*RIGHT, "fb/c.md"),
        listed(RIGHT[0], RIGHT[2], RIGHT[1]),
        listed(*RIGHT, RIGHT[2]),
        listed(*RIGHT[:2], 7),
        {"history": ["request.md", "fb/a.md", "fb/b.md"]},
        {"history": "request.md"},
        {},
        [],
    ],
)
def test_any_other_list_is_refused(value: Any) -> None:
    assert found(value) == ["E317"]


def test_the_error_names_the_actual_and_the_expected_paths() -> None:
    data = json.dumps(listed("request.md")).encode()
    given_ = CheckInput(outputs={"a.json": data}, inputs=dict.fromkeys(FILES, b""), options={"inputs": PATTERNS})
    (error,) = ONE_PER_INPUT.run(given_)
    assert error.message == "`source` of its entries is `request.md`"
    assert error.hint == "write one entry for each of `request.md`, `fb/a.md`, `fb/b.md`"
    assert error.subject == "a.json history"


def test_a_reply_that_is_not_json_is_reported() -> None:
    assert found(b"{") == ["E313"]


@pytest.mark.parametrize(
    "options", [{"list": 1}, {"field": ""}, {"inputs": "x"}, {"inputs": ["!x"]}, {"file": 3}, {"strange": 1}]
)
def test_an_invalid_option_is_reported(options: dict[str, Any]) -> None:
    assert found(listed(*RIGHT), **options) == ["E315"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["history", "source"]) | st.text(), inner)
    ),
    max_leaves=8,
)


@given(JSON)
def test_no_json_makes_it_raise(value: Any) -> None:
    for one in (value, {"history": value}, listed(value)):
        found(one)
    found(listed(*RIGHT), file=value, list=value, field=value, inputs=value)
