"""Find parts of text files: sections of Markdown, definitions of Python code, and ranges of lines."""

import ast
from collections.abc import Iterator, Sequence
from typing import NoReturn

from msgspec import Struct

from orch23.model.diagnostic import did_you_mean, question
from orch23.model.patterns import lazy_pattern
from orch23.text.source_syntax import parse_python

_HEADING = lazy_pattern(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_FENCE = lazy_pattern(r"^ {0,3}(```+|~~~+)")
_LINES = lazy_pattern(r"L([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")
_DEFINITION = lazy_pattern(r"(?:async[ ]+)?(def|class)[ ]+([^\s.]+(?:\.[^\s.]+)*)")
# What Python reads as the end of a line.
_PYTHON_LINE_END = lazy_pattern(r"\r\n?|\n")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_NAMED = 8


class SliceError(ValueError):
    """The selected part of a file does not exist, or exists more than once."""

    def __init__(self, message: str, hint: str) -> None:
        """Set message and hint."""
        super().__init__(message)
        self.hint = hint


def _refuse(message: str, hint: str) -> NoReturn:
    raise SliceError(message, hint)


class TextPart(Struct, frozen=True):
    """A part of a text: whole lines, the first one and the number after the last one, from 0.

    `level` is the level of a section's heading, 1 to 6; 0 for other parts.
    """

    text: str
    start: int
    end: int
    level: int = 0


def text_part(text: str, path: str, selector: str) -> TextPart:
    """Return a part of a text file: `def NAME`, `class NAME` of a Python file, `L10-40`, or the heading of a section.

    Headings come first: a section may be named `L1`.

    Raises:
        SliceError: no part, or more than one, has that name; or the file is not valid Python.
    """
    name = selector.strip()
    is_code = path.endswith((".py", ".pyi"))
    if is_code and (definition := _DEFINITION.fullmatch(name)):
        return _definition(text, path, definition[1], definition[2])
    if (lines := _LINES.fullmatch(name)) and not any(one.title == name for one in _headings(text.splitlines())):
        return _range(text, int(lines[1]), int(lines[2] or lines[1]))
    try:
        return _section(text, name)
    except SliceError as error:
        ways = "a definition is `#def NAME` or `#class NAME`, and lines are `#L10-40`"
        raise SliceError(str(error), ways) if is_code else error from None


def markdown_section(text: str, heading: str) -> str:
    """Return a heading's section: from its line to the next heading of an equal or higher level.

    The blank lines at its end are left out: they change when a section after it is added or removed.

    Raises:
        SliceError: no heading, or more than one, has that text.
    """
    return _section(text, heading.strip()).text


def first_line(selector: str) -> int:
    """Return the number of the first line of a range such as `L10-40`; 0 for any other selector."""
    lines = _LINES.fullmatch(selector)
    return int(lines[1]) if lines else 0


def moved_lines(before: str, after: str, start: int, end: int) -> tuple[int, int]:
    """Return where some lines of a text, from 0 and to the number after the last one, are in its edited version.

    They are between the nearest lines around them that are still there.
    """
    from difflib import SequenceMatcher  # noqa: PLC0415 - only for files that an attempt edited

    old, new = before.split("\n"), after.split("\n")
    # Without what is the same at both ends: the comparison takes long for large files.
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    steps = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
    blocks = [(0, 0, head), *((a + head, b + head, size) for a, b, size in steps.get_matching_blocks())]
    blocks.append((len(old) - tail, len(new) - tail, tail))
    kept = {a + n: b + n for a, b, size in blocks for n in range(size)}
    first = next((kept[n] + 1 for n in range(start - 1, -1, -1) if n in kept), 0)
    return first, next((kept[n] for n in range(end, len(old)) if n in kept), len(new) - (not new[-1]))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    differ = (number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


class _Heading(Struct, frozen=True):
    level: int
    title: str
    line: int


def _section(text: str, wanted: str) -> TextPart:
    lines = text.splitlines(keepends=True)
    headings = _headings(lines)
    found = [one for one in headings if one.title == wanted]
    if len(found) > 1:
        listed = ", ".join(str(one.line + 1) for one in found)
        _refuse(f"{len(found)} headings are named `{wanted}` (lines {listed})", "rename one of them")
    if not found:
        titles = sorted({one.title for one in headings})
        listed = "the headings are: " + (", ".join(titles[:_MOST_NAMED]) or "none")
        _refuse(f"no heading is named `{wanted}`", did_you_mean(wanted, titles) or listed)
    start = found[0]
    end = next((one.line for one in headings if one.line > start.line and one.level <= start.level), len(lines))
    section = "".join(lines[start.line : end]).rstrip()
    # `splitlines` also ends a line at rare characters, such as a form feed.
    first = sum(line.count("\n") for line in lines[: start.line])
    return TextPart(f"{section}\n", first, first + section.count("\n") + 1, start.level)


def _headings(lines: Sequence[str]) -> list[_Heading]:
    """Return the headings that are not inside a fenced block."""
    found: list[_Heading] = []
    opened = ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and (not opened or mark.group(1).startswith(opened)):
            opened = "" if opened else mark.group(1)[:3]
            continue
        heading = None if opened else _HEADING.match(line.rstrip("\r\n"))
        if heading:
            found.append(_Heading(len(heading.group(1)), heading.group(2), number))
    return found


def _range(text: str, first: int, last: int) -> TextPart:
    lines = text.split("\n")
    total = len(lines) - (not lines[-1])
    if last < first:
        _refuse(f"the range ends before it begins: {first} to {last}", f"write `L{last}-{first}`")
    if last > total:
        _refuse(f"the file has {total:,} lines", f"the last line is `L{total}`" if total else "the file is empty")
    return _of_lines(lines, first - 1, last)


def _of_lines(lines: Sequence[str], start: int, end: int) -> TextPart:
    return TextPart("".join(f"{line}\n" for line in lines[start:end]), start, end)


def _definition(text: str, path: str, kind: str, name: str) -> TextPart:
    """Return a function or class with its decorators. The name of a method is `CLASS.METHOD`."""
    try:
        tree = parse_python(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        _refuse(f"`{path}` is not valid Python{line}", "correct it, or name lines: `#L10-40`")
    kinds = _FUNCTIONS if kind == "def" else (ast.ClassDef,)
    nodes = [(named, node) for named, node in _definitions(tree) if isinstance(node, kinds)]
    found = [_lines_of(node) for named, node in nodes if named == name]
    if len(found) == 1:
        return _of_lines(text.split("\n"), *_text_lines(text, *found[0]))
    if found:
        ranges = " or ".join(f"`#L{start + 1}-{end}`" for start, end in found[:_MOST_NAMED])
        _refuse(f"{len(found)} definitions are `{kind} {name}`", f"name the lines: {ranges}")
    names = sorted({f"{kind} {named}" for named, _ in nodes})
    inside = [one for one in names if one.endswith(f".{name}")][:_MOST_NAMED]
    listed = f"the file has: {', '.join(names[:_MOST_NAMED])}" if names else f"the file has no `{kind}`"
    hint = question(inside) if inside else did_you_mean(f"{kind} {name}", names) or listed
    _refuse(f"no definition is `{kind} {name}`", hint)


def _text_lines(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the whole lines of a text that have these lines as Python counts them, which also ends some elsewhere."""
    ends = [0, *(mark.end() for mark in _PYTHON_LINE_END.finditer(text)), len(text)]
    begin, stop = ends[start], ends[min(end, len(ends) - 1)]
    return text.count("\n", 0, begin), text.count("\n", 0, stop) + (text[stop - 1] != "\n")


def _lines_of(node: ast.stmt) -> tuple[int, int]:
    """Return the first line of a definition, from 0, and the number after its last one, as Python counts lines."""
    decorators: Sequence[ast.expr] = getattr(node, "decorator_list", ())
    return min([node.lineno, *(one.lineno for one in decorators)]) - 1, node.end_lineno or node.lineno


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield all functions and classes by their names, with those that they are in: `Class.method`."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        above, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
                yield f"{above}{child.name}", child
                waiting.append((f"{above}{child.name}.", child))
            elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.append((above, child))
