"""A terminal that keeps what was written to it, on its screen and above, and breaks or cuts it if it is resized.

Each character has the width that the C library gives it, one after the other: a terminal that joins some of them shows
no more columns than this one.
"""

import re
import unicodedata
from dataclasses import dataclass, field

_SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
_WIDE = {"W": 2, "F": 2}


def width_of(char: str) -> int:
    """Return how many columns a character takes."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return _WIDE.get(unicodedata.east_asian_width(char), 1)


@dataclass
class Row:
    """A row: a text for each column, an empty one after a wide character.

    `goes_on`: the terminal broke its line. `lost` is what a resize cut off.
    """

    cells: list[str] = field(default_factory=list)
    goes_on: bool = False
    lost: str = ""

    @property
    def text(self) -> str:
        return "".join(self.cells)


@dataclass
class Terminal:
    """A terminal. After a change of its size, one that `reflows` breaks its lines again; another one cuts its rows."""

    columns: int
    lines: int
    reflows: bool = True
    rows: list[Row] = field(default_factory=lambda: [Row()])
    at: int = 0
    column: int = 0
    wraps: bool = True
    _rest: str = ""

    @property
    def top(self) -> int:
        """The number of rows that scrolled off: no sequence reaches them."""
        return max(0, len(self.rows) - self.lines)

    def feed(self, text: str) -> None:
        """Show a text."""
        text, self._rest = self._rest + text, ""
        place = 0
        while place < len(text):
            char = text[place]
            if char == "\x1b":
                found = _SEQUENCE.match(text, place)
                if found is None:  # the rest of it comes with the next text
                    assert len(text) - place < 16, repr(text[place:])
                    self._rest = text[place:]
                    return
                self._control(found[1], found[2])
                place = found.end()
                continue
            place += 1
            if char == "\r":
                self.column = 0
            elif char == "\n":
                self._next_row()
            elif char == "\t":
                self.column = min(self.columns - 1, self.column // 8 * 8 + 8)
            else:
                assert char.isprintable() or width_of(char) == 0, f"{char!r} reached the terminal"
                self._put(char)

    def _next_row(self) -> None:
        self.at += 1
        if self.at == len(self.rows):
            self.rows.append(Row())

    def _put(self, char: str) -> None:
        width = width_of(char)
        cells = self.rows[self.at].cells
        if not width:
            if cells[: self.column]:
                cells[self.column - 1] += char
            return
        if self.column + width > self.columns:
            if self.wraps:
                self.rows[self.at].goes_on = True
                self._next_row()
                self.column = 0
            else:
                self.column = self.columns - width
        cells = self.rows[self.at].cells
        cells += [" "] * (self.column + width - len(cells))
        cells[self.column : self.column + width] = [char, *[""] * (width - 1)]
        self.column += width

    def _control(self, numbers: str, name: str) -> None:
        match numbers, name:
            case ("?7", "l" | "h"):
                self.wraps = name == "h"
            case ("", "K"):
                row = self.rows[self.at]
                del row.cells[self.column :]
                row.goes_on, row.lost = False, ""
            case (_, "G"):
                self.column = min(self.columns, int(numbers)) - 1
            case (_, "A"):
                self.at = max(self.top, self.at - int(numbers or 1))
            case (_, "m"):
                pass
            case _:
                message = f"unknown sequence: {numbers}{name}"
                raise AssertionError(message)

    def resize(self, columns: int, lines: int) -> None:
        """Get another size."""
        if columns < self.columns and not self.reflows:
            for row in self.rows:
                row.lost = "".join(row.cells[columns:]) + row.lost
                del row.cells[columns:]
        if self.reflows:
            self._break_anew(columns)
        self.columns, self.lines = columns, lines
        self.column = min(self.column, columns)

    def _break_anew(self, columns: int) -> None:
        whole: list[Row] = []
        cursor, is_new = (0, 0), True
        for number, row in enumerate(self.rows):
            if is_new:
                whole.append(Row())
            if number == self.at:
                cursor = len(whole) - 1, len(whole[-1].cells) + self.column
            whole[-1].cells += row.cells
            is_new = not row.goes_on
        self.rows = []
        for number, row in enumerate(whole):
            if number == cursor[0]:
                self.at = len(self.rows) + min(cursor[1], max(0, len(row.cells) - 1)) // columns
                self.column = cursor[1] - (self.at - len(self.rows)) * columns
            parts = [row.cells[start : start + columns] for start in range(0, len(row.cells), columns)] or [[]]
            self.rows += [Row(part, n < len(parts) - 1) for n, part in enumerate(parts)]

    def transcript(self) -> list[str]:
        """Return all lines down to the cursor or the last text, those that the terminal broke or cut as a whole."""
        last = max((number for number, row in enumerate(self.rows) if row.text.strip()), default=0)
        found, goes_on = [""], True
        for row in self.rows[: max(last, self.at) + 1]:
            text = row.text + row.lost
            found = [*found[:-1], found[-1] + text] if goes_on else [*found, text]
            goes_on = row.goes_on
        return [line.rstrip() for line in found]
