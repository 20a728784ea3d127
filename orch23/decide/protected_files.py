"""Refuse files that configure tools unless the pipeline names them."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from orch23.decide.open_pipeline import OpenPipeline
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.file_policy import DeclaredPatterns, tool_file_name
from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage
from orch23.model.plan import Plan
from orch23.model.text import join_first
from orch23.plan.nodes import declared_node, writes_of
from orch23.store.lock_file import lock_path

_MOST_NAMES = 5
_Node = Stage | ForeachStage | SkippedStage


def own_file_patterns(pipeline: Pipeline) -> tuple[str, ...]:
    """Return patterns of orch23's own files (pipeline, lock file, transcripts), which are protected at any place."""
    return (pipeline.file, _lock(pipeline), *(f"{place.rstrip('/')}/" for place in pipeline.transcript_folders))


def _lock(pipeline: Pipeline) -> str:
    return lock_path(Path(), pipeline.file).as_posix()


def declared_by_pipeline(pipeline: Pipeline) -> DeclaredPatterns:
    """Return the declared patterns of a pipeline as written, before any foreach over a file is expanded."""
    return _declared(pipeline, (*pipeline.stages, *pipeline.skipped))


def _declared(pipeline: Pipeline, nodes: Iterable[_Node]) -> DeclaredPatterns:
    return DeclaredPatterns(_patterns(nodes), own_file_patterns(pipeline), (_lock(pipeline),))


class DeclaredByPlan(Struct, dict=True):
    """The patterns that the stages, items and switched-off stages of a plan declare.

    The index is built for the first protected path, which most builds do not have, and again when the plan was
    extended.
    """

    opened: OpenPipeline
    _plan: Plan | None = None
    _declared: DeclaredPatterns | None = None

    @cached_property
    def _none(self) -> DeclaredPatterns:
        return _declared(self.opened.pipeline, ())

    def refusal(self, path: str) -> str | None:
        """Return why no stage of today's plan may write or remove a path, or None, by its names alone.

        Raises:
            SafetyError: the path leads through a link.
        """
        return self.opened.store.promoter.refusal(path, self.by_names)

    def by_names(self, path: str) -> str | None:
        """Return why no stage of today's plan may write or remove a path, or None, but for lock files."""
        # Most paths have no protected name: they need no index of the plan.
        if self._none.write_error(path) is None:
            return None
        plan = self.opened.state.plan
        if self._declared is None or self._plan is not plan:
            nodes = (*plan.pipeline.stages, *plan.nodes.values(), *plan.skipped.values())
            self._plan, self._declared = plan, _declared(plan.pipeline, nodes)
        return self._declared.write_error(path)


def _patterns(nodes: Iterable[_Node]) -> Iterator[str]:
    for node in nodes:
        yield from node.writes if isinstance(node, SkippedStage) else writes_of(node)
        if isinstance(node, Stage):
            yield from node.fence.delete


def undeclared_tool_files(plan: Plan, stage: str, paths: Iterable[str]) -> Diagnostic | None:
    """Return a warning about written files that configure tools and that the pipeline does not name, or None.

    A name in an item of a list file does not count: the pipeline's author did not write it.
    """
    # First the names alone: most results have no such file, and need no index of patterns.
    found = [path for path in paths if tool_file_name(path) is not None]
    if not found:
        return None
    patterns, family = writes_of(plan.nodes[stage]), declared_node(plan.pipeline, stage)
    # The items of a list in a file are data: only names that the pipeline's author wrote count.
    if isinstance(family, ForeachStage) and not family.foreach.values:
        patterns = family.writes
    declared = DeclaredPatterns(patterns)
    unnamed = [f"`{path}`" for path in found if declared.is_undeclared_tool_file(path)]
    if not unnamed:
        return None
    message = f"wrote {join_first(unnamed, _MOST_NAMES)}: such names configure tools"
    hint = "read them before you run these tools; name them in `outputs` or `allowed_paths.write` if they are meant"
    return Diagnostic("W306", message, hint=hint, severity=Severity.WARNING)
