"""Describe errors of prompt and template files: what is wrong, where in its line, and what to write.

Names that no rendering defines are found without rendering.
"""

import contextlib
import re
from collections.abc import Collection, Iterator

import jinja2
from jinja2 import meta, nodes

from orch23.model.diagnostic import Diagnostic, Location, did_you_mean, fix_of_hint, quoted_names
from orch23.model.patterns import lazy_pattern
from orch23.resolve.templates import TEMPLATE_GLOBALS, TemplateFileError, template_environment

_TAGS = ("if", "for", "set", "filter", "macro", "raw", "with")
_PARTS_OF_TAGS = (*_TAGS, "elif", "else", *(f"end{one}" for one in _TAGS))
# Words of other languages.
_ENDS = {"fi": "endif", "end": "endif", "done": "endfor", "elseif": "elif", "elsif": "elif", "foreach": "for"}
_BLOCK_FILTERS = ("blocks", "block")

_OPEN = lazy_pattern(r"\{\{(?:(?!\}\})[\s\S])*?(?=\n|\Z)")
_UNCLOSED_TAG = lazy_pattern(r"The innermost block that needs to be closed is '(\w+)'")
_UNKNOWN_TAG = lazy_pattern(r"Encountered unknown tag '(\w+)'")
_NO_FILTER = lazy_pattern(r"No filter named '(\w+)'")
_NO_MEMBER = lazy_pattern(r"the (?:mapping|value) has no `([^`]+)`")
_NO_NAME = lazy_pattern(r"`(\w+)` is not defined")
_SECOND_WORD = lazy_pattern(r"expected token end, got '([^'\n]+)'")
_NOT_CLOSED = ("unexpected '}'", "unexpected end of template", "unexpected 'end of template'", "expected token end")
_OF_FILES = "a file has `path`, `text`, `value` (of JSON), `slice` and `digest`"


def template_error(error: TemplateFileError, path: str, text: str) -> Diagnostic:
    """Return the diagnostic of an error in a file with this text."""
    lines = text.split("\n")
    number = min(max(1, error.line or 1), len(lines))
    line = lines[number - 1]
    for message, way, line_number, column, length in _described(error.message, number, lines):
        place = Location(path, line_number, column + 1, max(1, length))
        hint, written = error.hint or way, lines[line_number - 1][column : column + place.length]
        return Diagnostic("E832", message, place, hint, fix=fix_of_hint(written, hint))
    return Diagnostic("E832", error.message, Location(path, number, _first_column(line) + 1, 1), error.hint)


def _first_column(line: str) -> int:
    found = re.search(r"\{[{%#]", line)
    return found.start() if found else 0


def _described(message: str, number: int, lines: list[str]) -> Iterator[tuple[str, str | None, int, int, int]]:
    """Yield message, hint, line, column and length, if the error is a known one. Columns count from 0."""
    line = lines[number - 1]
    if found := _NO_NAME.match(message):
        at = re.search(rf"\b{re.escape(found[1])}\b", line)
        yield message, None, number, *_span(at, 0)
    if found := _NO_FILTER.match(message):
        at = re.search(rf"\|\s*({re.escape(found[1])})\b", line)
        hint = f"the files of the stage are shown by {quoted_names(_BLOCK_FILTERS)}: `{{{{ inputs | blocks }}}}`"
        yield f"`{found[1]}` is not a filter", hint, number, *_span(at, 1)
    if message.startswith("`block` needs an input"):
        at = re.search(r"(?<!\w)(\w++)\s*+\|\s*+(block)\b(?!\s*\()", line) or re.search(r"(\|)\s*(block)\b", line)
        near = "did you mean `blocks`?" if at is not None and at[1] in ("inputs", "own") else None
        yield message, near, number, *_span(at, 2)
    if found := _NO_MEMBER.match(message):
        yield _lacking(found[1], message, number, line)
    if found := _UNKNOWN_TAG.match(message):
        at = re.search(rf"\{{%[-+]?\s*({re.escape(found[1])})\b", line)
        yield f"`{found[1]}` is not a tag here", _hint_of_tag(found[1]), number, *_span(at, 1)
    if found := _UNCLOSED_TAG.search(message):
        name = found[1]
        opened = [
            (at + 1, tag.start(), len(tag[0]))
            for at, one in enumerate(lines)
            for tag in re.finditer(rf"\{{%[-+]?\s*{name}\b[^%\n]*%?\}}?", one)
        ]
        place = opened[-1] if opened else (number, 0, 1)
        yield f"`{{% {name} %}}` is not closed", f"write `{{% end{name} %}}` after its text", *place
    if message.startswith(_NOT_CLOSED) and (unclosed := _unclosed(number, lines)) is not None:
        yield "`{{` is not closed by `}}`", "write `}}` at the end of the expression", *unclosed
    if found := _SECOND_WORD.match(message):
        at = re.search(rf"\{{\{{[^{{}}]*?({re.escape(found[1])})", line)
        hint = "`{{ }}` has one expression: a filter comes after `|`, as in `{{ inputs | blocks }}`"
        column, length = (at.start(1), len(found[1])) if at else (_first_column(line), 1)
        yield f"`{found[1]}` is not expected here", hint, number, column, length
    if message.startswith("Missing end of comment"):
        yield "`{#` is not closed", "write `#}` at the end of the comment", number, max(0, line.find("{#")), 2


def _span(found: re.Match[str] | None, group: int) -> tuple[int, int]:
    return (found.start(group), len(found[group])) if found else (0, 1)


def _hint_of_tag(name: str) -> str:
    if name.startswith("end") and name in _PARTS_OF_TAGS:
        return f"remove it, or write `{{% {name[3:]} ... %}}` before it"
    meant = _ENDS.get(name)
    near = f"did you mean `{meant}`?" if meant else did_you_mean(name, _PARTS_OF_TAGS)
    return near or f"the tags are {quoted_names(_TAGS)}"


def _lacking(name: str, message: str, number: int, line: str) -> tuple[str, str | None, int, int, int]:
    owner = r"\w+(?:\.\w+|\[\s*(?:'[^']*'|\"[^\"]*\"|\d+)\s*\])*"
    member = rf"(?:\.\s*({re.escape(name)})\b|\[\s*['\"]({re.escape(name)})['\"]\s*\])"
    found = re.search(rf"\b({owner})\s*{member}", line)
    if found is None:
        return message, None, number, _first_column(line), 1
    group = 2 if found[2] else 3
    hint = None
    if found[1] == "inputs":
        hint = "`inputs` has the files of the stage: `inputs | blocks` shows them all, `inputs['PATH'].text` is one"
    elif message.startswith("the value"):
        hint = _OF_FILES
    return f"`{found[1]}` has no `{name}`", hint, number, found.start(group), len(name)


def _unclosed(number: int, lines: list[str]) -> tuple[int, int, int] | None:
    for at in range(number, 0, -1):
        opened = [found for found in _OPEN.finditer(lines[at - 1]) if "}}" not in found[0]]
        if opened:
            return at, opened[-1].start(), len(opened[-1][0].rstrip())
    return None


def undefined_names(path: str, text: str, names: Collection[str]) -> Iterator[Diagnostic]:
    """Yield an error for each name that is used but is neither one of `names` nor set by the template itself."""
    # An unknown filter, or too deep an expression: that is reported when the file is rendered.
    with contextlib.suppress(jinja2.TemplateSyntaxError, RecursionError):
        yield from list(_undefined(path, text, names))


def _undefined(path: str, text: str, names: Collection[str]) -> Iterator[Diagnostic]:
    tree = template_environment().parse(text)
    known = {*names, *TEMPLATE_GLOBALS}
    # A template may ask whether a name is defined.
    tests = (test for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined"))
    asked = {test.node.name for test in tests if isinstance(test.node, nodes.Name)}
    missing = meta.find_undeclared_variables(tree) - known - asked
    for found in tree.find_all(nodes.Name):
        if found.name in missing:
            missing.remove(found.name)
            hint = did_you_mean(found.name, known) or f"known here: {quoted_names(sorted(names))}"
            line = text.split("\n")[found.lineno - 1]
            column = max(0, line.find(found.name)) + 1
            place = Location(path, found.lineno, column, len(found.name))
            yield Diagnostic("E832", f"`{found.name}` is not defined", place, hint, fix=fix_of_hint(found.name, hint))
