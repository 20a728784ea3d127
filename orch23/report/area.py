"""The last lines of a terminal, which are painted again and again below those that stay."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import terminal_size

from msgspec import Struct, field

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
