"""Find all tabs that indent lines of a YAML text, after the parser refused the first one."""

import re
from collections.abc import Callable, Iterator

from orch23.model.diagnostic import Diagnostic, Location

# Each tab takes one pass over the text up to it, so in a large text not all are searched.
_MOST = 200
_MOST_CHARACTERS = 2_000_000
_STEP = 2
_INDENT = re.compile(r"[ \t]*")


def tab_errors(text: str, file: str, refused_line: Callable[[str], int | None]) -> Iterator[Diagnostic]:
    """Yield an error for each line that a tab indents, with the spaces to write.

    `refused_line` returns the line, from 0, where the parser refuses a text because of a tab; None if it does not.
    Each tab is replaced by spaces before the next one is searched, so that a tab within a value is not reported.
    """
    lines = text.split("\n")
    written: dict[str, int] = {}
    for _ in range(max(1, min(_MOST, _MOST_CHARACTERS // len(text)))):
        number = refused_line("\n".join(lines))
        if number is None or "\t" not in (indent := _indent(lines[number])):
            return
        above = next((line for line in reversed(lines[:number]) if _is_content(line)), "")
        below = next((line for line in lines[number + 1 :] if _is_content(line)), "")
        width, way = _width(indent, above, below, written)
        written[indent] = width
        lines[number] = " " * width + lines[number][len(indent) :]
        spaces = f"{width} space{'' if width == 1 else 's'}"
        hint = f"write {spaces} in place of the tab{way}" if width else "remove the tab"
        place = Location(file, number + 1, 1, len(indent))
        yield Diagnostic("E801", "a tab may not indent a line", place, hint, fix=(indent, " " * width))


def _width(indent: str, above: str, below: str, written: dict[str, int]) -> tuple[int, str]:
    if indent in written:
        return written[indent], ", as in the lines above with the same tabs"
    over, under = _indent(above), _indent(below)
    is_key = above.split(" #", maxsplit=1)[0].rstrip().endswith(":")
    if "\t" not in under and (len(under) > len(over) if is_key else len(under) == len(over)):
        return len(under), ", as in the line below" if is_key else ", as in the line above"
    if is_key:
        return len(over) + _STEP, ""
    return len(over), ", as in the line above"


def _indent(line: str) -> str:
    found = _INDENT.match(line)
    return found[0] if found else ""


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
