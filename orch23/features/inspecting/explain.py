"""Run `explain`: compare a stage's key with its last result and follow the causes."""

from collections.abc import Mapping

import click

from orch23.cli.actions.plan import first_request, plan_view_of, replay_first_request
from orch23.cli.console import Console
from orch23.cli.opening import open_stages
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, open_read_session
from orch23.decide.decisions import DecidedStage
from orch23.decide.dry_run import Preview, preview
from orch23.decide.session import Session
from orch23.features.inspecting.explanation import (
    Aspect,
    Cause,
    Explanation,
    RequestSummary,
    TextDiff,
    aspects_of,
    changed_aspects,
    explain_json,
    explain_text,
    text_diff,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, Json, digest_json
from orch23.model.errors import MissingBytesError, NotFoundError
from orch23.model.llm import Request
from orch23.model.paths import match_any
from orch23.model.plan import Blocked, Edited, Expand, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Reason, Record
from orch23.plan.nodes import writes_of
from orch23.plan.planner import Selection
from orch23.report.plan_view import PlanLine, end_texts, reason_text
from orch23.resolve.command_program import programs_outside
from orch23.steps.registry import is_llm
from orch23.store.run_list import run_of_result
from orch23.text.request_difference import describe_difference
from orch23.text.secrets import secrets_from

_MAX_DEPTH = 20
_INPUT_CODES = ("input_changed", "input_added", "input_removed", "base_changed")
_MAX_TEXT_BYTES = 1_048_576


def explain_stage(project: Project, session: Session, name: str) -> tuple[Explanation, ...]:
    """Return the explanation of a stage, or of each item of a foreach.

    Raises:
        NotFoundError: the stage does not exist.
    """
    Selection(targets=(name,)).nodes(session.state.plan)
    seen = preview(session)
    lines = {line.stage: line for line in plan_view_of(seen).lines}
    stages = [one for one in lines if name in (one, one.partition("@")[0])]
    if not stages:
        hint = "the items of a foreach are known when the stage that lists them has run"
        raise NotFoundError(Diagnostic("E823", f"no stage is named `{name}`", hint=hint))
    return tuple(_explain(project, session, seen, lines[one]) for one in stages)


def _explain(project: Project, session: Session, seen: Preview, line: PlanLine) -> Explanation:
    causes = tuple(_causes(seen, line.stage, 0, set()))
    decided = seen.decided_stages.get(line.stage)
    if decided is None:
        return Explanation(line=line, causes=causes)
    request = first_request(project, decided)
    then = _former(session, decided)
    aspects = aspects_of(then.manifest if then else {}, decided.resolved.manifest)
    restored = decided.decision.record if isinstance(decided.decision, Restore) else None
    result = restored or then
    accepted = result.accepted if result is not None else ()
    return Explanation(
        line=line,
        key_then=then.key if then else "",
        accepted=accepted,
        result_run=run_of_result(project.store.logs, project.pipeline.file, line.stage, result.key)
        if result is not None and (accepted or restored)
        else "",
        aspects=aspects,
        diffs=_diffs(session, decided, then, aspects, request) if then else (),
        causes=causes,
        request=_summary(project, decided, request) if request else None,
    )


def _summary(project: Project, decided: DecidedStage, request: Request) -> RequestSummary | None:
    stage, step = decided.resolved.stage.name, decided.resolved.stage.step
    if not is_llm(step):
        return None
    replayed = replay_first_request(project, decided.resolved.stage, request)
    missing = replayed.missing.parts() if replayed.missing else {}
    near = project.store.exchanges.nearest(stage, missing, step.transcripts) if missing else None
    redact = secrets_from(project.settings.environ).redact
    return RequestSummary(
        fingerprint=request.fingerprint(),
        # Texts are shown as their digest: they are long, and may be private.
        parts={
            name: digest_json(value) if value and name in ("system", "messages", "schema") else value
            for name, value in request.parts().items()
        },
        answers=tuple(one.fingerprint for one in replayed.found),
        missing=replayed.missing is not None,
        difference=describe_difference(near.request, missing, redact) if near else "",
        outside=programs_outside(step),
    )


def _former(session: Session, decided: DecidedStage) -> Record | None:
    """Return the record that the decision compares the current key with."""
    if isinstance(decided.decision, Fresh | VerifyOnly):
        return decided.decision.record
    locked = session.lock.records.get(decided.resolved.stage.name)
    if isinstance(decided.decision, Restore):
        return locked or decided.decision.record
    relatives = session.store.records.by_identity(decided.resolved.identity)
    return locked or next((record for record in relatives if not record.failed), None)


def _diffs(
    session: Session, decided: DecidedStage, then: Record, aspects: tuple[Aspect, ...], request: Request | None
) -> tuple[TextDiff, ...]:
    found: list[TextDiff] = []
    for name, aspect in changed_aspects(aspects).items():
        prefix, _, subject = name.partition(":")
        if prefix in ("input", "verify.input", "base"):
            old, new = _text(session, subject, aspect.then), _text(session, subject, aspect.now)
            if old is not None and new is not None:
                found.append(text_diff(subject, old, new))
        elif name == "command" and isinstance(aspect.then, str) and isinstance(aspect.now, str):
            found.append(text_diff("command", aspect.then, aspect.now))
    # The manifest has only digests of the prompt: the recorded request has its text.
    if {"prompt", "system"} & changed_aspects(aspects).keys():
        found += _prompt_diffs(session, decided, then, request)
    return tuple(found)


def _text(session: Session, path: str, value: Json) -> str | None:
    """Return the text of a digest in a manifest; None if its bytes are missing or are not text."""
    digest, _, link = value.partition(" -> ") if isinstance(value, str) else ("", "", "")
    sha256 = digest.removesuffix("+x")
    if not sha256:
        return None
    try:
        data: bytes | None = session.store.contents.get(Digest(sha256, 0))
    except MissingBytesError:
        place = link or path
        entry = session.store.workspace.entry(place)
        data = session.store.workspace.read(place) if entry is not None and entry.digest.sha256 == sha256 else None
    # A diff of a huge or binary file helps no one, and takes long.
    if data is None or len(data) > _MAX_TEXT_BYTES or b"\0" in data:
        return None
    return data.decode("utf-8", errors="replace")


def _prompt_diffs(session: Session, decided: DecidedStage, then: Record, request: Request | None) -> list[TextDiff]:
    transcripts = getattr(decided.resolved.stage.step, "transcripts", None)
    known = session.store.exchanges.get(then.exchanges[0], transcripts) if then.exchanges else None
    # A stage without requests, or an accepted edit, has no prompt to compare: a render stage has its text.
    if known is None or request is None or not known.request:
        return _rendered_diff(session, decided, then)
    now = request.parts()
    pairs = [
        ("prompt", _messages_text(known.request), _messages_text(now)),
        ("system", known.request.get("system"), now["system"]),
    ]
    return [
        text_diff(name, old, new)
        for name, old, new in pairs
        if isinstance(old, str) and isinstance(new, str) and old != new
    ]


def _rendered_diff(session: Session, decided: DecidedStage, then: Record) -> list[TextDiff]:
    """Return how the text of a render stage differs from its last output."""
    rendered, output = decided.resolved.rendered, next(iter(then.outputs), None)
    if rendered is None or output is None:
        return []
    old = _text(session, output, then.outputs[output].digest.sha256)
    return [] if old is None else [text_diff(output, old, rendered.decode("utf-8", errors="replace"))]


def _messages_text(parts: Mapping[str, Json]) -> str | None:
    messages = parts.get("messages")
    if not isinstance(messages, list | tuple):
        return None
    return "\n\n".join(str(one.get("content", "")) for one in messages if isinstance(one, Mapping))


def _causes(seen: Preview, name: str, depth: int, visited: set[str]) -> list[Cause]:
    """Return the causes of a decision, and of those of upstream stages; each stage once."""
    # Several paths can lead to one stage: it is explained once.
    if name in visited or depth > _MAX_DEPTH:
        return []
    visited.add(name)
    decision = seen.decisions.get(name)
    match decision:
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
    if isinstance(seen.decisions.get(maker), Fresh):
        return [Cause(name, depth, f"{text}, which {maker} made")]
    return [Cause(name, depth, f"{text}, which {maker} makes"), *_causes(seen, maker, depth + 1, visited)]


def show_explanation(console: Console, *, args: PipelineArguments, as_json: bool) -> None:
    """Show why a stage's key changed."""
    project, (name,) = open_stages(console, args, 1)
    found = explain_stage(project, open_read_session(project), name)
    if as_json:
        if len(found) > 1:
            items = ", ".join(one.line.stage for one in found)
            message = f"--json needs one item; name one of: {items}"
            raise click.UsageError(message)
        console.write_out(explain_json(found[0]))
    else:
        console.write_out("\n".join(explain_text(one, console.out_style) for one in found))
