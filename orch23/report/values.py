"""Format durations, counts, sizes, money and JSON documents."""

import json
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from orch23.model.digest import Json, json_builtin
from orch23.model.text import escape_hidden

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_KILO = 1000.0
_CENT = Decimal("0.01")
_SMALLEST = Decimal("0.0001")


def format_duration(seconds: float) -> str:
    """Return a duration: `0.1s`, `28.4s`, `3m 05s`, `2h 10m`."""
    if seconds < _MINUTE_S - 0.05:  # else `.1f` rounds 59.96 to `60.0s`
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


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


def format_money(amount: Decimal) -> str:
    """Return US dollars: `$1.00`, `$0.0347`; an amount below `$0.0001` is `under $0.0001`, never `$0`."""
    if amount == 0:
        return "$0"
    if amount < _SMALLEST:
        return f"under ${_SMALLEST}"
    if amount >= 1:
        return f"${amount.quantize(_CENT, ROUND_HALF_UP):,}"
    whole, _, digits = str(amount.quantize(_SMALLEST, ROUND_HALF_UP)).partition(".")
    return f"${whole}.{digits.rstrip('0'):0<2}"


def money_text(known: Decimal, possible: Decimal) -> str:
    """Return a cost, and what may have been charged besides: `$0.005, at most $0.16 more`."""
    return f"{format_money(known)}, at most {format_money(possible)} more" if possible else format_money(known)


def parse_amount(amount: str | None) -> Decimal | None:
    """Return an amount of US dollars as a number; None if it is unknown, not a number, or not finite."""
    try:
        number = Decimal(amount or "")
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def truncate(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters; a longer one ends in `...`."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def json_document(value: Mapping[str, Json]) -> str:
    """Return the one JSON document that a `--json` command writes, with a final newline."""
    return escape_hidden(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=json_builtin)) + "\n"
