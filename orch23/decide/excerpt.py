"""Prepare output for messages: normalize what differs between runs, shorten, escape."""

import re

from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import BriefLimits

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (lazy_pattern(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"), ""),
    (lazy_pattern(r"pytest-of-[^/\s]{1,64}/pytest-\d+"), "pytest-of-user/pytest-N"),
    (
        lazy_pattern(r"/(?:var/)?tmp/(?:tmp[A-Za-z0-9_]{6,}|[A-Za-z0-9_-]*\.[A-Za-z0-9]{6,10})(?=[/\s'\":,)]|$)"),
        "/tmp/TMP",  # noqa: S108 - a name to show, not a place to write
    ),
    (lazy_pattern(r"\b0x[0-9a-fA-F]{4,16}\b"), "0xADDRESS"),
    (lazy_pattern(r"\bin \d+(?:\.\d+)?s\b(?: \(\d+:\d\d:\d\d\))?"), "in N s"),
    (lazy_pattern(r"(?<![\w.])\d+\.\d+s(?= (?:call|setup|teardown)\b)"), "N s"),
    (lazy_pattern(r"(?m)^=+ (.*?) =+$"), r"== \1 =="),
    (lazy_pattern(r"\r\n?"), "\n"),
)


# Such paths are found by their end: a search for the start of each would take quadratic time in a long line.
_LIBRARY = lazy_pattern(r"/lib(?:64)?/python3\.\d+t?(?=/)")  # the standard library, in tracebacks
_SANDBOX_DIR = lazy_pattern(r"/rooms/[0-9a-f]{16}(?=/|\b)")
_PATH_START = lazy_pattern(r"[^\s'\"=:(\[]*\Z")
_MAX_PATH = 4096


def shorten(text: str, limits: BriefLimits | None = None) -> str:
    """Return a text over the limit as its head, a mark and its tail: by default 4001 characters become 3505."""
    limits = limits if limits is not None else BriefLimits()
    if len(text) <= limits.limit:
        return text
    return f"{text[: limits.head]}\n...\n{text[len(text) - limits.tail :]}"


def normalise(text: str, sandbox_dirs: tuple[str, ...] = ()) -> str:
    """Return a text without what differs between runs: durations, temporary paths, addresses, colours, sandboxes.

    Equal failures then have equal texts. A second call changes nothing.
    """
    for directory in sorted(sandbox_dirs, key=len, reverse=True):
        if directory:
            text = text.replace(directory.rstrip("/"), "/room")
    colours, *rules = _RULES
    text = _with_short_paths(_SANDBOX_DIR, "/room", colours[0].sub(colours[1], text))
    text = _with_short_paths(_LIBRARY, "/python", text)
    for pattern, form in rules:
        text = pattern.sub(form, text)
    return text


def _with_short_paths(end: re.Pattern[str], form: str, text: str) -> str:
    """Replace each path up to a match of `end`."""
    parts: list[str] = []
    done = 0
    for found in end.finditer(text):
        path = _PATH_START.search(text[max(done, found.start() - _MAX_PATH) : found.start()])
        parts += [text[done : found.start() - len(path[0] if path else "")], form]
        done = found.end()
    return "".join((*parts, text[done:]))


def escape_text(text: str, limit: int = 120) -> str:
    """Return a text from outside, escaped and limited, so that it can be printed."""
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: limit + 1])
    return plain if len(plain) <= limit else f"{plain[:limit]}..."
