"""Run `explain`: compare a stage's key with its last result, follow the causes, and show them as text or JSON."""

from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import Literal, TypeAlias

import click
from msgspec import Struct

from orch23.attempt.base_verification import proof_text
from orch23.attempt.first_call import FirstCall
from orch23.cli.actions.plan import first_call, plan_view_of
from orch23.cli.console import Console
from orch23.cli.opening import of_stage
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, open_for_reading
from orch23.decide.decisions import DecidedStage
from orch23.decide.dry_run import Preview, preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, Json, digest_json
from orch23.model.errors import MissingBytesError, NotFoundError
from orch23.model.llm import Request
from orch23.model.parsing import from_struct
from orch23.model.paths import match_any
from orch23.model.plan import Blocked, Done, Edited, Expand, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Manifest, Reason, Record
from orch23.model.text import visible
from orch23.plan.nodes import writes_of
from orch23.plan.planner import Selection
from orch23.report.plan_json import stage_document
from orch23.report.plan_text import decision_sign
from orch23.report.plan_view import (
    PlanLine,
    base_tests_text,
    edit_hint,
    end_texts,
    reason_text,
    reason_texts,
    short_value,
)
from orch23.report.values import Style, Tone, json_document
from orch23.resolve.commands import programs_outside
from orch23.steps.registry import is_llm
from orch23.store.run_logs import run_of_result
from orch23.text.request_difference import describe_difference, text_of_messages
from orch23.text.secrets import secrets_from

AspectChange: TypeAlias = Literal["same", "changed", "added", "removed"]

_MAX_DEPTH = 20
_INPUT_CODES = ("input_changed", "input_added", "input_removed", "base_changed")
_MAX_TEXT_BYTES = 1_048_576
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
    is restored. `proof` are the tests of this result that failed on the base. `result_run` is the run that recorded
    this result; it is empty if that is not known, or if nothing is said about the result.
    """

    line: PlanLine
    key_then: str = ""
    accepted: tuple[str, ...] = ()
    proof: tuple[str, ...] = ()
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


def explain_text(explanation: Explanation, style: Style) -> str:
    """Return the explanation as text: the decision, why, the causes, the key then and now, the differences."""
    line, request = explanation.line, explanation.request
    mark, tone = decision_sign(line.decision, style.marks)
    where = f"  {visible(str(line.place))}" if line.place else ""
    out = [f"{style.paint(mark, tone)} {style.paint(visible(line.stage), 'strong')}: {line.decision.label}{where}"]
    out += [] if explanation.causes else [f"  {clause}" for clause in reason_texts(line.decision)]
    if isinstance(line.decision, Fresh) and not isinstance(line.decision, Done):
        out.append("  its outputs match the record of its current key")
    if isinstance(line.decision, Restore):
        of_run = f" of run {explanation.result_run}" if explanation.result_run else ""
        out.append(f"  the files of the result{of_run} are written back; nothing runs")
    if explanation.accepted:
        out.append(f"  {accepted_text(explanation.accepted, explanation.result_run)}")
    out += [f"  {visible(proof_text(explanation.proof))}"] if explanation.proof else []
    out += [f"  {base_tests_text(line)}"] if line.fails_on_base else []
    if isinstance(line.decision, Edited):
        out.append(f"  {edit_hint(line)}")
    out += [f"  its result {visible(line.approve)}"] if line.approve else []
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
            **({"proof": list(explanation.proof)} if explanation.proof else {}),
            "result_run": explanation.result_run or None,
            "aspects": aspects,
            "causes": [{"stage": one.stage, "depth": one.depth, "text": one.clause} for one in explanation.causes],
            "diffs": [{"subject": one.subject, "diff": "\n".join(one.lines)} for one in explanation.diffs],
            "request": {**from_struct(request), "difference": request.difference or None} if request else None,
        }
    )


def explain_stage(project: Project, opened: OpenPipeline, name: str) -> tuple[Explanation, ...]:
    """Return the explanation of a stage, or of each item of a foreach.

    Raises:
        NotFoundError: the stage does not exist.
    """
    Selection(targets=(name,)).nodes(opened.state.plan)
    seen = preview(opened, project.selection)
    lines = {line.stage: line for line in plan_view_of(seen).lines}
    stages = [one for one in lines if name in (one, one.partition("@")[0])]
    if not stages:
        hint = "the items of a foreach are known when the stage that lists them has run"
        raise NotFoundError(Diagnostic("E823", f"no stage is named `{name}`", hint=hint))
    return tuple(_explain(project, opened, seen, lines[one]) for one in stages)


def _explain(project: Project, opened: OpenPipeline, seen: Preview, line: PlanLine) -> Explanation:
    causes = tuple(_causes(seen, line.stage, 0, set()))
    decided = seen.decided_stages.get(line.stage)
    if decided is None:
        return Explanation(line=line, causes=causes)
    call = first_call(project, seen, decided)
    then = _former(opened, decided)
    aspects = aspects_of(then.manifest if then else {}, decided.resolved.manifest)
    restored = decided.decision.record if isinstance(decided.decision, Restore) else None
    result = restored or then
    accepted = result.accepted if result is not None else ()
    return Explanation(
        line=line,
        key_then=then.key if then else "",
        accepted=accepted,
        proof=result.proof if result is not None else (),
        result_run=run_of_result(project.store.logs, project.pipeline.file, line.stage, result.key)
        if result is not None and (accepted or restored)
        else "",
        aspects=aspects,
        diffs=_diffs(opened, decided, then, aspects, call.request if call else None) if then else (),
        causes=causes,
        request=_summary(project, decided, call) if call else None,
    )


def _summary(project: Project, decided: DecidedStage, call: FirstCall) -> RequestSummary | None:
    stage, step = decided.resolved.stage.name, decided.resolved.stage.step
    if not is_llm(step):
        return None
    request = call.request
    missing = call.missing.parts() if call.missing else {}
    near = project.store.exchanges.nearest(stage, missing, step.transcripts) if missing else None
    redact = secrets_from(project.settings.environ).redact
    return RequestSummary(
        fingerprint=request.fingerprint(),
        # Texts are shown as their digest: they are long, and may be private.
        parts={
            name: digest_json(value) if value and name in ("system", "messages", "schema") else value
            for name, value in request.parts().items()
        },
        answers=tuple(one.fingerprint for one in call.found),
        missing=call.missing is not None,
        difference=describe_difference(near.request, missing, redact) if near else "",
        outside=programs_outside(step),
    )


def _former(opened: OpenPipeline, decided: DecidedStage) -> Record | None:
    """Return the record that the decision compares the current key with."""
    if isinstance(decided.decision, Fresh | VerifyOnly):
        return decided.decision.record
    locked = opened.lock.records.get(decided.resolved.stage.name)
    if isinstance(decided.decision, Restore):
        return locked or decided.decision.record
    relatives = opened.store.records.by_identity(decided.resolved.identity)
    return locked or next((record for record in relatives if not record.failed), None)


def _diffs(
    opened: OpenPipeline, decided: DecidedStage, then: Record, aspects: tuple[Aspect, ...], request: Request | None
) -> tuple[TextDiff, ...]:
    found: list[TextDiff] = []
    changed = {aspect.name: aspect for aspect in aspects if aspect.change != "same"}
    for name, aspect in changed.items():
        prefix, _, subject = name.partition(":")
        if prefix in ("input", "verify.input", "base"):
            old, new = _text(opened, subject, aspect.then), _text(opened, subject, aspect.now)
            if old is not None and new is not None:
                found.append(text_diff(subject, old, new))
        elif name == "command" and isinstance(aspect.then, str) and isinstance(aspect.now, str):
            found.append(text_diff("command", aspect.then, aspect.now))
    # The manifest has only digests of the prompt: the recorded request has its text.
    if {"prompt", "system"} & changed.keys():
        found += _prompt_diffs(opened, decided, then, request)
    return tuple(found)


def _text(opened: OpenPipeline, path: str, value: Json) -> str | None:
    """Return the text of a digest in a manifest; None if its bytes are missing or are not text."""
    digest, _, link = value.partition(" -> ") if isinstance(value, str) else ("", "", "")
    sha256 = digest.removesuffix("+x")
    if not sha256:
        return None
    try:
        data: bytes | None = opened.store.contents.get(Digest(sha256, 0))
    except MissingBytesError:
        place = link or path
        entry = opened.store.workspace.entry(place)
        data = opened.store.workspace.read(place) if entry is not None and entry.digest.sha256 == sha256 else None
    # A diff of a huge or binary file helps no one, and takes long.
    if data is None or len(data) > _MAX_TEXT_BYTES or b"\0" in data:
        return None
    return data.decode("utf-8", errors="replace")


def _prompt_diffs(opened: OpenPipeline, decided: DecidedStage, then: Record, request: Request | None) -> list[TextDiff]:
    transcripts = getattr(decided.resolved.stage.step, "transcripts", None)
    known = opened.store.exchanges.get(then.exchanges[0], transcripts) if then.exchanges else None
    # A stage without requests, or an accepted edit, has no prompt to compare: a render stage has its text.
    if known is None or request is None or not known.request:
        return _rendered_diff(opened, decided, then)
    now = request.parts()
    pairs = [
        ("prompt", text_of_messages(known.request.get("messages")), text_of_messages(now["messages"])),
        ("system", known.request.get("system"), now["system"]),
    ]
    return [
        text_diff(name, old, new)
        for name, old, new in pairs
        if isinstance(old, str) and isinstance(new, str) and old != new
    ]


def _rendered_diff(opened: OpenPipeline, decided: DecidedStage, then: Record) -> list[TextDiff]:
    rendered, output = decided.resolved.rendered, next(iter(then.outputs), None)
    if rendered is None or output is None:
        return []
    old = _text(opened, output, then.outputs[output].digest.sha256)
    return [] if old is None else [text_diff(output, old, rendered.decode("utf-8", errors="replace"))]


def _causes(seen: Preview, name: str, depth: int, visited: set[str]) -> list[Cause]:
    """Return the causes of a decision, and of those of upstream stages; each stage once."""
    # Several paths can lead to one stage: it is explained once.
    if name in visited or depth > _MAX_DEPTH:
        return []
    visited.add(name)
    decision = seen.decisions.get(name)
    match decision:
        case Maybe(waiting_on=(), edits=Edited(paths=paths)):
            return [Cause(name, depth, f"{', '.join(paths)} was edited, or only formatted")]
        case Maybe(waiting_on=waiting) | Expand(waiting_on=waiting) | Blocked(by=waiting):
            verb = "is blocked by" if isinstance(decision, Blocked) else "waits for outputs of"
            found = [Cause(name, depth, f"{verb} {', '.join(waiting)}")] if waiting else []
            return found + [cause for up in waiting for cause in _causes(seen, up, depth + 1, visited)]
        case Run(reasons=reasons) | VerifyOnly(reasons=reasons) | Restore(reasons=reasons):
            found = [cause for reason in reasons for cause in _causes_of_reason(seen, name, reason, depth, visited)]
            return found + [Cause(name, depth, text) for text in end_texts(decision)]
        case Edited(paths=paths):
            return [Cause(name, depth, f"{', '.join(paths)} was edited")]
        case _:
            return []


def _causes_of_reason(seen: Preview, name: str, reason: Reason, depth: int, visited: set[str]) -> list[Cause]:
    text = reason_text(reason)
    if reason.code not in _INPUT_CODES:
        return [Cause(name, depth, text)]
    path = reason.subject.partition("#")[0]
    upstream = (*reversed(seen.plan.earlier_items(name)), *seen.plan.upstream.get(name, ()))
    maker = next((up for up in upstream if match_any(writes_of(seen.plan.nodes[up]), path)), None)
    if maker is None:
        edited = ", because you edited it" if reason.code == "input_changed" else ""
        return [Cause(name, depth, f"{text}{edited}")]
    if isinstance(seen.decisions.get(maker), Fresh | None):  # a part decides only what an edit reaches
        return [Cause(name, depth, f"{text}, which {maker} made")]
    return [Cause(name, depth, f"{text}, which {maker} makes"), *_causes(seen, maker, depth + 1, visited)]


def show_explanation(console: Console, *, args: PipelineArguments, as_json: bool) -> None:
    """Show why a stage's key changed."""
    found = of_stage(console, args, lambda project, name: explain_stage(project, open_for_reading(project), name))
    if as_json:
        if len(found) > 1:
            items = ", ".join(one.line.stage for one in found)
            message = f"--json needs one item; name one of: {items}"
            raise click.UsageError(message)
        console.write_out(explain_json(found[0]))
    else:
        console.write_out("\n".join(explain_text(one, console.out_style) for one in found))
