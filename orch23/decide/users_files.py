"""Know the work of users that a build keeps: files that a model would start from, and results of merged branches.

Git may have merged the branches of several users, whichever lock file the merge left (ADR 19).
"""

from collections.abc import Collection, Mapping

from orch23.decide.ownership import is_proven, may_write_outputs_of
from orch23.decide.project_state import ProjectState
from orch23.model.pipeline import Stage
from orch23.model.record import Record
from orch23.resolve.prompt_inputs import AuthorTexts
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm


def texts_of_user(state: ProjectState, resolved: ResolvedStage, paths: Collection[str]) -> dict[str, str]:
    """Return the files on disk of these paths that a run starts from and a user accepted, or wrote and committed."""
    found: dict[str, str] = {}
    ownership, on_disk = state.ownership, state.store.workspace.entry
    for path in sorted(paths):
        entry = resolved.base.get(path)
        if entry is None or on_disk(path) != entry:
            continue
        if ownership.is_accepted(path, entry) or (
            not ownership.is_known(path, entry) and ownership.equals_head(path, entry)
        ):
            found[path] = state.read(path, entry).decode("utf-8", "replace")
    return found


def unshown_files(
    state: ProjectState, sources: AuthorTexts, resolved: ResolvedStage, texts: Mapping[str, str]
) -> tuple[str, ...]:
    """Return which of these files of a user a model would replace though its prompt does not show them.

    A response in edits has to quote what it replaces.
    """
    step = resolved.stage.step
    if not texts or not is_llm(step) or step.returns == "edits" or resolved.broken:
        return ()
    from orch23.resolve.prompt_keys import shown_text, shows  # noqa: PLC0415 - only for files of a user

    former = state.former.get(resolved.stage.name)
    last = former.outputs if former is not None else {}
    own = tuple(one for one in resolved.given if one.path in texts and last.get(one.path) == resolved.base[one.path])
    text = shown_text(
        resolved.stage, step, resolved.given, own, sources, state.plan.pipeline.vars, resolved.facts.accepts
    )
    return tuple(path for path, wanted in texts.items() if not shows(text, wanted))


def recall(state: ProjectState, stage: Stage, own: Collection[str]) -> bool:
    """Add what committed lock files record of a stage that has a file with bytes of a user, before it runs.

    Return whether that is more than is known. `own` are the paths of its outputs and last result.
    """
    name, ownership, on_disk = stage.name, state.ownership, state.store.workspace.entry
    if name in state.lock.retained:
        return False
    # A model starts from each file in its folders: also from one that another branch made and the last result lacks.
    patterns = stage.outputs if stage.chain is not None or name not in state.former else ()
    paths = {*own}.union(*map(state.store.workspace.writable_files, patterns))
    there = ((path, entry) for path in paths if (entry := on_disk(path)) is not None)
    if all(ownership.is_known(path, e) and not ownership.is_accepted(path, e) for path, e in there):
        return False
    more: list[Record] = []
    for record in ownership.past_records(name):
        # A stage with a newer record owns its files again.
        is_over = record.is_released and (name in state.former or any(not one.is_released for one in more))
        known = (*state.locked.records, *state.locked.released, *more)
        if not is_over and record not in known and may_write_outputs_of(stage, record):
            more.append(record)
    state.locked.add(more)
    vars(ownership).pop("_blob_ids", None)  # they name more bytes of git
    fixed = state.lock.originals()
    for record in reversed(more):
        state.known_originals.update((path, one) for path, one in record.originals.items() if path not in fixed)
    return bool(more)


def accepted_elsewhere(state: ProjectState, record: Record) -> tuple[str, ...]:
    """Return accepted files that a result would replace, if the own store lacks the result or the accepted edit.

    Then two users made them, and only the one who merged knows which is wanted.
    """
    records = state.store.records
    if state.link(record.stage) is None or state.is_shared(record):
        return ()
    target = state.target(record.stage, record)
    there = ((path, entry) for path in target if (entry := state.on_disk(path)) is not None and entry != target[path])
    others = [(path, entry) for path, entry in there if state.ownership.is_accepted(path, entry)]
    if others and is_proven(record, records):
        others = [(p, e) for p, e in others if not any(p in one.accepted for one in records.having(p, e))]
    return tuple(path for path, _ in others)
