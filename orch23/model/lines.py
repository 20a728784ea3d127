"""Cut a text that comes in pieces into lines."""

from collections.abc import Callable
from typing import Final, Protocol

MOST_CHARACTERS: Final = 2_000
"""Of a line that is shown."""
_LOOKAHEAD: Final = 512
_MOST_TAKEN: Final = MOST_CHARACTERS + _LOOKAHEAD
"""Of a line that is handed on: of a secret at the place of the cut, all has to be there to be recognized."""
_DOTS: Final = "..."


class Hear(Protocol):
    """Takes the lines that a process prints, each as soon as it is complete."""

    def __call__(self, line: str, *, cut: bool = False) -> None:
        """Take a line without its end; with `cut` it is the beginning of a longer one."""


class Lines:
    """Hands on each line of a text, without its end, as soon as it is complete; of a long line the beginning."""

    def __init__(self, hear: Hear) -> None:
        """Take who gets the lines."""
        self._hear = hear
        self._rest = ""
        self._is_cut = False

    def take(self, text: str) -> None:
        """Take the next piece."""
        *whole, rest = f"{self._rest}{text}".split("\n")
        for line in whole:
            self._line(line)
        self._rest = rest
        if len(rest) > _MOST_TAKEN:
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
        if len(line) > _MOST_TAKEN:
            self._hear(line[:_MOST_TAKEN], cut=True)
        else:
            self._hear(line)


def shown(line: str, redact: Callable[[str], str], *, cut: bool) -> tuple[str, bool]:
    """Return the characters of a line that are shown, and whether there are more; `cut` says that the line itself is.

    Secrets are taken out before it is cut, since half of one is not recognized.
    """
    if not cut and len(line) <= MOST_CHARACTERS:
        return line, False
    clean = redact(f"{line}{_DOTS}").removesuffix(_DOTS) if cut else redact(line)
    return clean[:MOST_CHARACTERS], cut or len(clean) > MOST_CHARACTERS
