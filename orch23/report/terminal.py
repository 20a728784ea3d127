"""Lines of a terminal that are painted again: progress, and those at its bottom; long lines broken at words."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import terminal_size
from typing import Final

from msgspec import Struct, field

from orch23.model.patterns import lazy_pattern
from orch23.model.text import visible_line
from orch23.report.values import format_size, pluralize
from orch23.store.file_copy import AdvanceProgress, FileActivity, no_progress

PATIENCE_S = 1.0
PAUSE_S = 0.5
_REFRESH_S = 0.1
_LARGE_BYTES = 32 << 20
_DONE: dict[FileActivity, str] = {"hashing": "hashed", "copying": "copied", "checking": "checked"}


class ProgressLine(Struct, kw_only=True):
    """Shows the progress of hashing and copying: one row of a terminal, or one line that is written once elsewhere.

    Nothing is shown before one second was spent on files. The time between two files does not count, so that a build
    of many small stages shows nothing; after a pause of half a second the count starts again. Safe for calls from
    several threads.
    """

    write: Callable[[str], None]
    clock: Callable[[], float]
    area: "TerminalArea | None"
    redact: Callable[[str], str] = str
    is_quiet: bool = False
    _spent_s: float = 0.0
    _last: float = float("-inf")
    _shown: float = float("-inf")
    _files: int = 0
    _bytes: int = 0
    _is_written: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __call__(self, verb: FileActivity, name: str, size_bytes: int, /) -> AdvanceProgress:
        """Start the work on a file; return the function to call with the number of bytes of each step."""
        if self.is_quiet:
            return no_progress(verb, name, size_bytes)
        with self._lock:
            since = self._step()
            self._files += 1
        done = 0

        def advance(step_bytes: int) -> None:
            nonlocal done, since
            done += step_bytes
            with self._lock:
                self._bytes += step_bytes
                now = self._step()
                self._spent_s += now - since
                since = now
                if self._spent_s >= PATIENCE_S:
                    self._show(now, verb, name, done, size_bytes)
                if self.area is not None and size_bytes >= _LARGE_BYTES and done >= size_bytes:
                    self.area.clear()

        return advance

    def _step(self) -> float:
        # Time between two files is spent on other work: it must not make many quick steps look like a slow one.
        now = self.clock()
        if now - self._last > PAUSE_S:
            self._spent_s, self._files, self._bytes, self._is_written = 0.0, 0, 0, False
        self._last = now
        return now

    def _show(self, now: float, verb: FileActivity, name: str, done: int, size_bytes: int) -> None:
        is_large, size = size_bytes >= _LARGE_BYTES, format_size(size_bytes)
        name = visible_line(self.redact(name))
        # A log file would get a line for each update, so it gets one line in all.
        if self.area is None:
            if not self._is_written:
                self.write(f"{verb} {f'{name} ({size})' if is_large else 'many files'}\n")
            self._is_written = True
        elif now - self._shown >= _REFRESH_S:
            self._shown = now
            text = f"{_DONE[verb]} {pluralize(self._files, 'file')}, {format_size(self._bytes)}"
            if is_large:
                text = f"{verb} {100 * done // size_bytes}% of {size}: {name}"
            self.area.show([TerminalLine(text, len(text))])


_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class TerminalLine(Struct, frozen=True):
    """A line of a terminal: its text, with colors, and its width in columns."""

    text: str
    columns: int


class TerminalArea(Struct, kw_only=True):
    """The lines at the bottom of a terminal. `write` writes to it, `size` returns its current size.

    A terminal that becomes narrower breaks its rows into several if it `reflows`, else it cuts them. Lines that stay
    are written within `cleared`. Safe for calls from several threads.
    """

    write: Callable[[str], None]
    size: Callable[[], terminal_size]
    reflows: bool = True
    _widths: Sequence[int] = ()
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def show(self, rows: Sequence[TerminalLine]) -> None:
        """Paint rows in place of those before."""
        with self._lock:
            # Terminals disagree about the width of some characters: a row ends where it is expected to.
            painted = "\n".join(f"{row.text}\x1b[{row.columns + 1}G\x1b[K" for row in rows)
            columns = self.size().columns  # the rows may be made for a wider terminal
            self.write(f"{self._erasing()}{_NO_WRAP}{painted}{_WRAP}")
            self._widths = [min(row.columns, columns) for row in rows]

    def clear(self) -> None:
        """Remove the rows."""
        with self._lock:
            if self._widths:
                self.write(self._erasing())
                self._widths = ()

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Remove the rows, and paint none until the block ends."""
        with self._lock:
            self.clear()
            yield

    def _erasing(self) -> str:
        if not self._widths:
            return ""
        # A terminal that became narrower has broken the rows: they take more lines than were written.
        columns = max(1, self.size().columns)
        lines = sum(max(1, -(-width // columns)) for width in self._widths) if self.reflows else len(self._widths)
        # Line by line: tmux keeps a screen that is cleared from its top as lines that scrolled off.
        return "\x1b[A".join(["\r\x1b[K"] * lines)


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
