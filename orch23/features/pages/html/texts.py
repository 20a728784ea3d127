"""Cut the long texts of a page, so that it stays small however many there are."""

import html
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.patterns import lazy_pattern
from orch23.model.text import visible

MAX_TEXT = 24_000
"""The most bytes of one text on a page, as HTML."""
_MAX_TEXTS = 2_500_000
_MIN_TEXTS = 500_000
# A page of many attempts is to stay below 5 MB with its texts: so many bytes, and so many for the rest of an attempt.
_PAGE = 4_300_000
_ATTEMPT = 2_000
_MIN_TEXT = 160
_LEAST_READ = 3_000
_TEXTS_OF_ATTEMPT = 3
# A secret at the cut must be complete to be redacted.
_LOOKAHEAD = 512


class LongText(Struct, frozen=True, kw_only=True):
    """A text of a page: of a file of an attempt, of a difference, or why there is none.

    Before it is cut, it may have secrets; `text` may be only a beginning of the whole, which has `size` characters.
    Then `rest` characters are left out; they are in the file `path`.
    """

    title: str = ""
    text: str
    size: int = 0
    path: str = ""
    is_diff: bool = False
    rest: int = 0


TextReader: TypeAlias = Callable[[str, int, str, int], LongText | None]
"""Return at least so many characters of a file, by stage, attempt, name and number; None if there is none."""


def total_limit(attempts: int) -> int:
    """Return the most bytes of all texts on a page with so many attempts, as HTML."""
    return max(_MIN_TEXTS, min(_MAX_TEXTS, _PAGE - _ATTEMPT * attempts))


def read_limit(attempts: int) -> int:
    """Return how many characters of a text are worth reading, if there are so many attempts."""
    share = 3 * total_limit(attempts) // (_TEXTS_OF_ATTEMPT * max(1, attempts))
    return max(_LEAST_READ, min(MAX_TEXT, share)) + _LOOKAHEAD


def fair_limit(sizes: Sequence[int], total: int) -> int:
    """Return the limit for each text with which all of them fit into the total: short ones leave space to long ones."""
    left, waiting = total, len(sizes)
    for size in sorted(sizes):
        if size * waiting > left:
            return max(_MIN_TEXT, min(MAX_TEXT, left // waiting))
        left, waiting = left - size, waiting - 1
    return MAX_TEXT


def html_size(text: str) -> int:
    """Return the number of bytes that a text takes on a page."""
    return len(html.escape(visible(text)).encode("utf-8", "replace"))


def cut_text(whole: LongText, limit: int, redact: Callable[[str], str]) -> LongText:
    """Return the beginning of a text that takes at most `limit` bytes as HTML, without secrets."""
    text = redact(whole.text[: limit + _LOOKAHEAD])
    kept = text if len(whole.text) <= limit + _LOOKAHEAD and whole.size <= len(whole.text) else text[:limit]
    size = html_size(kept)
    while size > limit and kept:
        kept = kept[: math.floor(len(kept) * limit / size * 0.98)]
        size = html_size(kept)
    if len(kept) < len(text) or whole.size > len(whole.text):
        # A line that is cut in its middle is hard to read, except if it is nearly all of the text.
        head, newline, _ = kept.rpartition("\n")
        kept = head if newline and len(head) > len(kept) // 2 else kept
    is_cut = len(kept) < len(text) or whole.size > len(whole.text)
    rest = max(0, whole.size - len(kept), len(whole.text) - len(kept)) if is_cut else 0
    return replace(whole, text=kept.rstrip(), rest=rest)


# Up to so many items of a foreach are shown one by one.
MAX_ITEMS = 12
_UNFIT = lazy_pattern(r"[^A-Za-z0-9._@-]")


class Anchors:
    """Gives each stage, and each group of stages, one id."""

    def __init__(self) -> None:
        """Begin without any."""
        self._of: dict[str, str] = {}
        self._used: set[str] = set()

    def of_stage(self, name: str) -> str:
        """Return the id of a stage's row."""
        return self._unique(f"stage-{name}")

    def of_group(self, name: str) -> str:
        """Return the id of the row of a foreach."""
        return self._unique(f"group-{name}")

    def _unique(self, wanted: str) -> str:
        if wanted not in self._of:
            base = _UNFIT.sub("_", wanted)
            free = (one for one in chain([base], (f"{base}-{number}" for number in count(2))) if one not in self._used)
            self._of[wanted] = next(free)
            self._used.add(self._of[wanted])
        return self._of[wanted]


def large_families(names: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the foreach stages with more than 12 items, of pairs of item and foreach."""
    counts = Counter(family for name, family in names if name != family)
    return frozenset(family for family, number in counts.items() if number > MAX_ITEMS)
