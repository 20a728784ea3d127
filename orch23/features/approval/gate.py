"""Hold the change of a promotion group until a user has approved it."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from orch23.attempt.failures import Failure
from orch23.attempt.run_events import RunEvents
from orch23.decide.open_pipeline import OpenPipeline
from orch23.engine.promotions import Members, Outcomes
from orch23.engine.result_writer import WorkspaceChange
from orch23.features.approval.changes import digest_of, gate_of, is_promoted
from orch23.features.approval.decisions import Change, approval_of, hold, rejection_of, release
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode
from orch23.model.event import Event, Warned
from orch23.model.event_data import StageStatus
from orch23.model.llm import Exchange, RetryFeedback
from orch23.report.plan_view import first_names
from orch23.steps.registry import is_llm


def check_approval(
    opened: OpenPipeline, events: RunEvents, members: Members, change: WorkspaceChange
) -> tuple[Outcomes, Mapping[str, Failure]] | None:
    """Return None if the change may be promoted, else outcomes of all members, or failures of rejected ones.

    Only the loop thread calls this.
    """
    state, file, line = opened.state, opened.pipeline.file, opened.pipeline.command_line
    records = {name: one.record for name, one in members.items()}
    gate, digest = gate_of(state, [*members]).name, digest_of(state, records)
    approval = approval_of(opened.store, digest)
    if approval is not None:
        # In the journal; `of_steps`, since the next build does not repeat it.
        data, text = Warned(of_steps=True), f"approved by {approval.by} ({digest[:12]})"
        events.observer.notice(Event(data, text, gate))
    if approval is not None or is_promoted(opened.lock, records):
        release(opened.store, file, gate)
        return None
    steps = {name: one.resolved.stage.step for name, one in members.items()}
    of = {name: step.transcripts if is_llm(step) else None for name, step in steps.items()}
    old, new = dict(change.old), dict(change.new)
    named = gate if gate in of else min(of, key=lambda name: (not steps[name].asks_model, name))
    waiting = Change(pipeline=file, stage=gate, named=named, digest=digest, members=of, old=old, new=new)
    hold(opened.store, waiting)
    found = {name: rejection_of(opened.store, waiting, name) for name in members}
    if rejections := {name: _failure(line, name, one) for name, one in found.items() if one is not None}:
        return {}, rejections
    ways = [f"`{line(*words)}`" for words in (("approve", named), ("reject", named, "-m", "TEXT"))]
    hint = f"`{line('show', named, '--changes')}` shows the diff; then {', or '.join(ways)}"
    waits = Diagnostic("E646", f"its changes wait for approval: {first_names(sorted(new))}", hint=hint)
    end = {"status": StageStatus.WITHHELD, "text": f"waits for approval: {ways[0]}", "code": ExitCode.APPROVAL}
    return {
        name: one.outcome if one.how == "fresh" else replace(one.outcome, **end, problems=(waits,))
        for name, one in members.items()
    }, {}


def _failure(line: Callable[..., str], name: str, rejection: Exchange) -> Failure:
    hint = f"change its inputs, its prompt or its command; `{line('reject', name, '-m', 'TEXT')}` says something else, "
    hint += f"`{line('approve', name)}` takes this result as it is"
    first = rejection.response.partition("\n")[0]
    problem = Diagnostic("E327", f"rejected: {first} (by {rejection.provenance})", hint=hint)
    return Failure(feedback=RetryFeedback(kind="rejected", excerpt=rejection.response), diagnostics=(problem,))
