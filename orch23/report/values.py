"""Symbols and colors of lines on a terminal; counts, sizes, costs, tables and JSON documents as text.

Durations and money are formatted in `model.text`.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from msgspec import Struct

from orch23.model.digest import Json, json_builtin
from orch23.model.text import escape_hidden, format_money, join_first

_KILO = 1000.0
Tone: TypeAlias = Literal["good", "bad", "quiet", "notice", "plain", "strong", "error", "warning", "note", "frame"]

_ESCAPES: Mapping[Tone, str] = {
    "good": "\x1b[32m",
    "bad": "\x1b[31m",
    "quiet": "\x1b[2m",
    "notice": "\x1b[33m",
    "plain": "",
    "strong": "\x1b[1m",
    "error": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "note": "\x1b[1;36m",
    "frame": "\x1b[1;34m",
}
_RESET = "\x1b[0m"

# Where nothing says how wide a line may be: in files, and in logs of CI.
LINE_WIDTH = 200
# Up to so many stages, idle ones get a line each. In a larger pipeline only their number is shown.
MAX_IDLE_LINES = 64
# Up to so many items of a foreach, each gets a line. If there are more, only those that failed do.
MAX_ITEM_LINES = 64


class Marks(Struct, frozen=True, kw_only=True):
    """The symbol at the start of each kind of line, and the arrow between an old and a new value."""

    done: str
    fresh: str
    failed: str
    run: str
    maybe: str
    edited: str
    idle: str
    arrow: str


UNICODE = Marks(done="✔", fresh="=", failed="✘", run=">", maybe="?", edited="!", idle="-", arrow="→")
ASCII = Marks(done="+", fresh="=", failed="x", run=">", maybe="?", edited="!", idle="-", arrow="->")


def marks_for(encoding: str | None) -> Marks:
    """Return the symbols that a stream of this encoding can show."""
    try:
        "✔✘→".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


class Style(Struct, frozen=True, kw_only=True):
    """The symbols and colors of one stream."""

    marks: Marks = UNICODE
    color: bool = False

    def paint(self, text: str, tone: Tone) -> str:
        """Return the text in the color of a tone; without colors, the text itself."""
        return f"{_ESCAPES[tone]}{text}{_RESET}" if self.color and _ESCAPES[tone] and text else text


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun: `1 call`, `4 calls`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_size(size_bytes: int) -> str:
    """Return a size in decimal units: `512 B`, `1.2 MB`."""
    if size_bytes < _KILO:
        return f"{size_bytes} B"
    amount = size_bytes / _KILO
    for unit in ("kB", "MB"):
        if amount < _KILO:
            return f"{amount:.1f} {unit}"
        amount /= _KILO
    return f"{amount:.1f} GB"


def format_counts(numbers: Mapping[str, int]) -> str:
    """Return the counts that are not 0: `2 built, 1 failed`."""
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number)


def money_text(known: Decimal, possible: Decimal) -> str:
    """Return a cost, and what may have been charged besides: `$0.005, at most $0.16 more`."""
    return f"{format_money(known)}, at most {format_money(possible)} more" if possible else format_money(known)


def truncate(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters; a longer one ends in `...`."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def list_within(head: str, names: Sequence[str], columns: int) -> str:
    """Return a line of at most `columns` characters: a head, as many names as fit, and the number of the others."""
    for count in range(min(len(names), columns), 0, -1):
        line = head + join_first(names, count)
        if len(line) <= columns:
            return line
    return truncate(head.rstrip(": "), columns)


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return rows of equal length as lines. Each column has the same width in all of them; some are aligned `right`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ways = [(str.rjust if number in right else str.ljust, width) for number, width in enumerate(widths)]
    lines = ("  ".join(way(text, width) for text, (way, width) in zip(row, ways, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def started_text(started: str) -> str:
    """Return the time of an event in minutes, in this machine's zone; empty if it is none."""
    try:
        return f"{datetime.fromisoformat(started).astimezone():%Y-%m-%d %H:%M}" if started else ""
    except ValueError:
        return ""


def json_document(value: Mapping[str, Json]) -> str:
    """Return the one JSON document that a `--json` command writes, with a final newline."""
    return escape_hidden(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=json_builtin)) + "\n"
