"""The characters that steer a terminal, or are not seen where they stand, and how they are written in JSON."""

import re

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ud800-\udfff\ufff9-\ufffb]"
    "|[\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def plain_json(text: str) -> str:
    """Return the same JSON with hidden characters as escapes: no reader of lines, and no eye, is misled by them.

    Between values JSON has none of them but carriage returns, so all that is found stands in a string.
    """
    return text if text.isascii() and text.isprintable() else HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number <= 0xFFFF:  # noqa: PLR2004 - the basic plane
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
