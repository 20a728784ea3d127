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
        one, other = lines[at:first], lines[first:second]
        if other and max(len("".join(one)), len("".join(other))) > _LONG:
            kept += _differing(one, other)
            at = second
        else:
            kept.append(lines[at])
            at += 1
    return "\n".join(kept)


def _value(lines: Sequence[str], at: int) -> int:
    """Return the end of the value that begins in a line; the line itself if none does."""
    found = _VALUE.match(lines[at]) if at < len(lines) else None
    if found is None:
        return at
    end = at + 1
    while end < len(lines) and lines[end].startswith(f"{found[1]} ") and not _VALUE.match(lines[end]):
        end += 1
    return end


def _differing(one: Sequence[str], other: Sequence[str]) -> list[str]:
    heads, (first, second) = zip(*map(_parts, (one, other)), strict=True)
    if len(first) == len(second) == 1:
        return [f"{heads[0]}{_around(*first, *second)}", f"{heads[1]}{_around(*second, *first)}"]
    same = _equal(first, second)
    after = _equal(first[same:][::-1], second[same:][::-1])
    middle = [part[max(0, same - _BEFORE) : len(part) - after] for part in (first, second)]
    if max(map(len, middle)) > _MOST:
        middle = [[*(Counter(a) - Counter(b))][:_MOST] for a, b in (middle, middle[::-1])]
    if max(len(one), len(other)) <= _LINES:
        middle = [[f"{_MARK} {', '.join(map(str.strip, found))} {_MARK}"] for found in middle]
    else:
        middle = [[_MARK, *found, _MARK] for found in middle]
    return [line for head, found in zip(heads, middle, strict=True) for line in (f"{head}{found[0]}", *found[1:])]


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
