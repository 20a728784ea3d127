"""Say what a build would do, with no executor, no provider and no writer in reach."""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.appraise import Appraised, Appraiser
from orch23.engine.declared import DeclaredByPlan
from orch23.engine.outlook import Outlook
from orch23.engine.session import Session
from orch23.engine.world import World
from orch23.model.decision import Decision, Fresh
from orch23.model.errors import InvalidInputError
from orch23.model.paths import is_glob
from orch23.model.pipeline import Stage
from orch23.model.plan import Plan
from orch23.model.record import LockFile
from orch23.plan.select import EVERYTHING, Selection


class Preview(Struct, frozen=True, kw_only=True):
    """The decisions in the order of the plan, with the stages as they were resolved.

    `dead` are the files of ended stages that a green build would remove, `released` those that stay, with the name of
    the stage; `skipped` are the stages that are switched off.
    """

    plan: Plan
    decisions: Mapping[str, Decision]
    appraised: Mapping[str, Appraised]
    dead: tuple[str, ...] = ()
    released: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    @property
    def would_run(self) -> bool:
        """Say whether a build would do more than find everything fresh."""
        return any(not isinstance(d, Fresh) for d in self.decisions.values()) or bool(self.dead or self.released)

    def count(self, *kinds: type[Decision]) -> int:
        """Count the decisions of these kinds."""
        return sum(isinstance(d, kinds) for d in self.decisions.values())


def check_claims(session: Session) -> None:
    """Do nothing if no other pipeline of the project owns an output that this one declares and does not hold.

    Raises:
        InvalidInputError: with every such output.

    """
    world = session.world
    stages = [node for node in world.plan.nodes.values() if isinstance(node, Stage)]
    literal = ((stage, [path for path in stage.outputs if not is_glob(path)]) for stage in stages)
    problems = [
        replace(problem, location=world.plan.pipeline.locate("stages", stage.family, "outputs"), subject=None)
        for stage, paths in literal
        for problem in world.refused_claims(stage.name, paths)
    ]
    if problems:
        raise InvalidInputError(*problems)


def preview(session: Session, selection: Selection = EVERYTHING) -> Preview:
    """Return what a build of the same selection would do.

    Raises:
        NotFoundError: a name is no stage.
        InvalidInputError: a foreach over a file as it is cannot be expanded.

    """
    check_claims(session)
    outlook = Outlook(session.appraiser, selection)
    decisions = outlook.look()
    dead = _removable(session) if selection.is_all else ()
    released = session.world.released_files() if selection.is_all else {}
    plan = session.world.plan
    skipped = selection.skipped(plan)
    return Preview(
        plan=plan,
        decisions=decisions,
        appraised=outlook.appraised,
        dead=dead,
        released=released,
        skipped=skipped,
    )


def replan(session: Session, lock: LockFile, selection: Selection) -> tuple[Mapping[str, Decision], World]:
    """Return what the next build of a selection would decide, and the world that it decides in.

    `lock` is what a build left as its lock file. What this build was told to force is forced again: the answer is kept
    for the same command line.
    """
    before = session.appraiser
    old = before.world
    world = World(old.plan, session.store, lock, git=old.git, claims=old.claims, trusts_lock=old.trusts_lock)
    world.reads.update((node, reads) for node, reads in old.reads.items() if node in old.plan.expansions)
    appraiser = Appraiser(
        world,
        before.facts_of,
        before.sources,
        before.read_yaml,
        forced=before.forced,
        overwrite_edited=before.overwrite_edited,
    )
    return Outlook(appraiser, selection).look(), world


def _removable(session: Session) -> tuple[str, ...]:
    """Return the files of ended stages that a build removes: not those of protected names that no stage declares."""
    declared = DeclaredByPlan(session)
    return tuple(path for path in session.world.dead_files() if declared.refusal(path) is None)
