"""A key is declared in one place: what msgspec reads, what the reference says, and what the value in `model` gets."""

from typing import Annotated

import msgspec
import pytest
from msgspec import NODEFAULT, UnsetType

from orch23.model.fields import Problem, Problems
from orch23.model.language import Count, Document, Duration, File, Key, mapping_of, read_fields, reads


def read_doubled(_at: Problems, _key: str, value: int) -> int:
    return 2 * value


class Inner(Document):
    """A mapping in a mapping."""

    count: Count = Key("4k", default="1k").doc("A number.")


class Outer(Document):
    """Keys of each kind."""

    file: File | UnsetType = Key("a.txt").doc("A file.")
    wait: Duration = Key("5m", default=NODEFAULT, to="wait_s").doc("A time.")
    from_: str | UnsetType = Key("x", name="from", in_key=False).doc("""
        Two
        lines.""")
    twice: Annotated[int, reads(read_doubled)] = Key("1", default=1).doc("A number.")
    inner: Inner | UnsetType = Key("{count: 4k}", read=mapping_of(dict)).doc("A mapping.")
    apart: int = Key("1", default=1, read=None).doc("Read by other code.")


class Below(Outer):
    """The same keys, and one more."""

    more: bool = Key("true", default=False).doc("A choice.")


def read(tree: object) -> tuple[dict[str, object], list[Problem]]:
    at = Problems("stages/s")
    return read_fields(msgspec.convert(tree, Below), at), at.found


def test_a_value_is_read_by_its_type_or_by_its_key() -> None:
    tree = {
        "file": "./a.txt",
        "wait": "1m",
        "from": "y",
        "twice": 2,
        "inner": {"count": "4k"},
        "apart": 3,
        "more": True,
    }
    fields = {"file": "a.txt", "wait_s": 60.0, "from_": "y", "twice": 4, "inner": {"count": 4000}, "more": True}
    assert read(tree) == (fields, [])


def test_a_key_that_is_left_out_has_its_default_or_no_field() -> None:
    assert read({"wait": 1}) == ({"wait_s": 1.0, "twice": 2, "more": False}, [])


def test_an_error_is_at_its_key() -> None:
    found = read({"wait": 1, "file": "../a", "inner": {"count": "0"}})[1]
    assert [(one.path, one.code) for one in found] == [
        ("stages/s/file", "E850"),
        ("stages/s/inner/count", "E812"),
    ]


@pytest.mark.parametrize("tree", [{}, {"wait": 1, "from_": "x"}, {"wait": 1, "other": 1}])
def test_a_required_key_is_needed_and_no_other_is_taken(tree: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(tree)


def test_a_key_says_what_it_means_in_one_line_and_whether_it_is_in_the_key() -> None:
    said = {key: one.description for key, one in Below.declared.items()}
    assert said["from_"] == "Two lines. Not part of the key."
    assert said["more"] == "A choice."
    assert list(said) == ["file", "wait", "from_", "twice", "inner", "apart", "more"]
