"""Find out why no attempt of a stage is kept, for `show`."""

from orch23.cli.project_loading import Project
from orch23.model.diagnostic import Diagnostic
from orch23.model.event import FROM_SHARED_CACHE, StageFinished
from orch23.model.record import Record
from orch23.model.stage_status import StageStatus
from orch23.store.run_list import run_ids
from orch23.store.run_logs import read_journal

_NEW_RESULTS = (StageStatus.BUILT, StageStatus.VERIFIED, StageStatus.RESTORED)


def nothing_kept(project: Project, stage: str, record: Record | None, *, is_llm: bool) -> Diagnostic:
    """Return the error that no attempt of a stage is kept, with the reason."""
    if record is None:
        hint = f"`orch23 build {stage}` makes one; only llm stages have prompts and responses"
        return Diagnostic("E664", f"`{stage}` has no result yet, and no attempt of it is kept", hint=hint)
    again = f"`orch23 build --force {stage}` runs the stage here"
    if not is_restored_from_cache(project, stage):
        why = "its result was made elsewhere, or what was kept of it is deleted"
        return Diagnostic("E664", f"no attempt of `{stage}` is kept: {why}", hint=again)
    text = f"no attempt of `{stage}` is kept: its result is from the shared cache"
    if not is_llm:
        return Diagnostic("E664", text, hint=again)
    if project.pipeline.cache.get("responses"):
        hint = f"`show` reads the cache of ORCH23_CACHE_URL or of the pipeline; {again}"
        return Diagnostic("E664", f"{text}, and its response is not found", hint=hint)
    hint = f"the response is where the result was made; `cache: {{responses: true}}` shares later ones; {again}"
    return Diagnostic("E664", f"{text}, and its response was not shared", hint=hint)


def is_restored_from_cache(project: Project, stage: str) -> bool:
    """Return whether the newest run with a result of a stage took it from the shared cache."""
    for run in run_ids(project.store.logs):
        events = (line.event for line in read_journal(project.store.logs / f"{run}.jsonl"))
        for event in events:
            if event.role == stage and isinstance(event.data, StageFinished) and event.data.status in _NEW_RESULTS:
                return event.message == FROM_SHARED_CACHE
    return False
