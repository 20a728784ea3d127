"""Warn about what has no effect in a stage: paths of pytest, and words of JSON schemas that no draft knows."""

from collections.abc import Iterator, Sequence

from orch23.model.diagnostic import Diagnostic, Location, Severity, quoted_names
from orch23.model.parsing import StrictJsonError, parse_json
from orch23.model.pipeline import Stage
from orch23.model.plan import Plan
from orch23.store.workspace import Workspace

W_IGNORED_WORDS = "W861"


def stage_warnings(plan: Plan, stages: Sequence[Stage], workspace: Workspace) -> tuple[Diagnostic, ...]:
    """Return the warnings about paths of pytest and words of schemas that have no effect, each once.

    Schemas that are not valid are reported elsewhere.
    """
    found: tuple[Diagnostic, ...] = ()
    if testing := [stage for stage in stages if stage.runs_pytest]:
        from orch23.engine.pytest_paths import pytest_path_warnings  # noqa: PLC0415 - only for such stages

        found = pytest_path_warnings(plan, testing, workspace)
    files = dict.fromkeys(path for stage in stages for path in stage.schema_files)
    return (*found, *(one for path in files for one in _ignored_words(path, workspace.read(path))))


def _ignored_words(path: str, data: bytes | None) -> Iterator[Diagnostic]:
    from orch23.checks.schema_drafts import ignored_words  # noqa: PLC0415 - it imports jsonschema

    try:
        words = ignored_words(parse_json((data or b"null").decode("utf-8", "replace")))
    except StrictJsonError:
        return
    if words:
        message = f"no draft of JSON schema knows {quoted_names(words[:8])}{', ...' * (len(words) > 8)}: ignored"  # noqa: PLR2004 - a line
        hint = "correct a misspelled word; annotations such as `x-order` have no effect"
        yield Diagnostic(W_IGNORED_WORDS, message, Location(path, 1, 1), hint, Severity.WARNING)
