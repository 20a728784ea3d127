"""Symbols and colors of lines on a terminal."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Tone: TypeAlias = Literal["good", "bad", "quiet", "notice", "plain", "strong"]

_ESCAPES: Mapping[Tone, str] = {
    "good": "\x1b[32m",
    "bad": "\x1b[31m",
    "quiet": "\x1b[2m",
    "notice": "\x1b[33m",
    "plain": "",
    "strong": "\x1b[1m",
}
_RESET = "\x1b[0m"

MAX_IDLE_LINES = 64
"""So many stages are told one by one although nothing happens to them; of more only the number is."""


class Marks(Struct, frozen=True, kw_only=True):
    """One sign a kind of line; `arrow` is for texts."""

    done: str
    fresh: str
    failed: str
    run: str
    maybe: str
    edited: str
    idle: str
    arrow: str


UNICODE = Marks(done="✔", fresh="=", failed="✘", run=">", maybe="?", edited="!", idle="-", arrow="→")
ASCII = Marks(done="+", fresh="=", failed="x", run=">", maybe="?", edited="!", idle="-", arrow="->")


def marks_for(encoding: str | None) -> Marks:
    """Return the signs that a stream of this encoding can show."""
    try:
        "✔✘→".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


class Style(Struct, frozen=True, kw_only=True):
    """How lines are dressed for one stream."""

    marks: Marks = UNICODE
    color: bool = False

    def paint(self, text: str, tone: Tone) -> str:
        """Return a text in its colour, or as it is where there are no colours."""
        return f"{_ESCAPES[tone]}{text}{_RESET}" if self.color and _ESCAPES[tone] and text else text


PLAIN = Style()
