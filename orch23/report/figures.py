"""Numbers as people read them: durations, counts with their noun, sizes."""

from collections.abc import Mapping

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_KILO = 1000.0


def duration(seconds: float) -> str:
    """Return a duration: `0.1s`, `28.4s`, `3m 05s`, `2h 10m`."""
    if seconds < _MINUTE_S - 0.05:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def count(number: int, noun: str) -> str:
    """Return a count with its noun: `1 call`, `4 calls`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(size_bytes: int) -> str:
    """Return a size in decimal units: `512 B`, `1.2 MB`."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < _KILO or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KILO
    return ""


def counts(numbers: Mapping[str, int]) -> str:
    """Return what there is of each kind: `2 built, 1 failed`; nothing of what there is none."""
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number)
