"""Prepare output for messages: normalize what differs between runs, shorten, escape."""

import posixpath
import re
from collections.abc import Sequence

from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import BriefLimits
from orch23.model.text import join_first
from orch23.text.differences import differing_values

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (lazy_pattern(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"), ""),
    (lazy_pattern(r"pytest-of-[^/\s]{1,64}/pytest-\d+"), "pytest-of-user/pytest-N"),
    (
        lazy_pattern(r"/(?:var/)?tmp/(?:tmp[A-Za-z0-9_]{6,}|[A-Za-z0-9_-]*\.[A-Za-z0-9]{6,10})(?=[/\s'\":,)]|$)"),
        "/tmp/TMP",  # noqa: S108 - a name to show, not a place to write
    ),
    # Not other values, such as 0xdeadbeef: after such a word, or as the stack and the heap of a process have them.
    (lazy_pattern(r"\b(at |address |addr=|[bps][cp][ =])0x[0-9a-fA-F]{4,16}\b"), r"\g<1>0xADDRESS"),
    (lazy_pattern(r"\b0x(?:0000)?(?:[5-7][0-9a-f]{11}|ffff[0-9a-f]{8}|c0[0-9a-f]{8})\b"), "0xADDRESS"),
    (lazy_pattern(r"\bin \d+(?:\.\d+)?s\b(?: \(\d+:\d\d:\d\d\))?"), "in N s"),
    (lazy_pattern(r"(?<![\w.])\d+\.\d+s(?= (?:call|setup|teardown)\b)"), "N s"),
    (lazy_pattern(r"(?m)^(thread '[^'\n]{1,300}') \(\d+\)(?= panicked at )"), r"\1"),  # Rust
    (lazy_pattern(r"(?m)^=+ (.*?) =+$"), r"== \1 =="),
    (lazy_pattern(r"\r\n?"), "\n"),
)


# Such paths are found by their end: a search for the start of each would take quadratic time in a long line.
_LIBRARY = lazy_pattern(r"/lib(?:64)?/python3\.\d+t?(?=/)")  # the standard library, in tracebacks
_SANDBOX_DIR = lazy_pattern(r"/rooms/[0-9a-f]{16}(?=/|\b)")
_INTERPRETER = lazy_pattern(r"/bin/python[0-9.]{0,6}t?(?=[\s:'\",)]|\Z)")
_TREE_PATH = lazy_pattern(r"(?<![\w./-])/room/work(/[^\s'\"`:,;)\]}>]*|(?![\w./-]))")
# As its author wrote it: a step has a HOME of its own.
_SANDBOX_HOME = lazy_pattern(r"(?<![\w./-])/room/home(?=/|(?![\w./-]))")
_BEFORE_PATH = lazy_pattern(r"[\s'\"=:(\[]")
_MAX_PATH = 4096
_LEAST_SHARE = 400
_LONG_LINE = 300
_CONTEXT, _ALIKE, _PLACES, _SAME, _LEAST_HEAD = 2, 3, 20, 8, 3
_MARK, _USUAL = "\n...\n", BriefLimits()
_FAILURE_LINE = lazy_pattern(r"(?i)\b(?:not ok|(?:err|error|fail|failed|failure|fatal|panic|panicked|exception)s?\b)")
_MESSAGE_LINE = lazy_pattern(r"([^\s:]{1,300}:\d{1,7}(?::\d{1,7})?):?[ \t]+(\S.*)")
_DIGITS = lazy_pattern(r"\d+")
_EXPLAINED = "E  "
_DIFFERENCE = lazy_pattern(r"E {2,9}[-+?] ")
# Before the whole difference, after an empty line, pytest names the items that differ.
_NAMED = lazy_pattern(r"(Differing items|(?:Left|Right) contains|Extra items|At index)\b.*")
# Of a failure of pytest: `tests/test_a.py:12: ValueError`, and the beginnings of the other lines that are kept.
_PLACE = lazy_pattern(r"\S+:\d+: ")
_CORE = (">  ", "E  ", "likewise ")


def shorten(text: str, limits: BriefLimits = _USUAL) -> str:
    """Return a text over the limit as its head, a mark and its tail: by default 4001 characters become 3505."""
    if len(text) <= limits.limit:
        return text
    return f"{text[: limits.head]}{_MARK}{text[len(text) - limits.tail :]}"


def fit_output(text: str, limits: BriefLimits) -> str:
    """Return the output of a program within the limit: equal messages once, and failure lines from the middle."""
    text = group_lines(differing_values(text))
    if len(text) <= limits.limit:
        return text
    head, tail = text[: limits.head // _LEAST_HEAD], text[len(text) - limits.tail :]
    lines = text[len(head) : len(text) - len(tail)].split("\n")[1:]
    middle = _failure_lines(lines, limits.head - len(head) - len(_MARK))
    if not middle:
        return shorten(text, limits)
    return _MARK.join((text[: limits.head - len(middle) - len(_MARK)], middle, tail))


def _failure_lines(lines: Sequence[str], size: int) -> str:
    """Return the lines that name a failure, with two around each, as far as they fit."""
    kept: dict[int, str] = {}
    for number, line in enumerate(lines):
        if not _FAILURE_LINE.search(line[:_LONG_LINE]):
            continue
        window = range(max(0, number - _CONTEXT), min(len(lines), number + _CONTEXT + 1))
        added = {one: cut_line(lines[one], _LONG_LINE) for one in window if one not in kept}
        size -= sum(len(one) + 1 for one in added.values()) + len("...\n")
        if size < 0:
            break
        kept |= added
    first = min(kept, default=0)
    return "\n".join(text if one == first or one - 1 in kept else f"...\n{text}" for one, text in kept.items())


def group_lines(text: str) -> str:
    """Return a text where lines `PLACE: MESSAGE` of a linter with one message, at least four, are one line."""
    lines, left_out = text.split("\n"), set[int]()
    groups: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(lines):
        if found := _MESSAGE_LINE.match(line):
            groups.setdefault(_DIGITS.sub("0", found[2]), []).append((number, found[1]))
    for (first, _), *others in groups.values():
        if len(others) >= _ALIKE:
            lines[first] += f" (and {len(others)} more such: {join_first([place for _, place in others], _PLACES)})"
            left_out.update(number for number, _ in others)
    return "\n".join(line for number, line in enumerate(lines) if number not in left_out)


def without_equal_lines(text: str) -> str:
    """Return a traceback of pytest in which a long difference has only its differing lines, with some around them."""
    kept: list[str] = []
    same: list[str] = []
    differs = names = False
    for line in text.split("\n"):
        bare = line[1:].strip()
        names = line.startswith(_EXPLAINED) and bare != "" and (names or _NAMED.match(bare) is not None)
        if line.startswith(_EXPLAINED) and not names and not _DIFFERENCE.match(line):
            same.append(line)
            continue
        if (differs or line.startswith(_EXPLAINED)) and len(same) > _SAME:
            same[3:-2] = [f"E  ... {len(same) - 5} equal lines ..."]
        kept += [*same, line]
        same, differs = [], line.startswith(_EXPLAINED)
    return "\n".join((*kept, *same))


def named_difference(lines: Sequence[str]) -> str:
    """Return the first item that differs, by the explanation of pytest (without `E`); empty if it names none."""
    for line, after in zip(lines, (*lines[1:], ""), strict=True):
        if _NAMED.match(line):
            return f"{line} {after}" if line.endswith(":") else line
    return ""


def fit_parts(parts: Sequence[str], limits: BriefLimits) -> str:
    """Return parts as one text within the limit, where each part has a fair share: what one leaves, others get.

    The first parts are shown, if their shares would be too small to say anything; of the others the first lines.
    """
    whole = "\n\n".join(parts)
    if len(whole) <= limits.limit:
        return whole
    shown = [*parts[: max(1, limits.limit // _LEAST_SHARE)]]
    if others := parts[len(shown) :]:
        lines = [part.partition("\n")[0] for part in others]
        shown.append(cut_line(f"{len(others)} more: {'; '.join(lines)}", _LEAST_SHARE))
    left, sizes = limits.limit - len("\n\n") * (len(shown) - 1), [0] * len(shown)
    # The shortest first: what they leave is shared by the longer ones.
    for done, at in enumerate(sorted(range(len(shown)), key=lambda one: len(shown[one]))):
        sizes[at] = min(len(shown[at]), left // (len(shown) - done))
        left -= sizes[at]
    text = "\n\n".join(_fit(part, size, limits) for part, size in zip(shown, sizes, strict=True))
    return text if len(text) <= limits.limit else shorten(whole, limits)


def _fit(part: str, size: int, limits: BriefLimits) -> str:
    """Shorten a part: first long lines, then to the lines of its error, then in the middle."""
    if len(part) > size:
        head, *lines = (cut_line(line, _LONG_LINE) for line in part.split("\n"))
        part = "\n".join((head, *lines))
        core = [line for line in lines if line.startswith(_CORE) or _PLACE.match(line)]
        if len(part) > size and any(line.startswith("E  ") for line in core):
            part = "\n".join((head, *core))
    left = max(0, size - len(_MARK))
    tail = left * limits.tail // max(1, limits.head + limits.tail)
    return shorten(part, BriefLimits(size, left - tail, tail))


def cut_line(line: str, size: int) -> str:
    """Return a line of at most this size: a long one without its middle."""
    return line if len(line) <= size else f"{line[: size * 2 // 3]} ... {line[len(line) - size // 3 + len(' ... ') :]}"


def normalise(text: str) -> str:
    """Return a text without what differs between runs: durations, temporary paths, addresses, colours, sandboxes.

    Equal failures then have equal texts. A second call changes nothing.
    """
    colours, *rules = _RULES
    text = _with_short_paths(_SANDBOX_DIR, "/room", colours[0].sub(colours[1], text))
    text = _with_short_paths(_LIBRARY, "/python", text)
    text = _with_short_paths(_INTERPRETER, "python", text)
    for pattern, form in rules:
        text = pattern.sub(form, text)
    return _SANDBOX_HOME.sub("~", text)


def shorten_tree_paths(text: str, cwd: str) -> str:
    """Return a normalised text with paths of files of the project as a response has them: relative to `cwd`."""
    folder = "/" if cwd in ("", ".") else f"/{cwd}"
    return _TREE_PATH.sub(lambda found: posixpath.relpath(found[1] or "/", folder), text)


def _with_short_paths(end: re.Pattern[str], form: str, text: str) -> str:
    """Replace each path up to a match of `end`."""
    parts: list[str] = []
    done = 0
    for found in end.finditer(text):
        path = _BEFORE_PATH.split(text[max(done, found.start() - _MAX_PATH) : found.start()])[-1]
        parts += [text[done : found.start() - len(path)], form]
        done = found.end()
    return "".join((*parts, text[done:]))


def escape_text(text: str, limit: int = 120) -> str:
    """Return a text from outside, escaped and limited, so that it can be printed."""
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: limit + 1])
    return plain if len(plain) <= limit else f"{plain[:limit]}..."
