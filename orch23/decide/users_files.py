"""Know the files of a user that a model would start from, and which of them its prompt does not show."""

from collections.abc import Collection, Mapping

from orch23.decide.project_state import ProjectState
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
    from orch23.resolve.prompt_files import shown_text, shows  # noqa: PLC0415 - only for files of a user

    former = state.former.get(resolved.stage.name)
    last = former.outputs if former is not None else {}
    own = tuple(one for one in resolved.given if one.path in texts and last.get(one.path) == resolved.base[one.path])
    text = shown_text(
        resolved.stage, step, resolved.given, own, sources, state.plan.pipeline.vars, resolved.facts.accepts
    )
    return tuple(path for path, wanted in texts.items() if not shows(text, wanted))
