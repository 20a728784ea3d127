"""An explanation of a stage, as values, text and JSON."""

from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import Literal, TypeAlias

from msgspec import Struct

from orch23.model.digest import Json
from orch23.model.parsing import from_struct
from orch23.model.plan import Edited, Fresh, Restore
from orch23.model.record import Manifest
from orch23.report.diagnostics import visible
from orch23.report.marks import Style, Tone
from orch23.report.plan_json import stage_document
from orch23.report.plan_text import decision_sign
from orch23.report.plan_view import PlanLine, edit_hint, reason_texts, short_value
from orch23.report.values import json_document

AspectChange: TypeAlias = Literal["same", "changed", "added", "removed"]

_MAX_DIFF_LINES = 200
_SIGNS: Mapping[AspectChange, str] = {"same": " ", "changed": "~", "added": "+", "removed": "-"}
_DIFF_TONES: Mapping[str, Tone] = {"+": "good", "-": "bad"}


class Aspect(Struct, frozen=True):
    """One ingredient of a key: its value at the last result and now."""

    name: str
    then: Json
    now: Json

    @property
    def change(self) -> AspectChange:
        """Return how the value changed; null means that the manifest does not have the aspect."""
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
    """One link of the chain from a stage to its root causes: a stage, its depth in the chain, and a clause."""

    stage: str
    depth: int
    clause: str


class RequestSummary(Struct, frozen=True, kw_only=True):
    """The request of a stage's first attempt: its parts, with a digest for a long text.

    `answers` are the recorded exchanges that it leads to. `missing` is true if it also leads to a request that is not
    recorded; `difference` then compares that request with the nearest recorded one. `outside` are the program and the
    paths outside of the project that neither key nor request has.
    """

    fingerprint: str
    parts: Mapping[str, Json]
    answers: tuple[str, ...] = ()
    missing: bool = False
    difference: str = ""
    outside: tuple[str, ...] = ()


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a stage is stale or fresh. `key_then` is empty if the stage has never had a result.

    `accepted` are the outputs of the last result whose bytes a user wrote, of a restored stage those of the result that
    is restored. `result_run` is the run that recorded this result; it is empty if that is not known, or if nothing is
    said about the result.
    """

    line: PlanLine
    key_then: str = ""
    accepted: tuple[str, ...] = ()
    result_run: str = ""
    aspects: tuple[Aspect, ...] = ()
    diffs: tuple[TextDiff, ...] = ()
    causes: tuple[Cause, ...] = ()
    request: RequestSummary | None = None


def aspects_of(then: Manifest, now: Manifest) -> tuple[Aspect, ...]:
    """Return every aspect of two manifests; the changed ones come first."""
    found = [Aspect(name, then.get(name), now.get(name)) for name in set(then) | set(now)]
    return tuple(sorted(found, key=lambda aspect: (aspect.change == "same", aspect.name)))


def text_diff(subject: str, then: str, now: str) -> TextDiff:
    """Return the difference of two texts, at most 200 lines of it."""
    lines = list(unified_diff(then.splitlines(), now.splitlines(), "then", "now", lineterm=""))
    # A diff of a whole file would hide the rest of the explanation.
    omitted = len(lines) - _MAX_DIFF_LINES
    return TextDiff(subject, (*lines[:_MAX_DIFF_LINES], *((f"... {omitted} more lines",) if omitted > 0 else ())))


def changed_aspects(aspects: tuple[Aspect, ...]) -> Mapping[str, Aspect]:
    """Return the aspects that changed, by name."""
    return {aspect.name: aspect for aspect in aspects if aspect.change != "same"}


def explain_text(explanation: Explanation, style: Style) -> str:
    """Return the explanation as text: the decision, why, the causes, the key then and now, the differences."""
    line, request = explanation.line, explanation.request
    mark, tone = decision_sign(line.decision, style.marks)
    where = f"  {visible(str(line.place))}" if line.place else ""
    out = [f"{style.paint(mark, tone)} {style.paint(visible(line.stage), 'strong')}: {line.decision.label}{where}"]
    out += [] if explanation.causes else [f"  {clause}" for clause in reason_texts(line.decision)]
    if isinstance(line.decision, Fresh):
        out.append("  its outputs match the record of its current key")
    if isinstance(line.decision, Restore):
        of_run = f" of run {explanation.result_run}" if explanation.result_run else ""
        out.append(f"  the files of the result{of_run} are written back; nothing runs")
    if explanation.accepted:
        out.append(f"  {accepted_text(explanation.accepted, explanation.result_run)}")
    if isinstance(line.decision, Edited):
        out.append(f"  {edit_hint(line)}")
    out += ["  it uses the network"] if line.network else []
    out += [] if line.sandbox else ["  its processes run without a sandbox"]
    out += [_cause(cause, line.stage) for cause in explanation.causes]
    out += _key(explanation, style)
    out += _request_lines(request) if request else []
    for diff in explanation.diffs:
        out += ["", f"{visible(diff.subject)}:"]
        out += [f"  {style.paint(visible(text), _DIFF_TONES.get(text[:1], 'plain'))}" for text in diff.lines]
    return "\n".join(out) + "\n"


def accepted_text(paths: Sequence[str], run: str) -> str:
    """Return a sentence about edits of a user that are part of a result, recorded in this run, if it is known."""
    verb = "contains an accepted user edit" if len(paths) == 1 else "contain accepted user edits"
    return f"{visible(', '.join(paths))} {verb}{f' (run {run})' if run else ''}"


def _cause(cause: Cause, stage: str) -> str:
    prefix = "" if cause.stage == stage else f"{visible(cause.stage)}: "
    return f"  {'  ' * cause.depth}{prefix}{visible(cause.clause)}"


def _key(explanation: Explanation, style: Style) -> list[str]:
    aspects = explanation.aspects
    if not aspects:
        return []
    now, then = explanation.line.key[:12], explanation.key_then[:12]
    if not then:
        values = [f"    {visible(one.name)}  {short_value(one.now)}" for one in aspects]
        return ["", f"key {now} (it has no earlier result)", *values]
    is_same = explanation.key_then == explanation.line.key
    keys = f"key {now}, unchanged" if is_same else f"key {then} {style.marks.arrow} {now}"
    return ["", keys, *(_aspect(one, style) for one in aspects)]


def _aspect(aspect: Aspect, style: Style) -> str:
    name, now = visible(aspect.name), short_value(aspect.now)
    if aspect.change == "same":
        return style.paint(f"    {name}  {now}", "quiet")
    then = short_value(aspect.then)
    return style.paint(f"  {_SIGNS[aspect.change]} {name}  {then} {style.marks.arrow} {now}", "notice")


def _request_lines(request: RequestSummary) -> list[str]:
    if not request.missing:
        state = f"the response is recorded in {', '.join(one[:12] for one in request.answers)}"
    elif request.answers:
        state = "its recorded response was cut off; the request with a higher `max_tokens` is not recorded"
    elif request.difference:
        state = f"not recorded; compared with the nearest one, {visible(request.difference)}"
    else:
        state = "not recorded"
    parts = [f"    {part}  {short_value(value)}" for part, value in request.parts.items()]
    outside = visible(", ".join(request.outside))
    parts += [f"    not in the key: {outside} (outside of the project)"] if outside else []
    return ["", f"request {request.fingerprint[:12]}: {state}", *parts]


def explain_json(explanation: Explanation) -> str:
    """Return the explanation as JSON, ending in a newline."""
    request = explanation.request
    aspects: list[Json] = [
        {"aspect": one.name, "change": one.change, "then": one.then, "now": one.now} for one in explanation.aspects
    ]
    return json_document(
        {
            "orch23_explain": 1,
            **stage_document(explanation.line),
            "key_then": explanation.key_then or None,
            "accepted": list(explanation.accepted),
            "result_run": explanation.result_run or None,
            "aspects": aspects,
            "causes": [{"stage": one.stage, "depth": one.depth, "text": one.clause} for one in explanation.causes],
            "diffs": [{"subject": one.subject, "diff": "\n".join(one.lines)} for one in explanation.diffs],
            "request": {**from_struct(request), "difference": request.difference or None} if request else None,
        }
    )
