"""Read a command as a shell would, up to one question: which of its characters are left to be acted on."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

Quote: TypeAlias = Literal["", '"']


class Sign(Struct, frozen=True):
    """A character that no backslash and no single quote protects: where it is, and the quote it stands in."""

    at: int
    char: str
    quote: Quote


def shell_signs(command: str) -> Iterator[Sign]:
    """Give the characters of a command that a shell looks at, in order; quotes and escapes themselves are left out."""
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
            yield Sign(at, char, '"' if quote else "")
        at += 1
