"""Symbols that a stream can show, and formats of numbers."""

from decimal import ROUND_UP, Decimal

import pytest

from orch23.model.text import format_duration, format_money
from orch23.report.values import ASCII, UNICODE, Style, format_counts, format_size, marks_for, pluralize


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


@pytest.mark.parametrize(
    ("amount", "said", "at_least"),
    [
        ("0", "$0", "$0"),
        ("0.00001", "under $0.0001", "$0.0001"),
        ("0.01892625", "$0.0189", "$0.019"),
        ("0.5", "$0.50", "$0.50"),
        ("1.231", "$1.23", "$1.24"),
        ("12345", "$12,345.00", "$12,345.00"),
    ],
)
def test_money(amount: str, said: str, at_least: str) -> None:
    assert format_money(Decimal(amount)) == said
    assert format_money(Decimal(amount), ROUND_UP) == at_least


def test_counts_and_sizes() -> None:
    assert (pluralize(1, "call"), pluralize(0, "call"), pluralize(1200, "call")) == ("1 call", "0 calls", "1,200 calls")
    assert format_counts({"built": 2, "failed": 0, "fresh": 1}) == "2 built, 1 fresh"
    assert (format_size(512), format_size(98_362_432)) == ("512 B", "98.4 MB")
