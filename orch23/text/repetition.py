"""Find a text that repeats itself at its end: a small model may write the same lines until its tokens are used up."""

from collections.abc import Sequence

_LAST_CHARACTERS = 20_000
_LEAST_TIMES = 6
_LEAST_LENGTH = 300
# The repetition is at least this part of the text: code may have a table of equal rows.
_LEAST_SHARE = 0.5


def repeated_end(text: str) -> str:
    """Return the shortest block that a text repeats up to its end, where it may be cut; empty if there is none.

    A block of several lines begins with a line. It counts if it is repeated at least 6 times, and fills 300 characters
    and half of the text. Only the last 20,000 characters are read.
    """
    tail = text[-_LAST_CHARACTERS:]
    least = max(_LEAST_LENGTH, int(len(tail) * _LEAST_SHARE))
    if len(tail) < least:
        return ""
    backwards = tail[::-1]
    equal = common_prefixes(backwards)
    for period in range(1, len(tail) // _LEAST_TIMES + 1):
        length = period + equal[period]
        if length >= max(least, period * _LEAST_TIMES):
            start = len(tail) - length
            block = tail[start : start + period]
            line = block.find("\n") + 1
            return block[line:] + block[:line]
    return ""


def common_prefixes(text: Sequence[object]) -> list[int]:
    """Return, for each position, how many characters or items from there equal those at the beginning (Z function)."""
    found = [0] * len(text)
    left = right = 0
    for position in range(1, len(text)):
        known = min(right - position, found[position - left]) if position < right else 0
        while position + known < len(text) and text[known] == text[position + known]:
            known += 1
        found[position] = known
        if position + known > right:
            left, right = position, position + known
    return found
