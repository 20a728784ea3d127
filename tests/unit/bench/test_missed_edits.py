"""Random histories count what a tool misses, and give every tool the same edits."""

import itertools

import pytest

from bench.missed_edits import KINDS, OF_OUTPUTS, edits, play
from tests.unit.bench.doubles import Builders, by_contents, by_time_and_size, tool

pytestmark = pytest.mark.slow  # tools are run

PATIENCE_S = 20.0


def played(tmp_path, look, monkeypatch, steps=60):
    monkeypatch.setattr("bench.missed_edits.STEPS", steps)
    builders = Builders({"double": look})
    return play(tool("double"), tmp_path, builders, PATIENCE_S)


def test_a_tool_that_goes_by_contents_misses_nothing(tmp_path, monkeypatch) -> None:
    found = played(tmp_path, by_contents, monkeypatch)
    assert set(found.made) == set(KINDS)
    assert sum(found.made.values()) == 60
    assert sum(found.missed.values()) == 0
    assert found.note == ""


def test_a_tool_that_goes_by_time_and_size_misses_each_edit_whose_time_was_put_back(tmp_path, monkeypatch) -> None:
    found = played(tmp_path, by_time_and_size, monkeypatch)
    put_back = {kind for kind in KINDS if kind.endswith("time put back")}
    assert {kind for kind, count in found.missed.items() if count} == put_back
    assert all(found.missed[kind] == found.made[kind] > 0 for kind in put_back)
    assert found.note == ""


def test_a_history_is_the_same_each_time_and_another_with_another_seed() -> None:
    def first(seed: int) -> list[object]:
        return list(itertools.islice(edits(seed, ["a", "b"], ["c", "d"]), 30))

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_kinds_of_outputs_touch_outputs_alone() -> None:
    for edit in itertools.islice(edits(1, ["source"], ["output"]), 200):
        assert edit.path == ("output" if edit.kind in OF_OUTPUTS else "source")


def test_a_first_build_that_is_too_slow_is_reported(tmp_path) -> None:
    builders = Builders({}, late=["double"])
    found = play(tool("double"), tmp_path, builders, PATIENCE_S)
    assert sum(found.made.values()) == 0
    assert "took too long" in found.note
    assert type(found.made) is type(found.missed) is dict  # another kind of mapping cannot be written to the results
