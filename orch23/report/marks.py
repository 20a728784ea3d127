"""Symbols and colors of lines on a terminal."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Tone: TypeAlias = Literal["good", "bad", "quiet", "notice", "plain", "strong", "error", "warning", "note", "frame"]

_ESCAPES: Mapping[Tone, str] = {
    "good": "\x1b[32m",
    "bad": "\x1b[31m",
    "quiet": "\x1b[2m",
    "notice": "\x1b[33m",
    "plain": "",
    "strong": "\x1b[1m",
    "error": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "note": "\x1b[1;36m",
    "frame": "\x1b[1;34m",
}
_RESET = "\x1b[0m"

# Where nothing says how wide a line may be: in files, and in logs of CI.
LINE_WIDTH = 200
# Up to so many stages, idle ones get a line each. In a larger pipeline only their number is shown.
MAX_IDLE_LINES = 64
# Up to so many items of a foreach, each gets a line. If there are more, only those that failed do.
MAX_ITEM_LINES = 64


class Marks(Struct, frozen=True, kw_only=True):
    """The symbol at the start of each kind of line, and the arrow between an old and a new value."""

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
    """Return the symbols that a stream of this encoding can show."""
    try:
        "✔✘→".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


class Style(Struct, frozen=True, kw_only=True):
    """The symbols and colors of one stream."""

    marks: Marks = UNICODE
    color: bool = False

    def paint(self, text: str, tone: Tone) -> str:
        """Return the text in the color of a tone; without colors, the text itself."""
        return f"{_ESCAPES[tone]}{text}{_RESET}" if self.color and _ESCAPES[tone] and text else text
