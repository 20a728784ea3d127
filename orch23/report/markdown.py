"""Write texts as Markdown."""

import re
from typing import Final

from orch23.report.diagnostics import visible
from orch23.report.values import truncate

_MAX_CELL: Final = 200
# Characters that Markdown or HTML may give a meaning, and those that would end a cell or make a mention.
_SPECIAL: Final = re.compile(r"[^A-Za-z0-9 .,/()+-]")


def markdown_text(text: str) -> str:
    """Return Markdown that shows a text as it is."""
    shown = truncate(visible(text).replace("\n", " "), _MAX_CELL)
    return _SPECIAL.sub(lambda found: f"&#{ord(found.group())};", shown)
