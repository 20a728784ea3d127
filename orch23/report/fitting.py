"""Break long lines for a terminal between words."""

import re
from typing import Final

_COLOR: Final = re.compile("\x1b\\[[0-9;]*m")
_FACTS: Final = re.compile("( {3,})")
_WORDS: Final = re.compile("( +)")
# The start of a line of output in an excerpt, or of source text in an error, is repeated.
_START: Final = re.compile(r" *(?:\d* *\| )?")
_INDENT: Final = "    "
# On a terminal that is narrower than this, the terminal itself breaks lines.
_MIN_COLUMNS: Final = 24


def fit_lines(text: str, columns: int) -> str:
    """Return a text whose lines have at most so many characters, if no word is longer. Colors do not count.

    A line is broken between facts, which have three spaces between them, or else between words; what follows is
    indented.
    """
    if columns < _MIN_COLUMNS:
        return text
    return "\n".join(line if _width(line) <= columns else _fit_line(line, columns) for line in text.split("\n"))


def _fit_line(line: str, columns: int) -> str:
    start = _START.match(line)
    head = start.group() if start else ""
    after = re.sub(r"\d", " ", head) if "|" in head else head + _INDENT
    lines, is_empty = [head], True
    gap = ""
    for piece in _FACTS.split(line[len(head) :]):
        if piece.startswith("   "):
            gap = piece
            continue
        is_whole = len(after) + _width(piece) <= columns
        for word in [piece] if is_whole else _WORDS.split(piece):
            if word.isspace():
                gap = word
                continue
            if not is_empty and _width(lines[-1]) + len(gap) + _width(word) > columns:
                lines.append(after)
                gap = ""
            lines[-1] += gap + word
            gap, is_empty = "", False
    return "\n".join(lines)


def _width(text: str) -> int:
    return len(_COLOR.sub("", text))
