"""Write diagnostics for people (source excerpt, one line) and programs (JSON, GitHub, SARIF)."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from orch23.model.diagnostic import Diagnostic, Location, Severity
from orch23.model.digest import Json
from orch23.model.text import HIDDEN_CHARACTERS
from orch23.report.values import pluralize

DiagnosticStyle: TypeAlias = Literal["full", "concise", "json", "github", "sarif"]

MAX_WIDTH = 160
_MOST_RELATED = 9
_MOST_TOLD = 50
_MOST_TEXT = 1_600
_COLOURS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m", Severity.NOTE: "\x1b[1;36m"}
_BOLD, _BLUE, _PLAIN = "\x1b[1m", "\x1b[1;34m", "\x1b[0m"


def render_diagnostics(
    diagnostics: Sequence[Diagnostic],
    sources: Mapping[str, str],
    *,
    style: DiagnosticStyle = "full",
    color: bool = False,
) -> str:
    """Return the text of some diagnostics, ending in a newline unless there are none.

    `sources` are the texts of files by name, for the source lines. Only `full` has colours; it shows at most 50
    diagnostics, errors first, and counts the others by code. All other styles are complete.
    """
    if style == "full":
        told, more = _first(diagnostics)
        files = {place.file for one in told for place in (one.location, *(r.location for r in one.related)) if place}
        lines = {file: sources[file].removeprefix("\ufeff").split("\n") for file in files & sources.keys()}
        return "\n".join([*(_full(one, lines, color=color) for one in told), *more])
    writers: Mapping[str, Callable[[Sequence[Diagnostic]], str]] = {
        "concise": _concise,
        "json": _json,
        "github": _github,
        "sarif": _sarif,
    }
    return writers[style](diagnostics)


def visible(text: str) -> str:
    """Return a text in which nothing steers a terminal or hides: such characters are shown as escapes."""
    return HIDDEN_CHARACTERS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number <= 0xFF:  # noqa: PLR2004 - one byte
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 - the basic plane


# ---- for people -------------------------------------------------------------------------------


def _first(diagnostics: Sequence[Diagnostic]) -> tuple[Sequence[Diagnostic], list[str]]:
    """Return the diagnostics that are shown, in their order, and a line that counts the others."""
    if len(diagnostics) <= _MOST_TOLD:
        return diagnostics, []
    by_severity = sorted(range(len(diagnostics)), key=lambda at: diagnostics[at].severity is not Severity.ERROR)
    told = [diagnostics[at] for at in sorted(by_severity[:_MOST_TOLD])]
    others = Counter(diagnostics[at].code for at in by_severity[_MOST_TOLD:])
    listed = ", ".join(f"{number:,} {code}" for code, number in sorted(others.items()))
    return told, [f"note: {others.total():,} more are not shown: {listed}\n"]


def _full(one: Diagnostic, sources: Mapping[str, Sequence[str]], *, color: bool) -> str:
    paint = _painted if color else _unpainted
    head = paint(f"{one.severity}[{one.code}]", _COLOURS[one.severity])
    lines = [f"{head}: {paint(_message(one), _BOLD)}"]
    told, more = one.related[:_MOST_RELATED], len(one.related) - _MOST_RELATED
    places = [(one.location, ""), *((related.location, related.message) for related in told)]
    shown = [place for place, _ in places if place is not None]
    width = max((len(str(place.line)) for place in shown), default=1)
    for number, (place, label) in enumerate(places):
        if place is None:
            lines += [f"{' ' * width} {paint('=', _BLUE)} note: {visible(label)}"] if label else []
            continue
        arrow = "-->" if number == 0 else ":::"
        lines.append(f"{' ' * width}{paint(arrow, _BLUE)} {visible(str(place))}")
        lines += _excerpt(place, visible(_short(label)), sources, width, paint)
    if more > 0:
        lines.append(f"{' ' * width} {paint('=', _BLUE)} note: and {pluralize(more, 'more place')}")
    if one.hint:
        lines.append(f"{' ' * width} {paint('=', _BLUE)} help: {visible(_short(one.hint))}")
    return "\n".join(lines) + "\n"


def _painted(text: str, colour: str) -> str:
    return f"{colour}{text}{_PLAIN}"


def _unpainted(text: str, colour: str) -> str:
    del colour
    return text


def _message(one: Diagnostic) -> str:
    text = visible(_short(one.message)).replace("\n", "\n  ")
    return f"{visible(_short(one.subject))}: {text}" if one.subject else text


def _short(text: str) -> str:
    """Return a text that fits a screen: names in it may be of any length."""
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def _excerpt(
    place: Location, label: str, sources: Mapping[str, Sequence[str]], width: int, paint: Callable[[str, str], str]
) -> list[str]:
    """Return the source line with a caret under what is meant."""
    lines = sources.get(place.file, ())
    if not 0 < place.line <= len(lines):
        return []
    line = lines[place.line - 1].removesuffix("\r")
    start = min(place.column - 1, len(line))
    end = max(start + 1, min(start + place.length, len(line)))
    before, meant, after = _window(line, start, end)
    bar, blank = paint("|", _BLUE), " " * width
    caret = " " * _columns(before) + "^" * max(1, _columns(meant))
    out = [f"{blank} {bar}", f"{paint(str(place.line).rjust(width), _BLUE)} {bar} {before}{meant}{after}"]
    out.append(f"{blank} {bar} {paint(caret, _BLUE)}" + (f" {label}" if label else ""))
    return out


def _window(line: str, start: int, end: int) -> tuple[str, str, str]:
    """Return what stands before, at and after a place, made visible and cut to fit a screen."""
    begin = 0 if end <= MAX_WIDTH else max(0, start - MAX_WIDTH // 2)
    stop = begin + MAX_WIDTH
    parts = (line[begin:start], line[start : min(end, stop)], line[min(end, stop) : stop])
    before, meant, after = (visible(part).replace("\t", "    ") for part in parts)
    return ("..." if begin else "") + before, meant, after + ("..." if stop < len(line) else "")


def _columns(text: str) -> int:
    """Return how wide a text is on a terminal: wide characters take two columns, combining ones none."""
    widths = {"W": 2, "F": 2}
    return sum(0 if unicodedata.combining(c) else widths.get(unicodedata.east_asian_width(c), 1) for c in text)


def _concise(diagnostics: Sequence[Diagnostic]) -> str:
    return "".join(visible(str(one)).replace("\n", " ") + "\n" for one in diagnostics)


# ---- for programs -----------------------------------------------------------------------------


def _json(diagnostics: Sequence[Diagnostic]) -> str:
    return json.dumps([diagnostic_json(one) for one in diagnostics], indent=2) + "\n"


def diagnostic_json(one: Diagnostic) -> dict[str, Json]:
    """Return a diagnostic as plain values; keys without a value are null, so that every object has the same."""
    return {
        "code": one.code,
        "severity": str(one.severity),
        "message": one.message,
        "subject": one.subject,
        "location": _place(one.location),
        "hint": one.hint,
        "related": [{"message": related.message, "location": _place(related.location)} for related in one.related],
    }


def _place(place: Location | None) -> Json:
    if place is None:
        return None
    return {"file": place.file, "line": place.line, "column": place.column, "length": place.length}


def _github(diagnostics: Sequence[Diagnostic]) -> str:
    """Return workflow commands: GitHub shows them beside the lines they mean."""
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
    out = []
    for one in diagnostics:
        properties = {"title": one.code}
        if one.location is not None:
            last = one.location.column + one.location.length
            line = str(one.location.line)
            properties |= {"file": one.location.file, "line": line, "endLine": line}
            properties |= {"col": str(one.location.column), "endColumn": str(last)}
        listed = ",".join(f"{key}={_quoted(value, more=True)}" for key, value in properties.items())
        message = f"{one.subject}: {one.message}" if one.subject else one.message
        text = f"{message}\nhelp: {one.hint}" if one.hint else message
        out.append(f"::{words[one.severity]} {listed}::{_quoted(text)}\n")
    return "".join(out)


def _quoted(text: str, *, more: bool = False) -> str:
    """Return a text as workflow commands quote it; `more` for the value of a property."""
    text = visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if more else text


def _sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """Return a SARIF 2.1.0 log."""
    levels = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
    results: list[Json] = []
    for one in diagnostics:
        text = one.message + (f" ({one.hint})" if one.hint else "")
        result: dict[str, Json] = {
            "ruleId": one.code,
            "level": levels[one.severity],
            "message": {"text": f"{one.subject}: {text}" if one.subject else text},
        }
        if one.location is not None:
            result["locations"] = [_sarif_place(one.location)]
        related = [
            {"id": number, "message": {"text": other.message}, **_sarif_place(other.location)}
            for number, other in enumerate(one.related)
            if other.location is not None
        ]
        if related:
            result["relatedLocations"] = related
        results.append(result)
    rules: list[Json] = [{"id": code} for code in sorted({one.code for one in diagnostics})]
    driver: dict[str, Json] = {"name": "orch23", "rules": rules}
    run: dict[str, Json] = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    log: dict[str, Json] = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(log, indent=2) + "\n"


def _sarif_place(place: Location) -> dict[str, Json]:
    region: dict[str, Json] = {
        "startLine": place.line,
        "startColumn": place.column,
        "endColumn": place.column + place.length,
    }
    return {"physicalLocation": {"artifactLocation": {"uri": place.file}, "region": region}}
