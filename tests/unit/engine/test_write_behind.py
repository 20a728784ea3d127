"""How long results wait for one another."""

import math
from types import SimpleNamespace
from typing import Any, cast

from orch23.engine.result_writer import WriteBehind
from tests.doubles import FakeClock


def success(name: str) -> Any:
    return cast("Any", SimpleNamespace(resolved=SimpleNamespace(stage=SimpleNamespace(name=name))))


def waits(waiting_results: WriteBehind, clock: FakeClock) -> float:
    """Return for how long the first of a new group waits."""
    waiting_results.add(success("a"))
    assert not waiting_results.is_due
    left = waiting_results.left_s
    assert left < math.inf
    clock.tick(left)
    assert waiting_results.is_due
    assert list(waiting_results.drain()) == ["a"]
    return round(left, 3)


def test_if_commits_take_long_more_results_are_collected_up_to_a_limit() -> None:
    clock = FakeClock()
    waiting_results = WriteBehind(clock.monotonic)
    assert waits(waiting_results, clock) == 0.3
    waiting_results.promoted(0.1)
    assert waits(waiting_results, clock) == 1.0
    waiting_results.promoted(5.0)
    assert waits(waiting_results, clock) == 2.0
    waiting_results.promoted(0.001)
    assert waits(waiting_results, clock) == 0.3
    assert waiting_results.left_s == math.inf
    assert not waiting_results.is_due
