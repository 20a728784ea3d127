"""Format durations, counts, sizes, money and JSON documents."""

import json
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal

from orch23.model.digest import Json
from orch23.model.text import escape_hidden

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_KILO = 1000.0


def format_duration(seconds: float) -> str:
    """Return a duration: `0.1s`, `28.4s`, `3m 05s`, `2h 10m`."""
    if seconds < _MINUTE_S - 0.05:
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
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < _KILO or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KILO
    return ""


def format_counts(numbers: Mapping[str, int]) -> str:
    """Return what there is of each kind: `2 built, 1 failed`; nothing of what there is none."""
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number)


_CENTS = Decimal("0.01")
_FINE = Decimal("0.0001")


def format_money(amount: Decimal) -> str:
    """Return US dollars: `$1.00`, `$0.0347`; what is too little to show is said to be so, and never `$0`."""
    if amount == 0:
        return "$0"
    if amount < _FINE:
        return f"under ${_FINE}"
    if amount >= 1:
        return f"${amount.quantize(_CENTS, ROUND_HALF_UP):,}"
    fine = str(amount.quantize(_FINE, ROUND_HALF_UP))
    while fine.endswith("0") and len(fine.partition(".")[2]) > len("00"):
        fine = fine[:-1]
    return f"${fine}"


def json_document(value: Mapping[str, Json]) -> str:
    """Return a value as the one JSON document that a `--json` command writes."""
    return escape_hidden(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=plain_value)) + "\n"


def plain_value(value: object) -> object:
    """Show json the mappings and sequences that are not dict and list."""
    return dict(value) if hasattr(value, "items") else list(value)  # type: ignore[call-overload] # a sequence
