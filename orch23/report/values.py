"""Format counts, sizes, costs, tables and JSON documents; durations and money are formatted in `model.text`."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from orch23.model.digest import Json, json_builtin
from orch23.model.text import escape_hidden, format_money, join_first

_KILO = 1000.0


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


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of equal length as lines, whose columns but the last have the same width in each line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    cells = ([f"{text:<{width}}" for text, width in zip(row, [*widths, 0], strict=True)] for row in rows)
    return "".join("  ".join(row).rstrip() + "\n" for row in cells)


def started_text(started: str) -> str:
    """Return the time of an event in minutes, in this machine's zone; empty if it is none."""
    try:
        return f"{datetime.fromisoformat(started).astimezone():%Y-%m-%d %H:%M}" if started else ""
    except ValueError:
        return ""


def json_document(value: Mapping[str, Json]) -> str:
    """Return the one JSON document that a `--json` command writes, with a final newline."""
    return escape_hidden(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=json_builtin)) + "\n"
