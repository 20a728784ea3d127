"""Find the recorded responses that a replay of a pipeline needs: `gc --transcripts` keeps them."""

from contextlib import suppress

from orch23.cli.actions.plan import first_request, replay_first_request
from orch23.cli.past_pipeline import lock_at
from orch23.cli.project_loading import Project
from orch23.engine.dry_run import Preview
from orch23.engine.session import Session
from orch23.execute.git_revision import open_revision
from orch23.model.errors import ConfigurationError, NotFoundError
from orch23.model.pipeline import family_of
from orch23.model.plan import Fresh
from orch23.store.garbage_collection import GcRoots


def replay_needs(project: Project, session: Session, seen: Preview) -> GcRoots:
    """Return the responses to the first requests of all stages, and the stages of which a replay may need others."""
    responses: set[str] = set()
    stale = set(seen.skipped)
    for name, decided in seen.decided_stages.items():
        request = first_request(project, decided)
        found = replay_first_request(project, decided.resolved.stage, request).found if request is not None else ()
        responses |= {one.fingerprint for one in found}
        # Requests of later attempts depend on failures, which only a run shows.
        record = decided.decision.record if isinstance(decided.decision, Fresh) else None
        if record is None or not found or record.exchanges != (found[-1].fingerprint,):
            stale.add(name)
    # The edits since HEAD may be taken back.
    with suppress(NotFoundError, ConfigurationError), open_revision(project.store.root, "HEAD") as head:
        path = session.lock_path.relative_to(project.store.root).as_posix()
        before, now = lock_at(head, path).records, session.lock.records
        stale |= {name for name, record in before.items() if now.get(name) != record}
    return GcRoots(
        responses=frozenset(responses),
        stale=frozenset(map(family_of, stale)),
        transcripts=frozenset(project.pipeline.transcript_folders),
    )
