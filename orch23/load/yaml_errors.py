"""Errors of a text before its YAML is read, and of its syntax: limits, encoding, characters, hints."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Location, Related, question

if TYPE_CHECKING:
    import yaml


Mark: TypeAlias = Any
"""The position of a character in a text, from PyYAML. The type stubs of PyYAML declare different types for it."""

TAB_REFUSED = "a tab is not allowed here"
QUOTE_EXPRESSION_HINT = 'put the expression in quotes: "${{ … }}"'
QUOTE_PATTERN_HINT = 'a pattern that starts with * needs quotes: "*.py"'


# YAML forbids most of these. Editors do not count U+2028, U+2029 and a lone CR as line breaks, so that locations in
# the text would be wrong; half surrogates and noncharacters cannot be written to UTF-8 files.
_UNREADABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]|\r(?!\n)"
)
# Each tab takes one pass over the text up to it, so in a large text not all are searched.
_MOST_TABS = 200
_MOST_TABBED_CHARACTERS = 2_000_000
_INDENT_STEP = 2
_INDENT = re.compile(r"[ \t]*")


class TextLimits(Struct, frozen=True):
    """Limits of a text: bytes, values, and characters of the paths of all values.

    A path repeats the keys above it: 40,000 values below 50 keys of 1,000 characters would take 2 GB.
    """

    size_bytes: int = 1 << 20
    nodes: int = 120_000
    paths: int = 16 << 20


DATA_LIMITS = TextLimits()
"""Limits for texts that a model may have written."""

PIPELINE_LIMITS = TextLimits(size_bytes=16 << 20, nodes=2_000_000, paths=128 << 20)
"""Limits for pipelines, which a user writes or generates: about 100,000 stages."""


def location_at(file: str, text: str, index: int) -> Location:
    """Return the location of a character of a text by its index (from 0)."""
    start = text.rfind("\n", 0, index) + 1
    return Location(file, text.count("\n", 0, index) + 1, index - start + 1)


def decode_text(data: bytes, file: str) -> tuple[str, tuple[Diagnostic, ...]]:
    """Return the text of a file, without a byte order mark, or the error where it is not UTF-8."""
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        where = location_at(file, before, len(before))
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        return "", (Diagnostic("E805", message, where, "save the file as UTF-8"),)


def too_large_error(file: str, caps: TextLimits) -> Diagnostic:
    """Return the error of a file that is larger than its limit."""
    hint = "keep data in files of its own, or split the pipeline"
    return Diagnostic("E805", f"the file is over {caps.size_bytes} bytes", Location(file, 1, 1), hint)


def text_error(text: str, file: str, caps: TextLimits) -> Diagnostic | None:
    """Return the error of a text that has a character which YAML does not allow, or is too large; else None."""
    bad = _UNREADABLE.search(text)
    if bad is not None:
        message = f"the character U+{ord(bad.group()):04X} is not allowed in YAML"
        hint = "remove it, or write it as an escape in a double-quoted string"
        return Diagnostic("E805", message, location_at(file, text, bad.start()), hint)
    is_large = len(text) > caps.size_bytes or len(text.encode()) > caps.size_bytes
    return too_large_error(file, caps) if is_large else None


_EXPRESSION = re.compile(r"\$\{\{(?:.*?\}\})?")
_KEY = re.compile(r"[\w-]+")
_SIGNS = "\"'[]{}&*!|>%@`"
_OPEN_QUOTE = re.compile(r" *(?:- )?(?:[\w-]+: )?([\"'])(?:(?!\1).)*")

# Messages of libyaml speak of tokens and nodes, which authors of pipelines do not know. The first entry whose words
# occur in its message is used.
_SYNTAX: tuple[tuple[str, str, str | None], ...] = (
    ("cannot start any token", "no value may start with this character", "put the value in quotes"),
    (
        "mapping values are not allowed",
        "a `:` is not allowed here",
        "check the indentation, or put the value in quotes",
    ),
    (
        "block sequence entries are not allowed",
        "a list item is not allowed here",
        "start the list on a line of its own",
    ),
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


def syntax_error(error: "yaml.MarkedYAMLError", text: str, file: str) -> Diagnostic:
    """Return what a syntax error of PyYAML means, where it is, and how to fix it."""
    problem, context = error.problem or "", error.context or ""
    known = ((message, hint) for words, message, hint in _SYNTAX if words in problem)
    message, hint = next(known, (f"this is not YAML: {problem}", None))
    mark: Mark = error.problem_mark or error.context_mark
    if mark is None:
        return Diagnostic("E801", message, Location(file, 1, 1), hint)
    lines = text.split("\n")
    # libyaml sees a line break at the end of every text, so that its last line may be one after it.
    line = "".join(lines[mark.line : mark.line + 1])
    where = _location(file, mark) if mark.line < len(lines) else location_at(file, text, len(text))
    opened = None if error.context_mark is None else _location(file, error.context_mark)
    if opened is not None and "alias" in context:
        return Diagnostic("E801", "a value may not start with `*`", opened, QUOTE_PATTERN_HINT)
    if line[where.column - 1 : where.column] == "\t":
        return Diagnostic("E801", TAB_REFUSED, where, "indent with spaces")
    if (guess := _misread(lines, mark.line, file)) is not None:
        return guess
    if "quoted" not in context and (expression := _EXPRESSION.search(line)):
        where = Location(file, where.line, expression.start() + 1, len(expression.group()))
        return Diagnostic("E801", "an expression needs quotes here", where, QUOTE_EXPRESSION_HINT)
    is_late = "mapping values" in problem or ("expected ':'" in problem and line)
    if is_late and (key := _key_without_colon(lines, mark.line)) is not None:
        number, name = key
        where = Location(file, number + 1, lines[number].index(name) + 1, len(name))
        return Diagnostic("E801", "a key without its `:`", where, f"write `{name}:`")
    quoted = _with_quotes(line, where, message, hint) if "mapping values" in problem else None
    if quoted or opened is None or ("flow" not in context and ("quoted" not in context or "escape" in problem)):
        return quoted or Diagnostic("E801", message, where, hint)
    # A later line, or the end of this one, says nothing; the sign that is not closed does.
    is_at_end = opened.line < where.line or not line[where.column - 1 :].strip()
    related = () if is_at_end or "flow" not in context else (Related("opened here", opened),)
    found = Diagnostic("E801", message, where if related else opened, hint, related=related)
    start = "".join(lines[opened.line - 1 : opened.line])
    return (_comment_in_value(start, opened) if "flow" in context else None) or found


_WITH_COMMENT = re.compile(r"(?<![^\s,\[\]{}\"'#])([^\s,\[\]{}\"'#]++) ++(#[^\s#\]][^\],}]*[^\s\],}]|#\w)")


def _comment_in_value(line: str, opened: Location) -> Diagnostic | None:
    """Return the error of a list or mapping that is not closed since a slice in it, `path #Heading`, is a comment."""
    found = _WITH_COMMENT.search(line, opened.column)
    if found is None:
        return None
    message = "` #` begins a comment, so the `[` or `{` before it is not closed"
    place = Location(opened.file, opened.line, found.start() + 1, len(found[0]))
    value = f'"{found[1]}{found[2]}"'
    return Diagnostic("E801", message, place, f"quote it: {value}", fix=(found[0], value))


def _with_quotes(line: str, at: Location, message: str, hint: str | None) -> Diagnostic | None:
    """Return the error of a value with `: ` in it, with quotes to add; None if the value begins with a sign of YAML."""
    key, _, rest = line.partition(": ")
    value = rest.split(" #", maxsplit=1)[0].strip()
    start = line.find(value, len(key) + 1)
    from orch23.text.secret_patterns import mask_secrets  # noqa: PLC0415 - only for errors

    if start >= at.column - 1 or not value or value[0] in _SIGNS or mask_secrets(line) != line:
        return None
    quoted = json.dumps(value, ensure_ascii=False)
    if not key.lstrip().startswith("- "):
        place = Location(at.file, at.line, start + 1, len(value))
        return Diagnostic("E801", message, place, hint, fix=(value, quoted))
    key = key.lstrip("- ")
    first = line.index(key)
    item = line[first : start + len(value)]
    readings = (f"{key}: {quoted}", json.dumps(item, ensure_ascii=False))
    place = Location(at.file, at.line, first + 1, len(item))
    return Diagnostic("E801", message, place, question(readings), fix=(item, *readings), otherwise=hint)


def _misread(lines: Sequence[str], number: int, file: str) -> Diagnostic | None:
    """Return the error of a quote that is open above a line (from 0), or of its indentation."""
    above, line = [at for at in range(number) if lines[at].strip()], "".join(lines[number : number + 1])
    start = next((at for at in reversed(above) if "'" in lines[at] or '"' in lines[at]), number)
    quote = _OPEN_QUOTE.fullmatch(lines[start]) if start < number else None
    if quote is not None and any(_indent(lines[at]) <= _indent(lines[start]) for at in above if at > start):
        place = Location(file, start + 1, quote.start(1) + 1)
        return Diagnostic("E801", "a quoted string is not closed", place, f"add the closing {quote[1]} in this line")
    check, width = "check the indentation", _indent(line)
    near = {_indent(lines[at]) for at in above} & {width - 1, width + 1} - {0}
    near = near & {_indent(lines[above[-1]])} if len(near) > 1 else near
    if width and len(near) == 1 and not any(_indent(lines[at]) == width for at in above):
        new, place = " " * near.pop(), Location(file, number + 1, 1, width)
        way, fix = f"indent this line with {len(new)} spaces", (" " * width, new)
        return Diagnostic("E801", "the indentation differs", place, way, fix=fix, otherwise=check)
    return None


def _key_without_colon(lines: Sequence[str], number: int) -> tuple[int, str] | None:
    """Return line and text of a key that lacks its `:`, above the line with a key below it; lines count from 0."""
    above = next((at for at in range(number - 1, -1, -1) if lines[at].strip()), None)
    name = "" if above is None else lines[above].strip()
    if above is None or not _KEY.fullmatch(name) or _indent(lines[above]) >= _indent(lines[number]):
        return None
    return above, name


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _location(file: str, mark: Mark) -> Location:
    return Location(file, mark.line + 1, mark.column + 1)


def tab_errors(text: str, file: str, refused_line: Callable[[str], int | None]) -> Iterator[Diagnostic]:
    """Yield an error for each line that a tab indents, with the spaces to write.

    `refused_line` returns the line, from 0, where the parser refuses a text because of a tab; None if it does not.
    Each tab is replaced by spaces before the next one is searched, so that a tab within a value is not reported.
    """
    lines = text.split("\n")
    written: dict[str, int] = {}
    for _ in range(max(1, min(_MOST_TABS, _MOST_TABBED_CHARACTERS // len(text)))):
        number = refused_line("\n".join(lines))
        if number is None or "\t" not in (indent := _indent_of(lines[number])):
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
    over, under = _indent_of(above), _indent_of(below)
    is_key = above.split(" #", maxsplit=1)[0].rstrip().endswith(":")
    if "\t" not in under and (len(under) > len(over) if is_key else len(under) == len(over)):
        return len(under), ", as in the line below" if is_key else ", as in the line above"
    return (len(over) + _INDENT_STEP, "") if is_key else (len(over), ", as in the line above")


def _indent_of(line: str) -> str:
    found = _INDENT.match(line)
    return found[0] if found else ""


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
