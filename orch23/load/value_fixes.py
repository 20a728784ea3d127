"""The change that corrects a value or a key of a text."""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from orch23.language.expressions import node_at
from orch23.load.yaml_text import ParsedText
from orch23.model.diagnostic import Diagnostic

_BLOCKS = ("|", ">")
_BRACES = re.compile(r"\s*:\s*(\{[^{}]*\})")


def with_fix(found: Diagnostic, parsed: ParsedText, write: str, path: str) -> Diagnostic:
    """Return a diagnostic with what to write in place of the value at a path, or of a key if the path is empty.

    A value of several lines has its first line underlined, and no change: a change is within a line.
    """
    place = found.location
    if place is None or not write:
        return found
    value = node_at(parsed.tree, path) if path else ""
    if isinstance(value, Mapping):
        line = parsed.text.split("\n")[place.line - 1]
        braces = _BRACES.match(line, place.column - 1 + place.length)
        if braces is None:
            return found
        place = replace(place, column=braces.start(1) + 1, length=len(braces[1]))
        return replace(found, location=place, fix=(braces[1], write))
    # The location of a value of several lines has the length 1.
    if place.length > 1 or not isinstance(value, str) or len(value) <= 1:
        return replace(found, fix=(parsed.text_at(place), write))
    first = parsed.text.split("\n")[place.line - 1].rstrip()[place.column - 1 :]
    hint = found.hint
    if write.startswith("["):
        marked = f"remove the `{first}`, and " if first.startswith(_BLOCKS) else ""
        hint = f"{marked}begin each line with `- `, or {hint}"
    return replace(found, location=replace(place, length=max(1, len(first))), hint=hint)
