"""Medians, quarters and the text of numbers."""

import pytest

from bench.figures import mebibytes, milliseconds, spread, times


def test_the_middle_of_several_runs_is_their_median_and_the_spread_their_quarters() -> None:
    found = spread([5, 1, 2, 4, 3])
    assert (found.low, found.middle, found.high) == (2, 3, 4)


def test_one_slow_run_does_not_move_the_middle() -> None:
    assert spread([1, 1, 1, 1, 100]).middle == 1


def test_one_or_two_runs_have_their_own_bounds() -> None:
    one, two = spread([7]), spread([9, 3])
    assert (one.low, one.middle, one.high) == (7, 7, 7)
    assert (two.low, two.middle, two.high) == (3, 6, 9)


def test_no_runs_have_no_middle() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (milliseconds(0.0023), "2.3"),
        (milliseconds(1.2345), "1,234"),
        (milliseconds(0.0996), "100"),
        (mebibytes(10 << 20), "10"),
        (times(0.876), "0.88"),
        (times(1234.5), "1,234"),
    ],
)
def test_numbers_are_reported_with_the_digits_they_deserve(text, wanted) -> None:
    assert text == wanted
