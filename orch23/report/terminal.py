"""The bottom of a terminal: lines that are painted again and again, and long lines broken between words."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import terminal_size
from typing import Final

from msgspec import Struct, field

from orch23.model.patterns import lazy_pattern

_CLEAR_BELOW = "\r\x1b[J"


class TerminalLine(Struct, frozen=True):
    """A line of a terminal: its text, with colors, and its width in columns."""

    text: str
    columns: int


class TerminalArea(Struct, kw_only=True):
    """The lines at the bottom of a terminal. `write` writes to it, `size` returns its current size.

    Lines that stay are written within `cleared`. Safe for calls from several threads.
    """

    write: Callable[[str], None]
    size: Callable[[], terminal_size]
    _rows: Sequence[TerminalLine] = ()
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def show(self, rows: Sequence[TerminalLine]) -> None:
        """Paint rows in place of those before."""
        with self._lock:
            self.write(self._erasing() + "\n".join(row.text for row in rows))
            self._rows = rows

    def clear(self) -> None:
        """Remove the rows."""
        with self._lock:
            if self._rows:
                self.write(self._erasing())
                self._rows = ()

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Remove the rows, and paint none until the block ends."""
        with self._lock:
            self.clear()
            yield

    def _erasing(self) -> str:
        if not self._rows:
            return ""
        # A terminal that became narrower has broken the rows: they take more lines than were written.
        columns = max(1, self.size().columns)
        lines = sum(max(1, -(-row.columns // columns)) for row in self._rows)
        return f"\x1b[{lines - 1}A{_CLEAR_BELOW}" if lines > 1 else _CLEAR_BELOW


_COLOR: Final = lazy_pattern("\x1b\\[[0-9;]*m")
_FACTS: Final = lazy_pattern("( {3,})")
_WORDS: Final = lazy_pattern("( +)")
_DIGIT: Final = lazy_pattern(r"\d")
# The start of a line of output in an excerpt, or of source text in an error, is repeated.
_START: Final = lazy_pattern(r" *(?:\d* *\| )?")
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
    after = _DIGIT.sub(" ", head) if "|" in head else head + _INDENT
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
