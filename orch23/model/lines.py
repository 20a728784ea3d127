"""Cut a text that comes in pieces into lines."""

from collections.abc import Callable

MOST_CHARACTERS = 2_000
_CUT = "..."


class Lines:
    """Hands on each line of a text, without its end, as soon as it is whole.

    Of a longer line the first 2,000 characters are handed on up to the last blank, and three dots: by these a redactor
    knows that the beginning of a secret may stand before them.
    """

    def __init__(self, hear: Callable[[str], None]) -> None:
        """Take who hears of the lines."""
        self._hear = hear
        self._rest = ""
        self._is_cut = False

    def take(self, text: str) -> None:
        """Take the next piece."""
        *whole, rest = f"{self._rest}{text}".split("\n")
        for line in whole:
            self._line(line)
        self._rest = rest
        if len(rest) > MOST_CHARACTERS:
            self._line(rest)
            self._rest, self._is_cut = "", True

    def end(self) -> None:
        """Hand on what has no end of line."""
        if self._rest:
            self._line(self._rest)
        self._rest = ""

    def _line(self, line: str) -> None:
        if self._is_cut:  # the end of a line of which the beginning was handed on
            self._is_cut = False
            return
        line = line.removesuffix("\r")
        if len(line) > MOST_CHARACTERS:
            line = f"{line[:MOST_CHARACTERS].rpartition(' ')[0]}{_CUT}"
        self._hear(line)
