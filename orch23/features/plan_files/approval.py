"""What an approved plan allows the stages of a build to do: one that would do more fails."""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.decisions import DecidedStage
from orch23.decide.dry_run import Preview
from orch23.model.diagnostic import Diagnostic
from orch23.model.pipeline import family_of
from orch23.model.plan import Decision, Expand, Fresh, Maybe, Restore, Run, VerifyOnly

PLAN_AGAIN = "plan again: `orch23 plan --out FILE`, read the plan, then `orch23 build --plan FILE`"


class Approval(Struct, frozen=True):
    """What the stages of a plan may do. `keys` are the keys of those that depend on no stage that changes.

    The files can change while the build runs: then a stage could run that no one has approved.
    """

    decisions: Mapping[str, Decision]
    keys: Mapping[str, str] = field(default_factory=dict)

    def limit(self, decided: DecidedStage) -> DecidedStage:
        """Return a decision; one that goes beyond the plan becomes an error of the stage."""
        if not (text := self._difference(decided)):
            return decided
        refused = Diagnostic("E682", text, hint=PLAN_AGAIN)
        resolved = replace(decided.resolved, broken=(*decided.resolved.broken, refused))
        # As for a stage with invalid inputs: it fails before its step, and stages that do not need it go on.
        return DecidedStage(resolved, Run(getattr(decided.decision, "reasons", ())))

    def _difference(self, decided: DecidedStage) -> str:
        """Return how a decision goes beyond the plan; an empty text if it does not."""
        name, now = decided.resolved.stage.name, decided.decision
        if not isinstance(now, Run | Restore | VerifyOnly):
            return ""
        # The items of a foreach are not known before it is expanded.
        planned = self.decisions.get(name) or self.decisions.get(family_of(name))
        is_approved = isinstance(planned, Run | Maybe | Expand) or (
            isinstance(planned, VerifyOnly | Restore) and not isinstance(now, Run)
        )
        if not is_approved:
            then = "not in the plan" if planned is None else planned.label
            return f"the plan no longer holds: {then} -> {now.label}"
        if self.keys.get(name, decided.resolved.key) != decided.resolved.key:
            return "the plan no longer holds: what the stage depends on changed after the build started"
        return ""


def approval_of(seen: Preview) -> Approval:
    """Return what a preview approves."""
    settled = {name for name, one in seen.decisions.items() if isinstance(one, Fresh | Restore)}
    keys = {
        name: decided.resolved.key
        for name, decided in seen.decided_stages.items()
        if settled.issuperset(seen.plan.upstream[name])
    }
    return Approval(dict(seen.decisions), keys)
