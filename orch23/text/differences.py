"""Shorten two long values that a failed test compares to what differs, with the names around it."""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from orch23.model.patterns import lazy_pattern

_VALUE = lazy_pattern(r"( {0,100})(expected|actual|received|left|right|want|got) ?[:=] ?(.*)")
_LONG, _BEFORE, _MOST, _AROUND, _LINES = 400, 2, 20, 40, 2
_MARK = "..."


def differing_values(text: str) -> str:
    """Return a text in which two values, one below the other, have only what differs if one is over 400 characters.

    A value follows `expected`, `actual`, `left`, `right`, `want`, `got` or `received` and `:` or `=`, in its line or in
    further lines, which are indented more.
    """
    lines, kept, at = text.split("\n"), list[str](), 0
    while at < len(lines):
        first = _value(lines, at)
        second = _value(lines, first) if first > at else at
        if second > first and max(_size(lines[at:first]), _size(lines[first:second])) > _LONG:
            for one in _differing(lines[at:first], lines[first:second]):
                kept += one
            at = second
        else:
            kept.append(lines[at])
            at += 1
    return "\n".join(kept)


def _size(lines: Sequence[str]) -> int:
    return sum(map(len, lines))


def _value(lines: Sequence[str], at: int) -> int:
    """Return the end of the value that begins in a line; the line itself if none does."""
    found = _VALUE.match(lines[at]) if at < len(lines) else None
    if found is None:
        return at
    end = at + 1
    while end < len(lines) and lines[end].startswith(f"{found[1]} ") and not _VALUE.match(lines[end]):
        end += 1
    return end


def _differing(one: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    heads, parts = zip(*map(_parts, (one, other)), strict=True)
    if max(map(len, parts)) == 1:
        texts = [_around(parts[0][0], parts[1][0]), _around(parts[1][0], parts[0][0])]
        return [f"{heads[0]}{texts[0]}"], [f"{heads[1]}{texts[1]}"]
    same = _equal(*parts)
    after = _equal(parts[0][same:][::-1], parts[1][same:][::-1])
    middle = [one[max(0, same - _BEFORE) : len(one) - after] for one in parts]
    if max(map(len, middle)) > _MOST:
        middle = [[*(Counter(a) - Counter(b))][:_MOST] for a, b in (middle, middle[::-1])]
    is_line = max(len(one), len(other)) <= _LINES
    shown = [
        [f"{head}{_MARK} {', '.join(map(str.strip, found))} {_MARK}"] if is_line else [f"{head}{_MARK}", *found, _MARK]
        for head, found in zip(heads, middle, strict=True)
    ]
    return shown[0], shown[1]


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many items are equal from the beginning on."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _parts(lines: Sequence[str]) -> tuple[str, list[str]]:
    """Return the beginning of a value with its name, and its parts: its lines, split at commas."""
    found = _VALUE.match(lines[0])
    inline = found[3] if found else ""
    body = [inline, *lines[1:]] if inline.strip() not in ("", "|-", "|", ">-", ">") else [*lines[1:]]
    head = lines[0][: len(lines[0]) - len(inline)]
    return head if head.endswith(" ") else f"{head} ", [part for line in body for part in line.split(", ")] or [""]


def _around(one: str, other: str) -> str:
    """Return the part of a text that another one lacks, with some characters around it."""
    start = _equal(one, other)
    end = _equal(one[start:][::-1], other[start:][::-1])
    shown = one[max(0, start - _AROUND) : len(one) - end + _AROUND]
    return f"{_MARK}{shown if len(shown) <= _LONG else f'{shown[:_LONG]}{_MARK}'}{_MARK}"
