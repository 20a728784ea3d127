"""Warn about what has no effect in a stage: paths of pytest and `llm.read`, and words that no JSON schema knows."""

import contextlib
from collections.abc import Iterator, Sequence

from orch23.model.diagnostic import Diagnostic, Location, Severity, quoted_names
from orch23.model.errors import SafetyError
from orch23.model.parsing import StrictJsonError, parse_json
from orch23.model.pipeline import Stage
from orch23.model.plan import Plan
from orch23.plan.nodes import WriterIndex
from orch23.store.workspace import Workspace

W_IGNORED_WORDS, W_PATHS = "W861", "W827"


def stage_warnings(plan: Plan, stages: Sequence[Stage], workspace: Workspace) -> tuple[Diagnostic, ...]:
    """Return the warnings about paths and words of schemas that have no effect, each once.

    Schemas that are not valid are reported elsewhere.
    """
    found: tuple[Diagnostic, ...] = ()
    if testing := [stage for stage in stages if stage.runs_pytest]:
        from orch23.attempt.pytest_paths import pytest_path_warnings  # noqa: PLC0415 - only for such stages

        found = pytest_path_warnings(plan, testing, workspace)
    files = dict.fromkeys(path for stage in stages for path in stage.schema_files)
    absent = dict.fromkeys(one for stage in stages for one in _absent_reads(plan, stage, workspace))
    return (*found, *absent, *(one for path in files for one in _ignored_words(path, workspace.read(path))))


def _absent_reads(plan: Plan, stage: Stage, workspace: Workspace) -> Iterator[Diagnostic]:
    """Yield a warning for each path of `llm.read` in the project that does not exist and that no stage makes."""
    for number, path in enumerate(getattr(stage.step, "read", ())):
        with contextlib.suppress(SafetyError):  # a link that leads out of the project
            if path.startswith(("/", "~/")) or workspace.resolved_path(path) is not None:
                continue
            writers = WriterIndex({**{one.name: one for one in plan.pipeline.stages}, **plan.nodes})
            if not any(map(writers.writers_of, (path, f"{path}/**"))):
                message = f"`llm.read` of `{stage.family}` has `{path}`, which does not exist, and no stage makes it"
                place = plan.pipeline.place_in(stage, "llm", "read", number)
                yield Diagnostic(W_PATHS, message, place, "correct it, or remove it", Severity.WARNING)


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
