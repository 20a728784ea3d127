"""Hold the change of a promotion group until a user has approved it."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from orch23.attempt.failures import Failure
from orch23.attempt.run_events import RunEvents
from orch23.decide.open_pipeline import OpenPipeline
from orch23.engine.promotions import Members, Outcomes
from orch23.engine.result_writer import WorkspaceChange
from orch23.features.approval.decisions import Change, approval_of, rejection_of
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import digest_json
from orch23.model.errors import ExitCode
from orch23.model.event import Event, Warned
from orch23.model.event_data import StageStatus
from orch23.model.llm import Exchange, RetryFeedback
from orch23.model.record import same_result
from orch23.report.plan_view import first_names
from orch23.snapshot.signatures import sha256_hex
from orch23.steps.registry import is_llm
from orch23.store.safe_files import PRIVATE_FILE_MODE, try_unlink, write_atomic


def check_approval(
    opened: OpenPipeline, events: RunEvents, members: Members, change: WorkspaceChange
) -> tuple[Outcomes, Mapping[str, Failure]] | None:
    """Return None if the change may be promoted, else outcomes of all members, or failures of rejected ones.

    Only the loop thread calls this.
    """
    file, line, store, stages = opened.pipeline.file, opened.pipeline.command_line, opened.store, opened.state.stage
    # The stage with `approve` is not among the members if it was not selected.
    named = min(members, key=lambda name: (not stages(name).approve, not stages(name).step.asks_model, name))
    group = opened.state.plan.promoted_with(named)[0]
    place = store.approvals / "waiting" / f"{sha256_hex(f'{file} {group}'.encode())}.json"
    if not change.new:  # what an earlier build held does not wait any more
        try_unlink(place)
        return None
    # What an earlier result left in the workspace does not count, so a restored result stays approved.
    starts = {path: entry for one in members.values() for path, entry in one.record.starts}
    wanted = {
        path: entry for name, one in members.items() for path, entry in opened.state.target(name, one.record).items()
    }
    files = {path: [str(starts.get(path) or ""), str(entry or "")] for path, entry in wanted.items()}
    digest = sha256_hex(digest_json({"change": files}).encode())
    approval = approval_of(store, digest)
    if approval is not None:
        # In the journal; `of_steps`, since the next build does not repeat it.
        data, text = Warned(of_steps=True), f"approved by {approval.provenance.rpartition(', ')[0]} ({digest[:12]})"
        events.observer.notice(Event(data, text, named))
    # A build promoted what the lock file has, once it was approved.
    locked = [(opened.lock.records.get(name), one.record) for name, one in members.items()]
    if approval or all(then and then.key == now.key and same_result(then, now) for then, now in locked):
        try_unlink(place)
        return None
    steps = {name: one.resolved.stage.step for name, one in members.items()}
    of = {name: step.transcripts if is_llm(step) else None for name, step in steps.items()}
    old, new = dict(change.old), dict(change.new)
    waiting = Change(pipeline=file, stage=named, digest=digest, members=of, old=old, new=new)
    write_atomic(place, store.key.encode(waiting), mode=PRIVATE_FILE_MODE)
    found = {name: rejection_of(store, waiting, name) for name in members}
    models = [name for name, step in steps.items() if step.asks_model]
    if rejections := {name: _failure(line, name, models, one) for name, one in found.items() if one is not None}:
        return {}, rejections
    ways = [f"`{line(*words)}`" for words in (("approve", named), ("reject", named, "-m", "TEXT"))]
    hint = f"`{line('show', named, '--changes')}` shows the diff; then {', or '.join(ways)}"
    waits = Diagnostic("E646", f"its changes wait for approval: {first_names(sorted(new))}", hint=hint)
    end = {"status": StageStatus.WITHHELD, "text": f"waits for approval: {ways[0]}", "code": ExitCode.APPROVAL}
    return {
        name: one.outcome if one.how == "fresh" else replace(one.outcome, **end, problems=(waits,))
        for name, one in members.items()
    }, {}


def _failure(line: Callable[..., str], name: str, models: Sequence[str], rejection: Exchange) -> Failure:
    hint = "change its inputs, its prompt or its command; "
    if models:  # a command has no attempt that words can change, but another stage of its group may have
        other, says = (name, "says something else") if name in models else (models[0], "asks its model")
        hint += f"`{line('reject', other, '-m', 'TEXT')}` {says}, "
    hint += f"`{line('approve', name)}` takes this result as it is"
    first = rejection.response.partition("\n")[0]
    problem = Diagnostic("E327", f"rejected: {first} (by {rejection.provenance})", hint=hint)
    return Failure(feedback=RetryFeedback(kind="rejected", excerpt=rejection.response), diagnostics=(problem,))
