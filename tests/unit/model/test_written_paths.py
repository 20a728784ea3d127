"""Paths as a pipeline has them: normalized, or refused with a reason."""

import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model import fields
from orch23.model.fields import Problems
from orch23.model.paths import split_slice

Kind = Literal["file", "place", "pattern"]


def read(value: str, kind: Kind) -> tuple[str | None, list[str]]:
    at = Problems("stages/s/inputs")
    path = at.path_at("0", value, kind)
    return path, [one.message for one in at.found]


@pytest.mark.parametrize("kind", ["file", "place", "pattern"])
@given(value=st.text("ab.~!*[]\\/-_0\x07 ", max_size=8))
def test_a_plain_path_is_read_as_by_all_rules(kind: Kind, value: str) -> None:
    found = read(value, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fields, "_PLAIN_PATH", re.compile("(?!)"))
        assert found == read(value, kind)


@pytest.mark.parametrize(
    ("value", "path"),
    [("a/b.txt", "a/b.txt"), ("./a//b/", "a/b/"), ("a/./b", "a/b"), ("..a/b..", "..a/b.."), ("ä/b", "ä/b")],
)
def test_a_path_is_normalized(value: str, path: str) -> None:
    assert read(value, "pattern") == (path, [])


@pytest.mark.parametrize(
    "value", ["", "/a", "a/../b", "..", ".", "~/a", "!a", "a\\b", "a\x07", "a" * 4_097, "a/" * 2_049]
)
def test_a_path_that_cannot_be_used_is_refused(value: str) -> None:
    path, messages = read(value, "file")
    assert (path, len(messages)) == (None, 1)


def test_a_set_of_a_pattern_has_at_most_1000_characters() -> None:
    assert split_slice(f"[{'a' * 999}#]#b") == (f"[{'a' * 999}#]", "b")
    assert split_slice(f"[{'a' * 1_000}#]") == (f"[{'a' * 1_000}", "]")
