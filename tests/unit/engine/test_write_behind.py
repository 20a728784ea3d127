"""How long results wait for one another."""

import math
from types import SimpleNamespace
from typing import Any, cast

from orch23.engine.commit import WriteBehind
from tests.doubles import FakeClock


def success(name: str) -> Any:
    return cast("Any", SimpleNamespace(resolved=SimpleNamespace(stage=SimpleNamespace(name=name))))


def waits(gathering: WriteBehind, clock: FakeClock) -> float:
    """Return for how long the first of a new group waits."""
    gathering.add(success("a"))
    assert not gathering.is_due
    left = gathering.left_s
    assert left < math.inf
    clock.tick(left)
    assert gathering.is_due
    assert list(gathering.drain()) == ["a"]
    return round(left, 3)


def test_if_commits_take_long_more_results_are_collected_up_to_a_limit() -> None:
    clock = FakeClock()
    gathering = WriteBehind(clock.monotonic)
    assert waits(gathering, clock) == 0.3
    gathering.committed(0.1)
    assert waits(gathering, clock) == 1.0
    gathering.committed(5.0)
    assert waits(gathering, clock) == 2.0
    gathering.committed(0.001)
    assert waits(gathering, clock) == 0.3
    assert gathering.left_s == math.inf
    assert not gathering.is_due
