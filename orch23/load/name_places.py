"""Find the place of a name in an expression of a text."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location

_EXPRESSION = re.compile(r"\$\{\{(?:(?!\$\{\{|\}\}).)*+\}\}")


def at_name(found: Diagnostic, text: str, name: str, near: str) -> Diagnostic:
    """Return a diagnostic about a node with the place of a name in its expressions, and with the fix.

    `name` is such as `vars.modle`; its last part is underlined. `near`, if not empty, is what to write for that part.
    """
    owner, _, last = name.rpartition(".")
    before = rf"(?<![\w.]){re.escape(owner)}\s*(?:\.\s*|\[\s*['\"]+)" if owner else r"(?<![\w.])"
    pattern = re.compile(rf"{before}({re.escape(last)})(?!\w)")
    node = found.location
    for number, column, part in () if node is None else _lines_of(text, node):
        for expression in _EXPRESSION.finditer(part):
            named = pattern.search(part, expression.start(), expression.end())
            if node is not None and named is not None:
                place = Location(node.file, number, column + named.start(1) + 1, len(named[1]))
                return replace(found, location=place, fix=(last, near) if near else None)
    return found


def _lines_of(text: str, node: Location) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a scalar: number, index of the first character of its text there, and that text."""
    lines = text.split("\n")
    first = lines[node.line - 1]
    start = node.column - 1
    if node.length > 1:
        yield node.line, start, first[start : start + node.length]
        return
    # A scalar of several lines: those below it that have a deeper indentation than its key.
    yield node.line, start, first[start:]
    indent = len(first) - len(first.lstrip())
    for number, line in enumerate(lines[node.line :], node.line + 1):
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return
        yield number, 0, line
