"""Split streamed text into lines, escape hidden characters, and write JSON pointers."""

import re
from collections.abc import Callable, Iterable
from typing import Final, Protocol

HIDDEN_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ud800-\udfff\ufff9-\ufffb]"
    "|[\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def escape_hidden(text: str) -> str:
    """Return the same JSON with hidden characters as escapes: no reader of lines, and no eye, is misled by them.

    Between values JSON has none of them but carriage returns, so all that is found stands in a string.
    """
    return text if text.isascii() and text.isprintable() else HIDDEN_CHARACTERS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number <= 0xFFFF:  # noqa: PLR2004 - the basic plane
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


MAX_LINE_LENGTH: Final = 2_000
"""Of a line that is shown."""
_LOOKAHEAD: Final = 512
_MOST_TAKEN: Final = MAX_LINE_LENGTH + _LOOKAHEAD
"""Of a line that is handed on: of a secret at the place of the cut, all has to be there to be recognized."""
_DOTS: Final = "..."


class LineListener(Protocol):
    """Takes the lines that a process prints, each as soon as it is complete."""

    def __call__(self, line: str, *, cut: bool = False) -> None:
        """Take a line without its end; with `cut` it is the beginning of a longer one."""


class LineSplitter:
    """Hands on each line of a text, without its end, as soon as it is complete; of a long line the beginning."""

    def __init__(self, hear: LineListener) -> None:
        """Take who gets the lines."""
        self._hear = hear
        self._rest = ""
        self._is_cut = False

    def feed(self, text: str) -> None:
        """Take the next piece."""
        *whole, rest = f"{self._rest}{text}".split("\n")
        for line in whole:
            self._line(line)
        self._rest = rest
        if len(rest) > _MOST_TAKEN:
            self._line(rest)
            self._rest, self._is_cut = "", True

    def flush(self) -> None:
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


def displayable_part(line: str, redact: Callable[[str], str], *, cut: bool) -> tuple[str, bool]:
    """Return the characters of a line that are shown, and whether there are more; `cut` says that the line itself is.

    Secrets are taken out before it is cut, since half of one is not recognized.
    """
    if not cut and len(line) <= MAX_LINE_LENGTH:
        return line, False
    clean = redact(f"{line}{_DOTS}").removesuffix(_DOTS) if cut else redact(line)
    return clean[:MAX_LINE_LENGTH], cut or len(clean) > MAX_LINE_LENGTH


def json_pointer(path: Iterable[object]) -> str:
    """Return the JSON pointer (RFC 6901) of a path of keys and indexes."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
