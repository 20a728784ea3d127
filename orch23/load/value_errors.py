"""Errors in the values of a text: the place of a name in an expression, the change, and `{{ }}` without its `$`.

Prompts and templates, where `{{ vars.model }}` is right, are files of their own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from orch23.language.expressions import node_at
from orch23.load.yaml_text import ParsedText
from orch23.model.diagnostic import Diagnostic, Location, Severity
from orch23.model.digest import Json
from orch23.model.fields import QUOTED, leaves
from orch23.model.parsing import as_mapping
from orch23.model.patterns import lazy_pattern

_BLOCKS = ("|", ">")
_MAPPING = lazy_pattern(r"\s*:\s*(\{[^{}]*\})")
_EXPRESSION = lazy_pattern(r"\$\{\{(?:(?!\$\{\{|\}\}).)*+\}\}")
_BRACES = lazy_pattern(r"(?<![${])\{\{-?\s*(\w+)[^{}\n]{0,200}\}\}|\$\{ ?(vars)(\.\w+) ?\}")
_ITEM = "item"
_MOST_WARNINGS = 10


def with_fix(found: Diagnostic, parsed: ParsedText, readings: tuple[str, ...], path: str) -> Diagnostic:
    """Return a diagnostic with what to write in place of the value at a path, or of a key if the path is empty.

    A reading may have another key: then all replace the value with its key.

    A value of several lines has its first line underlined, and no change: a change is within a line.
    """
    place, write = found.location, readings[0]
    if place is None or not write:
        return found
    key = parsed.key_positions.get(path) if path else None
    if key is not None and len(readings) > 1 and key.line == place.line and place.length > 1:
        place = replace(place, column=key.column, length=place.column + place.length - key.column)
        return replace(found, location=place, fix=(parsed.text_at(place), *readings))
    value = node_at(parsed.tree, path) if path else ""
    if write == QUOTED:
        end = parsed.positions[f"{path}/{next(iter(value))}"] if isinstance(value, Mapping) else place
        source = parsed.text.split("\n")[place.line - 1][place.column - 1 : end.column - 1 + end.length]
        if end.line != place.line or source.startswith(("'", '"', "{")):
            return found
        return replace(
            found, location=replace(place, length=len(source)), fix=(source, json.dumps(source, ensure_ascii=False))
        )
    if isinstance(value, Mapping):
        line = parsed.text.split("\n")[place.line - 1]
        braces = _MAPPING.match(line, place.column - 1 + place.length)
        if braces is None:
            return found
        place = replace(place, column=braces.start(1) + 1, length=len(braces[1]))
        return replace(found, location=place, fix=(braces[1], write))
    # The location of a value of several lines has the length 1.
    if place.length > 1 or not isinstance(value, str) or len(value) <= 1:
        return replace(found, fix=(parsed.text_at(place), *readings))
    first = parsed.text.split("\n")[place.line - 1].rstrip()[place.column - 1 :]
    hint = found.hint
    if write.startswith("["):
        marked = f"remove the `{first}`, and " if first.startswith(_BLOCKS) else ""
        hint = f"{marked}begin each line with `- `, or {hint}"
    return replace(found, location=replace(place, length=max(1, len(first))), hint=hint)


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


def brace_warnings(parsed: ParsedText, text: str) -> tuple[Diagnostic, ...]:
    """Return a warning for each value that has a name of expressions in `{{ }}`. `text` is the text of the pipeline."""
    return tuple(_warnings(parsed))[:_MOST_WARNINGS] if _BRACES.search(text) else ()


def _warnings(parsed: ParsedText) -> Iterator[Diagnostic]:
    stages = as_mapping(as_mapping(parsed.tree).get("stages"))
    texts = ((path, value) for path, value in leaves(parsed.tree) if isinstance(value, str))
    for path, value in texts:
        names = {"vars", *_item_names(stages, path)}
        for found in _BRACES.finditer(value):
            is_in_expression = value.count("${{", 0, found.start()) > value.count("}}", 0, found.start())
            if (found[1] or found[2]) in names and not is_in_expression:
                meant = f"${found[0]}" if found[1] else f"${{{{ vars{found[3]} }}}}"
                message = f"`{found[0]}` is not an expression, so it is used as it is written"
                place = parsed.location_of("/".join(map(str, path)))
                yield Diagnostic("W805", message, place, f"write `{meant}`", Severity.WARNING, fix=(found[0], meant))
                break


def _item_names(stages: Mapping[str, Json], path: Sequence[str | int]) -> Iterator[str]:
    if len(path) > 1 and path[0] == "stages":
        foreach = as_mapping(stages.get(str(path[1]))).get("foreach")
        if foreach is not None:
            name = as_mapping(foreach).get("as", _ITEM)
            yield name if isinstance(name, str) else _ITEM
