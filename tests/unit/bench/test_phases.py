"""The parts of a first build that are timed are there, and are all of it."""

import pytest

from bench.phases import parts, spent

pytestmark = pytest.mark.slow


def test_every_part_of_a_build_takes_its_time() -> None:
    each = spent(100)
    assert set(parts()) < set(each)
    assert all(milliseconds > 0 for milliseconds in each.values()), each


def test_what_was_wrapped_is_as_it_was() -> None:
    before = {(kind, name): getattr(kind, name) for methods in parts().values() for kind, name in methods}
    spent(100)
    assert all(getattr(kind, name) is method for (kind, name), method in before.items())
