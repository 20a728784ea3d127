"""Symbols that a stream can show, and formats of numbers."""

import pytest

from orch23.report.marks import ASCII, UNICODE, Style, marks_for
from orch23.report.values import format_counts, format_duration, format_size, pluralize


@pytest.mark.parametrize(
    ("encoding", "marks"), [("utf-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("nope", ASCII)]
)
def test_an_encoding_gets_the_symbols_that_it_has(encoding: str | None, marks: object) -> None:
    assert marks_for(encoding) is marks


def test_colors_are_written_only_on_request() -> None:
    assert Style(color=True).paint("x", "bad") == "\x1b[31mx\x1b[0m"
    assert Style(color=True).paint("x", "plain") == "x"
    assert Style(color=False).paint("x", "bad") == "x"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0s"), (59.9, "59.9s"), (59.97, "1m 00s"), (185, "3m 05s"), (3599.9, "1h 00m"), (7800, "2h 10m")],
)
def test_durations(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


def test_counts_and_sizes() -> None:
    assert (pluralize(1, "call"), pluralize(0, "call"), pluralize(1200, "call")) == ("1 call", "0 calls", "1,200 calls")
    assert format_counts({"built": 2, "failed": 0, "fresh": 1}) == "2 built, 1 fresh"
    assert (format_size(512), format_size(98_362_432)) == ("512 B", "98.4 MB")
