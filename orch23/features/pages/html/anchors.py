"""Ids of the elements of a page: unique, and without characters that a link would have to encode."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, count

from orch23.model.patterns import lazy_pattern

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
