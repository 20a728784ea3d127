"""Parsed JSON becomes a Struct or is refused, and a Struct becomes JSON again."""

from typing import Any, Literal

import pytest
from msgspec import Struct

from orch23.model.digest import canonical_json
from orch23.model.parsing import JsonObject, NaturalNumber, from_struct, to_struct

WORD: Any = Literal["a", "b"]


class Form(Struct, forbid_unknown_fields=True, omit_defaults=True):
    a: int
    b: JsonObject = {}


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        (JsonObject, []),
        (tuple[str, ...], "ab"),
        (tuple[str, ...], [1]),
        (str, None),
        (NaturalNumber, True),
        (NaturalNumber, -1),
        (NaturalNumber, 1.0),
        (float, True),
        (float, "1"),
        (bool, 1),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(form: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="is not valid: Expected"):
        to_struct(wrong, form)


def test_a_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="is not valid: Number out of range"):
        to_struct(10**400, float)


def test_a_count_may_be_larger_than_a_machine_word() -> None:
    assert to_struct(10**400, NaturalNumber) == 10**400


def test_fields_are_exactly_those_that_are_due() -> None:
    assert to_struct({"a": 1}, Form) == Form(1)
    with pytest.raises(ValueError, match="unknown field `c`"):
        to_struct({"a": 1, "c": 2}, Form)
    with pytest.raises(ValueError, match="missing required field `a`"):
        to_struct({}, Form)
    with pytest.raises(ValueError, match="Invalid enum value"):
        to_struct("c", WORD)


@pytest.mark.parametrize("name", ["\ud800", "a\udfff"])
def test_half_of_a_surrogate_pair_as_a_name_or_a_word_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        to_struct({"a": 1, name: 1}, Form)
    with pytest.raises(ValueError):
        to_struct(name, WORD)


def test_a_default_is_not_written_and_a_value_stays_what_it_is() -> None:
    assert from_struct(Form(1)) == {"a": 1}
    value = {"n": 10**30, "f": 1e-7, "t": (1, [2]), "none": None}
    assert from_struct(Form(1, value)) == {"a": 1, "b": value}


@pytest.mark.parametrize("value", [b"bytes", bytearray(b"x"), object(), 1j])
def test_what_is_not_json_is_not_turned_into_text(value: object) -> None:
    with pytest.raises(TypeError, match="BUG"):
        canonical_json(from_struct(Form(1, {"value": value})))
