from typing import Any

import pytest

from orch23.store import strict_json

BAD = ["", "{", '{"a":1,"a":1}', "NaN", "[Infinity]", "[" * 200_000, '{"a":{"b":1,"b":2}}', "\ud800"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        strict_json.parse(text)


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (strict_json.mapping, []),
        (strict_json.texts, "ab"),
        (strict_json.texts, [1]),
        (strict_json.text, None),
        (strict_json.whole, True),
        (strict_json.whole, -1),
        (strict_json.whole, 1.0),
        (strict_json.number, True),
        (strict_json.number, "1"),
        (strict_json.truth, 1),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(read: Any, wrong: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        read(wrong)


def test_fields_are_exactly_those_that_are_due() -> None:
    assert strict_json.fields({"a": 1}, ("a",)) == {"a": 1}
    with pytest.raises(ValueError, match="b, c"):
        strict_json.fields({"a": 1, "c": 2}, ("a", "b"))
    with pytest.raises(ValueError, match="known word"):
        strict_json.one_of("c", ("a", "b"))
