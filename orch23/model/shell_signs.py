"""Find the characters of a command that a shell would interpret."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

ShellQuote: TypeAlias = Literal["", '"']


class ShellCharacter(Struct, frozen=True):
    """A character that no backslash and no single quote protects: where it is, and the quote it stands in."""

    at: int
    char: str
    quote: ShellQuote


def shell_signs(command: str) -> Iterator[ShellCharacter]:
    """Return the characters of a command that a shell looks at, in order; quotes and escapes themselves are left out."""
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
