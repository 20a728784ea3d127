"""Describe syntax errors of YAML, with the location and a hint."""

from typing import TYPE_CHECKING, Any, TypeAlias

from orch23.model.diagnostic import Diagnostic, Location, Related

if TYPE_CHECKING:
    import yaml


Mark: TypeAlias = Any


QUOTE_EXPRESSION_HINT = 'put the expression in quotes: "${{ … }}"'


QUOTE_PATTERN_HINT = 'a pattern that starts with * needs quotes: "*.py"'


def location_at(file: str, text: str, index: int, length: int = 1) -> Location:
    """Return the location of a character of a text by its index (from 0)."""
    start = text.rfind("\n", 0, index) + 1
    return Location(file, text.count("\n", 0, index) + 1, index - start + 1, length)


# What libyaml says, and what we say instead. The first entry whose words occur in its message is used.
_SYNTAX: tuple[tuple[str, str, str | None], ...] = (
    ("cannot start any token", "no value may start with this character", "put the value in quotes"),
    ("mapping values are not allowed", "a `:` may not stand here", "check the indentation, or put the value in quotes"),
    ("block sequence entries are not allowed", "a list item may not stand here", "start the list on a line of its own"),
    ("did not find expected ',' or ']'", "the list started with `[` is not closed", "add the missing `,` or `]`"),
    ("did not find expected ',' or '}'", "the mapping started with `{` is not closed", "add the missing `,` or `}`"),
    ("did not find expected '-' indicator", "a list item is expected here", "check the indentation"),
    ("did not find expected node content", "a value is expected here", "write one, or put the characters in quotes"),
    ("did not find expected key", "a key is expected here", "check the indentation"),
    ("could not find expected ':'", "a key without its `:`", "add a `:`, or check the indentation"),
    ("unexpected end of stream", "a quoted string is not closed", "add the closing quote"),
    ("unexpected document indicator", "a quoted string is not closed", "add the closing quote"),
    ("unknown escape character", "an unknown escape in a quoted string", "use single quotes, or write `\\\\`"),
    ("found undefined tag handle", "tags (`!…`) are not allowed", "remove the tag; quotes make a string"),
    ("did not find expected alphabetic", "a value may not start with this character", "put the value in quotes"),
    ("duplicate", "a directive appears twice", "remove it"),
    ("did not find expected <document start>", "a second value starts here", "check the indentation"),
    ("found a tab", "a tab may not indent", "indent with spaces"),
)


def _index(lines: list[str], where: Location) -> int:
    """Return how many characters stand before a place."""
    return sum(len(line) + 1 for line in lines[: where.line - 1]) + where.column - 1


def syntax_error(error: "yaml.MarkedYAMLError", text: str, file: str) -> Diagnostic:
    """Return what a syntax error of PyYAML means, where it is, and how to fix it."""
    mark: Mark = error.problem_mark or error.context_mark
    lines = text.split("\n")
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    problem = error.problem or ""
    known = next((entry for entry in _SYNTAX if entry[0] in problem), None)
    _, message, hint = known or ("", f"this is no YAML: {problem}", None)
    where = Location(file, 1, 1)
    if mark is not None:
        inside = mark.line < len(lines)
        where = Location(file, mark.line + 1, mark.column + 1) if inside else location_at(file, text, len(text))
    context: Mark = error.context_mark
    if "alias" in (error.context or "") and context is not None:
        where = Location(file, context.line + 1, context.column + 1)
        return Diagnostic("E801", "a value may not start with `*`", where, QUOTE_PATTERN_HINT)
    if line[where.column - 1 : where.column] == "\t":
        return Diagnostic("E801", "a tab may not stand here", where, "indent with spaces")
    related: tuple[Related, ...] = ()
    opened = context is not None and "flow" in (error.context or "")
    if "${{" in line:
        hint = QUOTE_EXPRESSION_HINT
        where = Location(file, where.line, line.index("${{") + 1, 3)
    elif opened and context is not None and not text[_index(lines, where) :].strip():
        where = Location(file, context.line + 1, context.column + 1)
    elif opened and context is not None:
        related = (Related("opened here", Location(file, context.line + 1, context.column + 1)),)
    elif "quoted" in (error.context or "") and context is not None and "escape" not in problem:
        where = Location(file, context.line + 1, context.column + 1)
    return Diagnostic("E801", message, where, hint, related=related)
