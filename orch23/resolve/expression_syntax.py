"""Split text into literals and `${{ }}` expressions; the placeholder of unknown values."""

import functools
import re
from typing import Final, TypeAlias

from msgspec import Struct

from orch23.model.digest import Json

E_EXPRESSION: Final = "E841"
"""The code of an expression that is malformed or has no value."""

# A noncharacter: the filters upper, lower and trim do not change it, and YAML files must not contain it.
UNKNOWN_MARK: Final = "\ufdd0"


class Unknown:
    """The value of an item that is not known yet. Its members are unknown too."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return the mark that `possible_patterns` looks for."""
        return UNKNOWN_MARK

    __html__ = __str__


UNKNOWN: Final = Unknown()

ExpressionValue: TypeAlias = "Json | Unknown"


class ExpressionSource(Struct, frozen=True):
    """The text between `${{` and `}}`."""

    text: str


class UnclosedExpressionError(Exception):
    """A `${{` without its `}}`."""


@functools.lru_cache(maxsize=4096)
def split_expressions(text: str) -> "tuple[str | ExpressionSource, ...]":
    """Split a scalar into literal texts and expressions."""
    out: list[str | ExpressionSource] = []
    literal, at = "", 0
    while (start := text.find("${{", at)) >= 0:
        if start > at and text[start - 1] == "$":  # `$${{` is a literal `${{`
            literal += text[at : start - 1] + "${{"
            at = start + 3
            continue
        end = _end_of(text, start + 3)
        out += [literal + text[at:start], ExpressionSource(text[start + 3 : end])]
        literal, at = "", end + 2
    out.append(literal + text[at:])
    return tuple(piece for piece in out if piece != "")


_TOKEN = re.compile(r"""\}\}|['"{}]""")
_AFTER_QUOTE = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*+{quote}", re.DOTALL) for quote in "'\""}


def _end_of(text: str, at: int) -> int:
    """Return where the `}}` of an expression is: outside of strings, and of the braces of a dict."""
    depth, unclosed = 0, set[str]()
    while (token := _TOKEN.search(text, at)) is not None:
        at, quote = token.end(), token.group()
        if quote in _AFTER_QUOTE and quote not in unclosed:
            # A quote without an end does not begin a string, and later quotes of its kind have no end either.
            if string := _AFTER_QUOTE[quote].match(text, at):
                at = string.end()
            else:
                unclosed.add(quote)
        elif token.group() == "{":
            depth += 1
        elif token.group()[0] == "}":
            if depth == 0 and token.group() == "}}":
                return token.start()
            if depth:
                depth -= 1
                at = token.start() + 1
    raise UnclosedExpressionError


class EvaluationError(Exception):
    """An expression without a value. `name` is the wrong name in it, `near` what to write for its last part."""

    def __init__(
        self, message: str, hint: str | None = None, code: str = E_EXPRESSION, *, name: str = "", near: str = ""
    ) -> None:
        """Set what is wrong, and how to correct it."""
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code
        self.name, self.near = name, near
