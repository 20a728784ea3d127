"""Bring the text of a failure into the form in which it is told: normalised, and cut to its limit."""

import re

from orch23.model.pipeline import BriefLimits

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"), ""),
    (re.compile(r"[^\s'\"=:(\[]*/rooms/[0-9a-f]{16}(?=/|\b)"), "/room"),
    (re.compile(r"pytest-of-[^/\s]+/pytest-\d+"), "pytest-of-user/pytest-N"),
    (
        re.compile(r"/(?:var/)?tmp/(?:tmp[A-Za-z0-9_]{6,}|[A-Za-z0-9_-]*\.[A-Za-z0-9]{6,10})(?=[/\s'\":,)]|$)"),
        "/tmp/TMP",  # noqa: S108 - a name to show, not a place to write
    ),
    (re.compile(r"\b0x[0-9a-fA-F]{4,16}\b"), "0xADDRESS"),
    (re.compile(r"\bin \d+(?:\.\d+)?s\b(?: \(\d+:\d\d:\d\d\))?"), "in N s"),
    (re.compile(r"(?<![\w.])\d+\.\d+s(?= (?:call|setup|teardown)\b)"), "N s"),
    (re.compile(r"(?m)^=+ (.*?) =+$"), r"== \1 =="),
    (re.compile(r"\r\n?"), "\n"),
)


def shorten(text: str, limits: BriefLimits | None = None) -> str:
    """Cut a text over the limit to its head, a mark and its tail, to the character: 4001 become 3505."""
    limits = limits if limits is not None else BriefLimits()
    if len(text) <= limits.limit:
        return text
    return f"{text[: limits.head]}\n...\n{text[len(text) - limits.tail :]}"


def normalise(text: str, rooms: tuple[str, ...] = ()) -> str:
    """Give what differs from run to run one form: durations, temporary paths, addresses, colours, rooms.

    Doing it twice changes nothing more.
    """
    for room in sorted(rooms, key=len, reverse=True):
        if room:
            text = text.replace(room.rstrip("/"), "/room")
    for pattern, form in _RULES:
        text = pattern.sub(form, text)
    return text
