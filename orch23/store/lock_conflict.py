"""Split a lock file that git left with conflict markers into its two sides."""

import re
from collections.abc import Sequence

from orch23.model.patterns import lazy_pattern

MARKER = lazy_pattern(r"^(<{7} |={7}\r?$|>{7} |\|{7} )", re.MULTILINE)


def sides_of(document: str) -> tuple[str, str]:
    """Return both sides of a text with conflict markers, without the common base that git may show."""
    both: tuple[list[str], list[str]] = ([], [])
    into: Sequence[list[str]] = both
    for line in document.split("\n"):
        if (mark := MARKER.search(line)) is not None:
            into = {"<": both[:1], "|": (), "=": both[1:], ">": both}[mark[0][0]]
        else:
            for side in into:
                side.append(line)
    return "\n".join(both[0]), "\n".join(both[1])
