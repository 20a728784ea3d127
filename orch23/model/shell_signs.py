"""Find the characters of a command that a shell would interpret."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

ShellQuote: TypeAlias = Literal["", '"']


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
