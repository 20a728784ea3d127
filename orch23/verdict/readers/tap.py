"""Read TAP, the Test Anything Protocol, versions 12 to 14, with nested tests."""

import re
from itertools import takewhile

from msgspec import Struct, field

from orch23.model.patterns import lazy_pattern
from orch23.text.differences import differing_values
from orch23.verdict.run_results import RunResults

_VERSION = lazy_pattern(r"TAP version \d+\s*$")
_RESULT = lazy_pattern(r"(not )?ok\b(?:[ \t]+(\d{1,9})\b)?(.*)")
_PLAN = lazy_pattern(r"1\.\.(\d{1,9})(?=\s|$)")
_DIRECTIVE = re.compile(r"(?<!\\)#[ \t]{0,8}(skip|todo)\b", re.IGNORECASE)
_DEPTH, _BLOCK_LINES, _MESSAGE_LINES = 100, 6, 200
_OUTCOMES = {"": "passed", "skip": "skipped", "todo": "xpassed"}
_BLOCKS = ("|-", ">-", "|", ">")


class _Point(Struct):
    """A line with a result, and what explains it. The results of subtests come before it."""

    indent: int
    name: str
    outcome: str
    reason: str
    lines: list[str] = field(default_factory=list)


class _Document(Struct):
    """One TAP document: a program may print several. `block` is the indentation of an open YAML block.

    `number` is the number of results that are not of subtests, `last` the last result. `points` are those that count.
    """

    points: list[_Point] = field(default_factory=list)
    last: _Point | None = None
    number: int = 0
    planned: int | None = None
    comments: list[str] = field(default_factory=list)
    block: int = -1
    group: str = ""
    has_subtests: bool = False
    broken: str | None = None


def begins_with_tap(text: str) -> bool:
    """Return whether an output begins with TAP, after empty lines and the lines `> ...` of npm."""
    lines = (line for line in text[:2000].split("\n") if line.strip() and not line.startswith(">"))
    return _VERSION.match(next(lines, "")) is not None


def read(text: str, results: RunResults) -> None:
    """Add the results of all TAP documents in a text. Other lines are output of the tests."""
    document = _Document()
    for line in text.split("\n"):
        if _is_in_block(document, line):
            continue
        if _VERSION.match(line):
            if document.last or document.planned is not None:
                _finish(document, results)
            document = _Document()
        else:
            _take_line(document, line)
    _finish(document, results)


def _is_in_block(document: _Document, line: str) -> bool:
    """Take a line of a YAML block, which explains the result before it; return whether it is one."""
    last, indent, bare = document.last, _indentation(line), line.strip()
    if last is None:
        return False
    if document.block < 0:
        if bare != "---" or indent <= last.indent:
            return False
        document.block = indent
        document.comments.clear()
    elif bare and (indent < document.block or (bare == "..." and indent == document.block)):  # some have no end
        document.block = -1
        return bare == "..."
    elif not bare.startswith("duration_ms:"):  # it differs at each run
        last.lines.append(line[document.block :])
    return True


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _take_line(document: _Document, line: str) -> None:
    indent, bare = _indentation(line), line.strip()
    if bare.startswith("Bail out!"):
        document.broken = document.broken or bare[:200]
    elif indent == 0 and (plan := _PLAN.match(line)):
        document.planned = int(plan[1])
        _take_comments(document)
    elif bare.startswith("#") and (document.planned is None or document.number < document.planned):
        document.has_subtests |= bare.startswith("# Subtest:")
        document.comments.append(bare[1:].removeprefix(" "))
    elif indent < _DEPTH and (found := _RESULT.match(bare)):
        _take_result(document, indent, found)


def _take_comments(document: _Document) -> None:
    """Give comments to the failure before them if it has no block; else tape names the next test by the last one."""
    last = document.last
    if last and last.outcome == "failed" and not last.lines:
        last.lines += document.comments
    elif document.comments:
        document.group = document.comments[-1].strip()
    document.comments.clear()


def _take_result(document: _Document, indent: int, found: re.Match[str]) -> None:
    failed, number, rest = found.groups()
    _take_comments(document)
    text, kind, reason = [*_DIRECTIVE.split(rest, maxsplit=1), "", ""][:3]
    outcome = ("xfailed" if kind.lower() == "todo" else "failed") if failed else _OUTCOMES[kind.lower()]
    name = text.strip().removeprefix("-").removesuffix("{").strip().replace("\\#", "#")
    name = name or f"#{number or len(document.points) + 1}"
    if document.group not in ("", name) and indent == 0 and not document.has_subtests:
        name = f"{document.group} > {name}"
    start = len(document.points)
    while start and document.points[start - 1].indent > indent:
        start -= 1
    nested = document.points[start:]
    for one in nested:
        one.name, one.indent = f"{name} > {one.name}", indent
    document.number += indent == 0
    document.last = _Point(indent, name, outcome, reason)
    # A test fails because of its subtests, which are named.
    if not nested or (outcome == "failed" and not any(one.outcome == "failed" for one in nested)):
        document.points.append(document.last)


def _finish(document: _Document, results: RunResults) -> None:
    _take_comments(document)
    for point in document.points:
        text = differing_values("\n".join(point.lines)) if point.lines else ""
        message = point.reason or (_message(text.split("\n")[:_MESSAGE_LINES]) if text else "")
        results.add(point.name, point.outcome, text, message)
    number, planned, why = document.number, document.planned, None
    if planned is None:
        no_plan = "it has no plan, such as `1..3`: the program may have ended early"
        why = no_plan if document.last else "it has no result in TAP"
    elif planned > number:  # ava writes more results than it planned
        why = f"its plan is 1..{planned}, and it has {number} results"
    results.broken = results.broken or document.broken or why


def _below(lines: list[str], number: int) -> list[str]:
    """Return the first lines of the YAML text below a key."""
    depth = _indentation(lines[number])
    below = takewhile(lambda one: not one.strip() or _indentation(one) > depth, lines[number + 1 :])
    found = [one.strip() for one in below]
    # node shows a difference with lines around it, after the line `+ actual - expected`.
    changed = [one for one in found if one.startswith(("+ ", "- ")) and not one.startswith("+ actual")]
    return [*found[:1], *changed[: _BLOCK_LINES - 1]] if changed else found[:_BLOCK_LINES]


def _message(lines: list[str]) -> str:
    """Return the error in the YAML block or the comments of a failure, in one line."""
    values: dict[str, str] = {}
    for number, line in enumerate(lines):
        key, colon, value = line.strip().partition(":")
        value = value.strip().strip("'\"")
        if colon and value in _BLOCKS:
            value = " ".join(_below(lines, number))
        values.setdefault(key, value)
    if stated := values.get("error") or values.get("message"):
        return stated
    if "expected" in values and "actual" in values:
        return f"expected {values['expected']}, actual {values['actual']}"
    # bats puts the place first: `(in test file t.bats, line 3)`.
    return values.get("operator") or " ".join([one.strip() for one in lines if not one.startswith("(")][:_BLOCK_LINES])
