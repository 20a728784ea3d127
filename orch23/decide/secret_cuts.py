"""Find what is left of a secret where a text was cut: what stands before or after the dots that mark the cut."""

import bisect
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from orch23.decide.secret_forms import FORMS

_LEAST: Final = 8
_CUT = re.compile(r"(?:\n|\\{1,2}n)?(?:\.{3}|\u2026)")
_RESUMED = re.compile(r"(?:\.{3}|\u2026)(?:\n|\\{1,2}n)?")


def remains(text: str, spellings: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Give the place of each beginning of a secret that ends in a cut, and of each end that a cut precedes.

    Fewer than 8 characters are no remains, nor is the head that all keys of a vendor have: prose may say `sk-ant-...`.
    """
    if "..." not in text and "\u2026" not in text:  # the search for these two is far quicker than that for a cut
        return
    ends = [match.start() for match in _CUT.finditer(text)]
    begins = [match.end() for match in _RESUMED.finditer(text)]
    around = _around(text, ends, max((len(spelling) for spelling, _ in spellings), default=0))
    for spelling, name in spellings:
        head, tail = _telling(spelling)
        if len(head) >= len(spelling) or not (head in around or tail in around):
            continue
        for start in _places(text, head):
            number = bisect.bisect_left(ends, start + len(head))
            if number < len(ends) and spelling.startswith(text[start : min(ends[number], start + len(spelling) + 1)]):
                yield start, ends[number], name
        for start in _places(text, tail):
            end = start + len(tail)
            number = bisect.bisect_right(begins, start) - 1
            if number >= 0 and spelling.endswith(text[max(begins[number], end - len(spelling) - 1) : end]):
                yield begins[number], end, name


def _around(text: str, cuts: Sequence[int], width: int) -> str:
    """Return what stands near the cuts: most texts have few of them, and most secrets are not there."""
    reach = width + _LEAST
    if 2 * reach * len(cuts) >= len(text):
        return text
    return "\n".join(text[max(0, cut - reach) : cut + reach] for cut in cuts)


@lru_cache(maxsize=32_768)
def _telling(spelling: str) -> tuple[str, str]:
    """Return the shortest beginning and end of a spelling that tell it from anything else."""
    vendors = max((len(form.head) for form in FORMS if spelling.startswith(form.head)), default=0)
    return spelling[: vendors + _LEAST], spelling[-_LEAST:]


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
