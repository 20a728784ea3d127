"""An explanation of a stage, as values, text and JSON."""

from collections.abc import Mapping
from difflib import unified_diff
from typing import Literal, TypeAlias

from msgspec import Struct

from orch23.model.digest import Json
from orch23.model.plan import Edited, Fresh
from orch23.model.record import Manifest
from orch23.report.diagnostics import visible
from orch23.report.marks import Style, Tone
from orch23.report.plan_json import stage_document
from orch23.report.plan_text import decision_sign
from orch23.report.plan_view import PlanLine, edit_hint, reason_texts, short_value
from orch23.report.values import json_document

AspectChange: TypeAlias = Literal["same", "changed", "added", "removed"]

_MOST_DIFF_LINES = 200


class Aspect(Struct, frozen=True):
    """One ingredient of a key."""

    name: str
    then: Json
    now: Json

    @property
    def change(self) -> AspectChange:
        """Say what became of it."""
        if self.then == self.now:
            return "same"
        if self.then is None:
            return "added"
        return "removed" if self.now is None else "changed"


class TextDiff(Struct, frozen=True):
    """The difference of two texts behind an aspect, as lines of a unified diff."""

    subject: str
    lines: tuple[str, ...]


class Cause(Struct, frozen=True):
    """One link of the chain from a stage to its root causes: the stage it speaks of, its depth, its clause."""

    stage: str
    depth: int
    clause: str


class RequestSummary(Struct, frozen=True, kw_only=True):
    """The request that the first attempt of a stage makes: its parts, long texts by their digest.

    `answers` are the recorded exchanges that it leads to. Where it also leads to one that is not recorded, `difference`
    says how that one differs from the nearest that is; `missing` says that there is such a one.
    """

    fingerprint: str
    parts: Mapping[str, Json]
    answers: tuple[str, ...] = ()
    missing: bool = False
    difference: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything that there is to say on why a stage is as it is. `key_then` is empty where it never had a result."""

    line: PlanLine
    key_then: str = ""
    aspects: tuple[Aspect, ...] = ()
    diffs: tuple[TextDiff, ...] = ()
    causes: tuple[Cause, ...] = ()
    request: RequestSummary | None = None


def aspects_of(then: Manifest, now: Manifest) -> tuple[Aspect, ...]:
    """Return every aspect of two manifests, what changed first."""
    found = [Aspect(name, then.get(name), now.get(name)) for name in sorted(set(then) | set(now))]
    return tuple(sorted(found, key=lambda aspect: (aspect.change == "same", aspect.name)))


def text_diff(subject: str, then: str, now: str) -> TextDiff:
    """Return the difference of two texts, cut where it is very long."""
    found = list(unified_diff(then.splitlines(), now.splitlines(), "then", "now", lineterm=""))
    if len(found) > _MOST_DIFF_LINES:
        found = [*found[:_MOST_DIFF_LINES], f"... {len(found) - _MOST_DIFF_LINES} more lines"]
    return TextDiff(subject, tuple(found))


def changed_aspects(aspects: tuple[Aspect, ...]) -> Mapping[str, Aspect]:
    """Return the aspects that changed, by name."""
    return {aspect.name: aspect for aspect in aspects if aspect.change != "same"}


_SIGNS = {"same": " ", "changed": "~", "added": "+", "removed": "-"}


def explain_text(told: Explanation, style: Style) -> str:
    """Return the explanation as text: the decision, why, the causes, the key then and now, the differences."""
    line = told.line
    mark, tone = decision_sign(line.decision, style.marks)
    where = f"  {visible(str(line.place))}" if line.place else ""
    out = [f"{style.paint(mark, tone)} {style.paint(visible(line.stage), 'strong')}: {line.decision.label}{where}"]
    out += [] if told.causes else [f"  {clause}" for clause in reason_texts(line.decision)]
    if isinstance(line.decision, Fresh):
        out.append("  its outputs are what a record of today's key says")
    if isinstance(line.decision, Edited):
        out.append(f"  {edit_hint(line)}")
    out += ["  it uses the network"] if line.network else []
    out += [] if line.sandbox else ["  its processes run without a sandbox"]
    if told.causes:
        out += [_cause(cause, line.stage) for cause in told.causes]
    out += _key(told, style)
    out += _request_lines(told.request) if told.request else []
    for diff in told.diffs:
        out += ["", *_diff(diff, style)]
    return "\n".join(out) + "\n"


def _cause(cause: Cause, stage: str) -> str:
    whose = "" if cause.stage == stage else f"{visible(cause.stage)}: "
    return f"  {'  ' * cause.depth}{whose}{visible(cause.clause)}"


def _key(told: Explanation, style: Style) -> list[str]:
    if not told.aspects:
        return []
    now, then = told.line.key[:12], told.key_then[:12]
    if not then:
        return ["", f"key {now} (it has no earlier result)", *(_now(one) for one in told.aspects)]
    moved = f"key {now}, as it was" if told.key_then == told.line.key else f"key {then} {style.marks.arrow} {now}"
    return ["", moved, *(_aspect(one, style) for one in told.aspects)]


def _now(aspect: Aspect) -> str:
    return f"    {visible(aspect.name)}  {short_value(aspect.now)}"


def _aspect(aspect: Aspect, style: Style) -> str:
    name = visible(aspect.name)
    if aspect.change == "same":
        return style.paint(f"    {name}  {short_value(aspect.now)}", "quiet")
    then, now = short_value(aspect.then), short_value(aspect.now)
    return style.paint(f"  {_SIGNS[aspect.change]} {name}  {then} {style.marks.arrow} {now}", "notice")


def _request_lines(asked: RequestSummary) -> list[str]:
    name = f"request {asked.fingerprint[:12]}"
    if not asked.missing:
        state = f"answered by {', '.join(one[:12] for one in asked.answers)}, which is recorded"
    elif asked.answers:
        state = "its recorded answer was cut off; the one with more room is not recorded"
    else:
        state = f"not recorded{'; next to the nearest, ' + visible(asked.difference) if asked.difference else ''}"
    return ["", f"{name}: {state}", *(f"    {part}  {short_value(value)}" for part, value in asked.parts.items())]


def _diff(diff: TextDiff, style: Style) -> list[str]:
    out = [f"{visible(diff.subject)}:"]
    for line in diff.lines:
        tone: Tone = "good" if line.startswith("+") else "bad" if line.startswith("-") else "plain"
        out.append(f"  {style.paint(visible(line), tone)}")
    return out


EXPLAIN_VERSION = 1


def explain_json(told: Explanation) -> str:
    """Return the explanation as JSON, ending in a newline."""
    aspects: list[Json] = [
        {"aspect": one.name, "change": one.change, "then": one.then, "now": one.now} for one in told.aspects
    ]
    return json_document(
        {
            "orch23_explain": EXPLAIN_VERSION,
            **stage_document(told.line),
            "key_then": told.key_then or None,
            "aspects": aspects,
            "causes": [{"stage": one.stage, "depth": one.depth, "text": one.clause} for one in told.causes],
            "diffs": [{"subject": one.subject, "diff": "\n".join(one.lines)} for one in told.diffs],
            "request": _request_document(told.request) if told.request else None,
        }
    )


def _request_document(asked: RequestSummary) -> Json:
    return {
        "fingerprint": asked.fingerprint,
        "parts": dict(asked.parts),
        "answers": list(asked.answers),
        "missing": asked.missing,
        "difference": asked.difference or None,
    }
