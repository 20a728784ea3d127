"""Say what a build would do, with no executor, no provider and no writer in reach."""

from collections.abc import Mapping
from dataclasses import dataclass

from orch23.engine.appraise import Appraised
from orch23.engine.outlook import Outlook
from orch23.engine.session import Session
from orch23.model.decision import Decision, Fresh
from orch23.model.plan import Plan
from orch23.plan.select import EVERYTHING, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The decisions in the order of the plan, with the stages as they were resolved.

    `dead` are the files of stages that are gone, which a green build would take away; `skipped` are the stages that
    are switched off.
    """

    plan: Plan
    decisions: Mapping[str, Decision]
    appraised: Mapping[str, Appraised]
    dead: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def would_run(self) -> bool:
        """Say whether a build would do more than find everything fresh."""
        return any(not isinstance(d, Fresh) for d in self.decisions.values()) or bool(self.dead)

    def count(self, *kinds: type[Decision]) -> int:
        """Count the decisions of these kinds."""
        return sum(isinstance(d, kinds) for d in self.decisions.values())


def preview(session: Session, selection: Selection = EVERYTHING) -> Preview:
    """Return what a build of the same selection would do.

    Raises:
        NotFoundError: a name is no stage.
        InvalidInputError: a foreach over a file as it is cannot be expanded.

    """
    appraised: dict[str, Appraised] = {}
    decisions = Outlook(session.appraiser, selection, appraised.__setitem__).look()
    dead = tuple(session.world.dead_files()) if selection.is_all else ()
    plan = session.world.plan
    skipped = selection.skipped(plan)
    return Preview(plan=plan, decisions=decisions, appraised=appraised, dead=dead, skipped=skipped)
