"""Numbers of several runs: the middle, the spread, and ratios."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some numbers, and the quarter points around it."""

    low: float
    middle: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles; of fewer than three values, the least and the greatest stand for the quartiles."""
    if not values:
        message = "no values, no median"
        raise ValueError(message)
    if len(values) <= 2:  # noqa: PLR2004 - two have no quarter points of their own
        return Spread(min(values), statistics.median(values), max(values))
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, middle, high)


def ratio(value: float, base: float) -> float:
    """Return how many times the base a value is."""
    return value / base


def milliseconds(seconds: float) -> str:
    """Return a time as text: milliseconds, with thousands set apart."""
    value = seconds * 1000
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004 - below ten a digit more says something


def mebibytes(size_bytes: float) -> str:
    """Return a size as text."""
    return f"{size_bytes / (1 << 20):,.0f}"


def times(value: float) -> str:
    """Return a ratio as text, with about three digits."""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004 - likewise
