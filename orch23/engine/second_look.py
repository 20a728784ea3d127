"""Decide once more, after a build, what the next one would: on what it left, with nothing that it was told to force."""

from collections.abc import Mapping

from orch23.engine.appraise import Appraiser
from orch23.engine.outlook import Outlook
from orch23.engine.session import Session
from orch23.engine.world import World
from orch23.model.decision import Decision
from orch23.model.record import LockFile
from orch23.plan.select import Selection


def look_again(session: Session, lock: LockFile, selection: Selection) -> Mapping[str, Decision]:
    """Return what the next build of a selection would decide; `lock` is what this one left as its lock file."""
    before = session.appraiser
    old = before.world
    world = World(old.plan, session.store, lock, git=old.git, claims=old.claims, trusts_lock=old.trusts_lock)
    appraiser = Appraiser(
        world,
        before.facts_of,
        before.sources,
        before.read_yaml,
        forced=before.forced,
        overwrite_edited=before.overwrite_edited,
    )
    return Outlook(appraiser, selection).look()
