"""Hold the change of a promotion group until a user has approved it."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.failures import Failure
from orch23.attempt.run_events import RunEvents
from orch23.decide.open_pipeline import OpenPipeline
from orch23.engine.promotions import Outcomes
from orch23.engine.result_writer import PassedStage, WorkspaceChange
from orch23.features.approval.changes import digest_of, gate_of, is_promoted
from orch23.features.approval.decisions import Decision, approval_of, rejection_of
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode
from orch23.model.event import ChangeApproved
from orch23.model.event_data import StageStatus
from orch23.model.llm import RetryFeedback
from orch23.report.plan_view import first_names


class Gate(Struct, frozen=True):
    """Looks up what users decided about changes. Only the loop thread calls this."""

    opened: OpenPipeline
    events: RunEvents

    def check(
        self, members: Mapping[str, PassedStage], change: WorkspaceChange
    ) -> tuple[Outcomes, Mapping[str, Failure]] | None:
        """Return None if the change may be promoted, else outcomes of all members, or failures of rejected ones."""
        records, state = {name: one.record for name, one in members.items()}, self.opened.state
        if is_promoted(self.opened.lock, records):
            return None
        digest, gate = digest_of(state, records), gate_of(state, [*members])
        if (approval := approval_of(self.opened.store, digest)) is not None:
            data = ChangeApproved(digest=digest, by=approval.by, at=approval.at)
            self.events.emit(data, f"approved by {approval.by}", gate.name)
            return None
        stages = {name: one.resolved.stage for name, one in members.items()}
        found = {name: rejection_of(self.opened.store, stage, digest) for name, stage in stages.items()}
        rejections = {name: _failure(self.opened, name, one) for name, one in found.items() if one is not None}
        if rejections:
            return {}, rejections
        line, name = self.opened.pipeline.command_line, gate.name
        ways = f"`{line('approve', name)}`, or `{line('reject', name, '-m', 'TEXT')}`"
        hint = f"`{line('show', name, '--changes')}` shows the diff; then {ways}"
        waits = Diagnostic("E646", f"its changes wait for approval: {first_names(sorted(change.new))}", hint=hint)
        text = f"waits for approval: `{line('approve', name)}`"
        status, code = StageStatus.WITHHELD, ExitCode.APPROVAL
        return {
            name: one.outcome
            if one.how == "fresh"
            else replace(one.outcome, status=status, text=text, code=code, problems=(waits,))
            for name, one in members.items()
        }, {}


def _failure(opened: OpenPipeline, name: str, rejection: Decision) -> Failure:
    line = opened.pipeline.command_line
    hint = f"change its inputs, its prompt or its command; `{line('reject', name, '-m', 'TEXT')}` says something else, "
    hint += f"`{line('approve', name)}` takes this result as it is"
    first = rejection.text.partition("\n")[0]
    problem = Diagnostic("E327", f"rejected: {first} (by {rejection.by})", hint=hint)
    return Failure(feedback=RetryFeedback(kind="rejected", excerpt=rejection.text), diagnostics=(problem,))
