"""Write diagnostics for people (source excerpt, one line) and programs (JSON, GitHub, SARIF); quote texts for these."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec.structs import asdict

from orch23.model.diagnostic import Diagnostic, Fix, Location, Severity
from orch23.model.digest import Json
from orch23.model.patterns import lazy_pattern
from orch23.model.text import visible
from orch23.report.values import Style, Tone, pluralize, truncate

DiagnosticStyle: TypeAlias = Literal["full", "concise", "json", "github", "sarif"]
_Paint: TypeAlias = Callable[[str, Tone], str]

MAX_WIDTH = 160
_MAX_RELATED = 9
_MAX_SHOWN = 50
_MAX_TEXT = 1_600
# Texts that need no quotes in YAML, also in a list; and texts that need no escapes between quotes.
_NAME = r"[\w./+-][\w./@+*?-]*(?:#[\w./-]+)?"
_SCALAR = rf"(?:\"(?:[^\"\\]|\\.)*\"|{_NAME})"
_VALUE = rf"(?:\w+: )?(?:{_SCALAR}(?:, {_NAME})*|\[{_SCALAR}(?:, {_NAME})*\])"
_PLAIN = lazy_pattern(rf" +|{_VALUE}|\{{{_VALUE}\}}|\$\{{\{{ [\w.]+ \}}\}}|shell: [\w./][\w./ +=<>&|$-]*")
_QUOTABLE = lazy_pattern(r"[^'\"\\]*")
_TONES: Mapping[Severity, Tone] = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def render_diagnostics(
    diagnostics: Sequence[Diagnostic],
    sources: Mapping[str, str],
    *,
    style: DiagnosticStyle = "full",
    color: bool = False,
) -> str:
    """Return diagnostics as text with a final newline; an empty text if there are none.

    `sources` are the texts of files by name, for the source lines. Only `full` uses colors; it shows at most 50
    diagnostics, errors first, and counts the others by code. All other styles are complete.
    """
    if style == "full":
        shown, omitted = _select(diagnostics)
        files = {place.file for one in shown for place in (one.location, *(r.location for r in one.related)) if place}
        lines = {file: sources[file].removeprefix("\ufeff").split("\n") for file in files & sources.keys()}
        paint = Style(color=color).paint
        return "\n".join([*(_full(one, lines, paint) for one in shown), *omitted])
    writers = {"concise": _concise, "json": _json, "github": _github, "sarif": _sarif}
    return writers[style](diagnostics)


# ---- for people -------------------------------------------------------------------------------


def _select(diagnostics: Sequence[Diagnostic]) -> tuple[Sequence[Diagnostic], list[str]]:
    if len(diagnostics) <= _MAX_SHOWN:
        return diagnostics, []
    # Errors come first, so that warnings do not displace them. Those shown keep their order.
    by_severity = sorted(range(len(diagnostics)), key=lambda at: diagnostics[at].severity is not Severity.ERROR)
    shown = [diagnostics[at] for at in sorted(by_severity[:_MAX_SHOWN])]
    others = Counter(diagnostics[at].code for at in by_severity[_MAX_SHOWN:])
    counts = ", ".join(f"{number:,} {code}" for code, number in sorted(others.items()))
    return shown, [f"note: {others.total():,} more are not shown: {counts}\n"]


def _full(one: Diagnostic, sources: Mapping[str, Sequence[str]], paint: _Paint) -> str:
    places = [(one.location, ""), *((related.location, related.message) for related in one.related[:_MAX_RELATED])]
    width = max((len(str(place.line)) for place, _ in places if place is not None), default=1)
    bullet = f"{' ' * width} {paint('=', 'frame')}"
    head = paint(f"{one.severity}[{one.code}]", _TONES[one.severity])
    # Both can quote a name of any length, such as a test id.
    text = visible(truncate(one.message, _MAX_TEXT)).replace("\n", "\n  ")
    text = f"{visible(truncate(one.subject, _MAX_TEXT))}: {text}" if one.subject else text
    lines = [f"{head}: {paint(text, 'strong')}"]
    for number, (place, label) in enumerate(places):
        if place is not None:
            arrow = paint("-->" if number == 0 else ":::", "frame")
            lines.append(f"{' ' * width}{arrow} {visible(str(place))}")
            lines += _excerpt(place, visible(truncate(label, _MAX_TEXT)), sources, width, paint)
        elif label:
            lines.append(f"{bullet} note: {visible(label)}")
    if len(one.related) > _MAX_RELATED:
        lines.append(f"{bullet} note: and {pluralize(len(one.related) - _MAX_RELATED, 'more place')}")
    if one.hint:
        lines.append(f"{bullet} help: {visible(truncate(one.hint, _MAX_TEXT))}")
    if one.fix is not None:
        fixed = (_fixed(place, one.fix, sources, width, paint) for place, _ in places if place is not None)
        lines += next(filter(None, fixed), [])
    return "\n".join(lines) + "\n"


def _line(place: Location, sources: Mapping[str, Sequence[str]]) -> str | None:
    """Return the source line of a place without secrets; None if the file has no such line."""
    from orch23.text.secret_patterns import mask_secrets  # noqa: PLC0415 - only where a line is shown

    lines = sources.get(place.file, ())
    return mask_secrets(lines[place.line - 1].removesuffix("\r")) if 0 < place.line <= len(lines) else None


def _excerpt(place: Location, label: str, sources: Mapping[str, Sequence[str]], width: int, paint: _Paint) -> list[str]:
    """Return the source line of a place with carets under its characters; nothing if the file has no such line."""
    line = _line(place, sources)
    if line is None:
        return []
    start = min(place.column - 1, len(line))
    end = max(start + 1, min(start + place.length, len(line)))
    before, marked, after = _window(line, start, end)
    bar, blank = paint("|", "frame"), " " * width
    carets = paint(" " * _columns(before) + "^" * max(1, _columns(marked)), "frame")
    return [
        f"{blank} {bar}",
        f"{paint(str(place.line).rjust(width), 'frame')} {bar} {before}{marked}{after}",
        f"{blank} {bar} {carets}" + (f" {label}" if label else ""),
    ]


def _fixed(place: Location, fix: Fix, sources: Mapping[str, Sequence[str]], width: int, paint: _Paint) -> list[str]:
    """Return the source line of a place before and after each reading of a fix; nothing without the text."""
    old = _line(place, sources)
    before, *readings = fix
    changed = [] if old is None else [edited_lines(old, place, before, after) for after in readings]
    if old is None or not all(changed) or any(len(line) > MAX_WIDTH for lines in ([old], *changed) for line in lines):
        return []
    number = str(place.line).rjust(width)
    at = old.find(before, place.column - 1)
    lines = [f"{' ' * width} {paint('|', 'frame')}"]
    for new in changed:
        shown = f"{old[:at]}{_show_tabs(before)}{old[at + len(before) :]}"
        lines.append(f"{paint(number, 'frame')} {paint('-', 'bad')} {visible(shown)}")
        lines += [f"{paint(number, 'frame')} {paint('+', 'good')} {visible(line)}" for line in new]
    return lines


def edited_lines(old: str, place: Location, before: str, after: str) -> list[str]:
    """Return what a line becomes if a text at a place is replaced by another; nothing without the text."""
    begin = place.column - 1
    at = old.find(before, begin, begin + max(place.length, len(before)))
    is_yaml = _PLAIN.fullmatch(after) or (old[begin : begin + 1] in ("'", '"') and _QUOTABLE.fullmatch(after))
    if at < 0 or not is_yaml:
        return []
    if ", " in after and not after.startswith("[") and old[:at].strip(" '\"") == "-":
        # In a list with a line for each entry, each word becomes an entry.
        start, end = old[:at].rstrip("'\""), old[at + len(before) :].lstrip("'\"")
        lines = [f"{start}{word}" for word in after.split(", ")]
        return [*lines[:-1], f"{lines[-1]}{end}"]
    return [f"{old[:at]}{after}{old[at + len(before) :]}"]


def _show_tabs(text: str) -> str:
    """Return a text with arrows for tabs, each as wide as tabs are shown in other lines."""
    return text.replace("\t", "→   ")


def _window(line: str, start: int, end: int) -> tuple[str, str, str]:
    """Return the text before, at and after a place, with hidden characters escaped, cut to the width of a screen."""
    begin = 0 if end <= MAX_WIDTH else max(0, start - MAX_WIDTH // 2)
    stop = begin + MAX_WIDTH
    parts = (line[begin:start], line[start : min(end, stop)], line[min(end, stop) : stop])
    before, marked, after = map(visible, parts)
    before, marked, after = before.replace("\t", "    "), _show_tabs(marked), after.replace("\t", "    ")
    return ("..." if begin else "") + before, marked, after + ("..." if stop < len(line) else "")


def _columns(text: str) -> int:
    # Wide characters take two columns of a terminal, combining ones none: the carets must stay under their
    # characters.
    if text.isascii():
        return len(text)
    import unicodedata  # noqa: PLC0415 - few texts need it

    widths = {"W": 2, "F": 2}
    return sum(0 if unicodedata.combining(c) else widths.get(unicodedata.east_asian_width(c), 1) for c in text)


def _concise(diagnostics: Sequence[Diagnostic]) -> str:
    # Editors and grep read one diagnostic per line.
    return "".join(visible(str(one)).replace("\n", " ") + "\n" for one in diagnostics)


# ---- for programs -----------------------------------------------------------------------------


def _json(diagnostics: Sequence[Diagnostic]) -> str:
    return json.dumps([diagnostic_document(one) for one in diagnostics], indent=2) + "\n"


def diagnostic_document(one: Diagnostic) -> dict[str, Json]:
    """Return a diagnostic as plain values."""
    # Keys without a value are null, so that every object has the same keys.
    return {
        "code": one.code,
        "severity": str(one.severity),
        "message": one.message,
        "subject": one.subject,
        "location": _place(one.location),
        "hint": one.hint,
        # Several readings are for a person to choose from.
        "fix": dict(zip(("old", "new"), one.fix, strict=True)) if one.fix and not one.fix[2:] else None,
        "related": [{"message": related.message, "location": _place(related.location)} for related in one.related],
    }


def _place(place: Location | None) -> Json:
    return None if place is None else asdict(place)


def _with_subject(one: Diagnostic, text: str) -> str:
    return f"{one.subject}: {text}" if one.subject else text


def _github(diagnostics: Sequence[Diagnostic]) -> str:
    # GitHub shows workflow commands beside the lines of a change.
    return "".join(map(_workflow_command, diagnostics))


def _workflow_command(one: Diagnostic) -> str:
    commands = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
    properties = {"title": one.code}
    if one.location is not None:
        line, column = str(one.location.line), one.location.column
        properties |= {"file": visible(one.location.file), "line": line, "endLine": line}
        properties |= {"col": str(column), "endColumn": str(column + one.location.length)}
    text = _with_subject(one, one.message) + (f"\nhelp: {one.hint}" if one.hint else "")
    return workflow_command(commands[one.severity], visible(text), properties)


def _sarif(diagnostics: Sequence[Diagnostic]) -> str:
    rules: list[Json] = [{"id": code} for code in sorted({one.code for one in diagnostics})]
    driver: dict[str, Json] = {"name": "orch23", "rules": rules}
    results = [_sarif_result(one) for one in diagnostics]
    run: dict[str, Json] = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    log: dict[str, Json] = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(log, indent=2) + "\n"


def _sarif_result(one: Diagnostic) -> Json:
    text = one.message + (f" ({one.hint})" if one.hint else "")
    result: dict[str, Json] = {
        "ruleId": one.code,
        "level": str(one.severity),
        "message": {"text": _with_subject(one, text)},
    }
    if one.location is not None:
        result["locations"] = [_sarif_place(one.location)]
    related = [
        {"id": number, "message": {"text": other.message}, **_sarif_place(other.location)}
        for number, other in enumerate(one.related)
        if other.location is not None
    ]
    return result | {"relatedLocations": related} if related else result


def _sarif_place(place: Location) -> dict[str, Json]:
    region: dict[str, Json] = {
        "startLine": place.line,
        "startColumn": place.column,
        "endColumn": place.column + place.length,
    }
    return {"physicalLocation": {"artifactLocation": {"uri": place.file}, "region": region}}


def workflow_command(name: str, text: str = "", properties: Mapping[str, str] | None = None) -> str:
    """Return a command as a line. No line break in the text or a property ends it.

    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
    """
    listed = ",".join(
        f"{key}={_escape_command(value).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in (properties or {}).items()
    )
    return f"::{name}{f' {listed}' if listed else ''}::{_escape_command(text)}\n"


def _escape_command(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


_MAX_CELL: Final = 200
# Characters that Markdown or HTML may give a meaning, and those that would end a cell or make a mention.
_SPECIAL: Final = lazy_pattern(r"[^A-Za-z0-9 .,/()+-]")


def markdown_text(text: str) -> str:
    """Return Markdown that shows a text as it is."""
    shown = truncate(visible(text).replace("\n", " "), _MAX_CELL)
    return _SPECIAL.sub(lambda found: f"&#{ord(found.group())};", shown)
