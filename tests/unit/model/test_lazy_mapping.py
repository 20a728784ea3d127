"""Values of a lazy mapping are made when they are first used."""

import pytest

from orch23.model.plugins import LazyMapping


def test_a_value_is_made_when_it_is_first_used_and_only_once() -> None:
    asked: list[str] = []

    def made(name: str) -> list[str]:
        asked.append(name)
        return [name]

    there = LazyMapping(("a", "b"), made)
    assert (list(there), len(there), "a" in there, "c" in there) == (["a", "b"], 2, True, False)
    assert asked == []
    assert there["b"] is there["b"]
    assert asked == ["b"]


def test_a_name_that_is_not_known_is_never_made() -> None:
    there = LazyMapping(("a",), pytest.fail)
    with pytest.raises(KeyError):
        there["c"]
    assert there.get("c") is None
