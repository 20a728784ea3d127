"""Split texts into lines, escape hidden characters, find signs of a shell, write JSON pointers, durations and money."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

# A text: compiling it takes 2 ms, and few texts need it. `re` keeps what it has compiled.
HIDDEN_CHARACTERS = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ud800-\udfff\ufff9-\ufffb]"
    "|[\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
ShellQuote: TypeAlias = Literal["", '"']


def escape_hidden(text: str) -> str:
    """Return the same JSON with hidden characters as escapes, so that they mislead neither programs nor readers.

    Between values JSON may contain only one of them, the carriage return; the others are within strings.
    """
    return replace_hidden(text, _escaped)


def replace_hidden(text: str, escape: Callable[[re.Match[str]], str]) -> str:
    """Return a text with `escape` of each character that steers a terminal or cannot be seen."""
    is_plain = text.isascii() and text.replace("\n", " ").replace("\t", " ").isprintable()
    return text if is_plain else re.sub(HIDDEN_CHARACTERS, escape, text)


def visible(text: str) -> str:
    """Return a text with escapes for the characters that steer a terminal or cannot be seen."""
    return replace_hidden(text, _shown)


def visible_line(text: str) -> str:
    """Return a text as `visible` does, in one line: line breaks and tabs are escaped too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number <= 0xFF:  # noqa: PLR2004 - one byte
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 - the basic plane


def join_first(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first names as one text, with the number of the others: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{separator.join(names[:most])}{more}"


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number <= 0xFFFF:  # noqa: PLR2004 - the basic plane
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


MAX_LINE_LENGTH: Final = 2_000
"""The maximum length of a line that is shown."""
_LOOKAHEAD: Final = 512
# The maximum length of a line that is reported: a secret at the cut must be complete to be redacted.
_MAX_REPORTED: Final = MAX_LINE_LENGTH + _LOOKAHEAD
_DOTS: Final = "..."


class LineListener(Protocol):
    """Receives the lines that a process prints, each as soon as it is complete."""

    def __call__(self, line: str, *, cut: bool = False) -> None:
        """Receive a line without its line break; with `cut` it is the beginning of a longer line."""


class LineSplitter:
    """Reports each line of a text as soon as it is complete; of a long line only the beginning."""

    def __init__(self, hear: LineListener) -> None:
        """Set the listener for the lines."""
        self._hear = hear
        self._rest = ""
        self._is_cut = False

    @property
    def rest(self) -> str:
        """The beginning of the next line."""
        return self._rest

    def feed(self, text: str) -> None:
        """Process the next piece of the text."""
        *whole, rest = f"{self._rest}{text}".split("\n")
        for line in whole:
            self._line(line)
        self._rest = rest
        if len(rest) > _MAX_REPORTED:
            self._line(rest)
            self._rest, self._is_cut = "", True

    def flush(self) -> None:
        """Report the last line, which has no line break."""
        if self._rest:
            self._line(self._rest)
        self._rest = ""

    def _line(self, line: str) -> None:
        if self._is_cut:  # this is the rest of a line whose beginning was reported
            self._is_cut = False
            return
        line = line.removesuffix("\r")
        if len(line) > _MAX_REPORTED:
            self._hear(line[:_MAX_REPORTED], cut=True)
        else:
            self._hear(line)


MAX_REASON: Final = 2_000
"""The maximum length of a reason that another program gives."""


def one_line(text: str) -> str:
    """Return what another program says, in one line without control characters; the beginning of a long text."""
    # Blanks and line breaks become one blank.
    shown = "".join(one if one.isprintable() else "?" for one in " ".join(text[: 2 * MAX_REASON].split()))
    return shown if len(shown) <= MAX_REASON else f"{shown[:MAX_REASON]}{_DOTS}"


# The shown part of a long command: all of it, or its beginning and its end.
_MOST_SHOWN, _HEAD, _TAIL = 400, 240, 80


def shorten_command(command: str) -> str:
    """Return a command for messages: of a long command only the beginning and the end."""
    if len(command) <= _MOST_SHOWN:
        return command
    return f"{command[:_HEAD]}... {len(command) - _HEAD - _TAIL:,} characters ...{command[-_TAIL:]}"


def displayable_part(line: str, redact: Callable[[str], str], *, cut: bool) -> tuple[str, bool]:
    """Return the characters of a line that are shown, and whether there are more; with `cut` the line was cut before.

    Secrets are redacted before the line is cut, since a part of a secret is not recognized.
    """
    if not cut and len(line) <= MAX_LINE_LENGTH:
        return line, False
    clean = redact(f"{line}{_DOTS}").removesuffix(_DOTS) if cut else redact(line)
    return clean[:MAX_LINE_LENGTH], cut or len(clean) > MAX_LINE_LENGTH


def json_pointer(path: Iterable[object]) -> str:
    """Return the JSON pointer (RFC 6901) of a path of keys and indexes."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def pointer_parts(pointer: str) -> list[str]:
    """Return the steps of a JSON pointer, also of one that is a reference such as `#/a/b`."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0


def format_duration(seconds: float) -> str:
    """Return a duration: `0.1s`, `28.4s`, `3m 05s`, `2h 10m`."""
    if seconds < _MINUTE_S - 0.05:  # else `.1f` rounds 59.96 to `60.0s`
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


_CENT: Final = Decimal("0.01")
_SMALLEST: Final = Decimal("0.0001")


def format_money(amount: Decimal, rounding: str = ROUND_HALF_UP) -> str:
    """Return US dollars: `$1.00`, `$0.0347`; an amount below `$0.0001` is `under $0.0001`, never `$0`."""
    if amount == 0:
        return "$0"
    if amount < _SMALLEST and rounding == ROUND_HALF_UP:
        return f"under ${_SMALLEST}"
    if amount >= 1:
        return f"${amount.quantize(_CENT, rounding):,}"
    whole, _, digits = str(amount.quantize(_SMALLEST, rounding)).partition(".")
    return f"${whole}.{digits.rstrip('0'):0<2}"


def decimal_text(amount: Decimal) -> str:
    """Return an amount exactly, as a decimal string without an exponent and trailing zeros."""
    return format(amount.normalize(), "f") if amount else "0"


def parse_amount(amount: str | None) -> Decimal | None:
    """Return an amount of US dollars as a number; None if it is unknown, not a number, or not finite."""
    try:
        number = Decimal(amount or "")
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


class ShellCharacter(Struct, frozen=True):
    """A character that is not protected by a backslash or single quotes: its index, and the quotes around it."""

    at: int
    char: str
    quote: ShellQuote


def shell_signs(command: str) -> Iterator[ShellCharacter]:
    """Yield the characters of a command that a shell interprets, in order, without quotes and escapes themselves."""
    quote, at = "", 0
    while at < len(command):
        char = command[at]
        if quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\":
            at += 1  # the next character is itself
        elif char == '"' or (char == "'" and not quote):
            quote = "" if quote else char
        else:
            yield ShellCharacter(at, char, '"' if quote else "")
        at += 1
