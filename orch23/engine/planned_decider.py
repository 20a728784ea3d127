"""Decide stages in a build of an approved plan: a stage that would do more than was planned fails."""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.decisions import DecidedStage, StageDecider
from orch23.engine.dry_run import Preview
from orch23.engine.session import Session
from orch23.model.diagnostic import Diagnostic
from orch23.model.pipeline import family_of
from orch23.model.plan import Decision, Expand, Fresh, Maybe, Restore, Run, VerifyOnly

_HINT = "plan again: `orch23 plan --out FILE`, read the plan, then `orch23 build --plan FILE`"


class Approval(Struct, frozen=True):
    """What the stages of a plan may do. `keys` are the keys of those that depend on no stage that changes."""

    decisions: Mapping[str, Decision]
    keys: Mapping[str, str] = field(default_factory=dict)

    def difference(self, decided: DecidedStage) -> str:
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


class PlannedDecider(StageDecider):
    """Decides as any build, and makes a stage fail that would do more than its plan says.

    The files can change while the build runs: then a stage could run that no one has approved.
    """

    approval: Approval | None = None

    def decide(self, name: str, *, need_intermediate: bool = False) -> DecidedStage:
        """Resolve and decide a stage; an unplanned decision becomes an error of the stage."""
        decided = super().decide(name, need_intermediate=need_intermediate)
        text = "" if self.approval is None else self.approval.difference(decided)
        if not text:
            return decided
        refused = Diagnostic("E682", text, hint=_HINT)
        resolved = replace(decided.resolved, broken=(*decided.resolved.broken, refused))
        # As for a stage with invalid inputs: it fails before its step, and stages that do not need it go on.
        return DecidedStage(resolved, Run(getattr(decided.decision, "reasons", ())))


def restrict(session: Session, approval: Approval) -> Session:
    """Return the session with stages that do only what is approved."""
    old = session.decider
    given = {name: getattr(old, name) for name in StageDecider.__struct_fields__}
    return replace(session, decider=PlannedDecider(**given, approval=approval))
