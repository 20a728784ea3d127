"""Split a scalar into literal texts and the expressions between them, of which one may have no value."""

import functools
import re

from msgspec import Struct


class Source(Struct, frozen=True):
    """The text between `${{` and `}}`."""

    text: str


class UnclosedError(Exception):
    """A `${{` without its `}}`."""


@functools.lru_cache(maxsize=4096)
def pieces_of(text: str) -> "tuple[str | Source, ...]":
    """Split a scalar into literal texts and expressions."""
    out: list[str | Source] = []
    literal, at = "", 0
    while True:
        start = text.find("${{", at)
        if start < 0:
            break
        if start > at and text[start - 1] == "$":
            literal += text[at : start - 1] + "${{"
            at = start + 3
            continue
        end = _end_of(text, start + 3)
        literal += text[at:start]
        if literal:
            out.append(literal)
        literal, at = "", end + 2
        out.append(Source(text[start + 3 : end]))
    literal += text[at:]
    if literal:
        out.append(literal)
    return tuple(out)


_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\}\}|[{}]""", re.DOTALL)


def _end_of(text: str, at: int) -> int:
    """Return where the `}}` of an expression is: outside of strings, and of the braces of a dict."""
    depth = 0
    while (token := _TOKEN.search(text, at)) is not None:
        at = token.end()
        if token.group() == "{":
            depth += 1
        elif token.group()[0] == "}":
            if depth == 0 and token.group() == "}}":
                return token.start()
            if depth:
                depth -= 1
                at = token.start() + 1
    raise UnclosedError


class ExpressionFault(Exception):  # noqa: N818 - carried no further than `expressions`, where it becomes an ExpressionError
    """An expression without a value."""

    def __init__(self, message: str, hint: str | None = None, code: str = "E841") -> None:
        """Keep fact, way out and code."""
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code
