"""Parsed JSON becomes a Struct or is refused, and a Struct becomes the JSON that was meant."""

from typing import Any, Literal

import pytest
from msgspec import Struct

from orch23.model.digest import canonical_json
from orch23.model.typed import Count, Object, decode, encode

WORD: Any = Literal["a", "b"]


class Form(Struct, forbid_unknown_fields=True, omit_defaults=True):
    a: int
    b: Object = {}


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        (Object, []),
        (tuple[str, ...], "ab"),
        (tuple[str, ...], [1]),
        (str, None),
        (Count, True),
        (Count, -1),
        (Count, 1.0),
        (float, True),
        (float, "1"),
        (bool, 1),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(form: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="is not valid: Expected"):
        decode(wrong, form)


def test_a_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="is not valid: Number out of range"):
        decode(10**400, float)


def test_a_count_may_be_larger_than_a_machine_word() -> None:
    assert decode(10**400, Count) == 10**400


def test_fields_are_exactly_those_that_are_due() -> None:
    assert decode({"a": 1}, Form) == Form(1)
    with pytest.raises(ValueError, match="unknown field `c`"):
        decode({"a": 1, "c": 2}, Form)
    with pytest.raises(ValueError, match="missing required field `a`"):
        decode({}, Form)
    with pytest.raises(ValueError, match="Invalid enum value"):
        decode("c", WORD)


@pytest.mark.parametrize("name", ["\ud800", "a\udfff"])
def test_half_of_a_surrogate_pair_as_a_name_or_a_word_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        decode({"a": 1, name: 1}, Form)
    with pytest.raises(ValueError):
        decode(name, WORD)


def test_a_default_is_not_written_and_a_value_stays_what_it_is() -> None:
    assert encode(Form(1)) == {"a": 1}
    value = {"n": 10**30, "f": 1e-7, "t": (1, [2]), "none": None}
    assert encode(Form(1, value)) == {"a": 1, "b": value}


@pytest.mark.parametrize("value", [b"bytes", bytearray(b"x"), object(), 1j])
def test_what_is_not_json_is_not_turned_into_text(value: object) -> None:
    with pytest.raises(TypeError, match="BUG"):
        canonical_json(encode(Form(1, {"value": value})))
