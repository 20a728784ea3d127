"""Refuse files that configure tools or tests unless the pipeline names them."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.decide.write_protection import DeclaredPatterns
from orch23.engine.outcomes import relative_path
from orch23.engine.project_state import ProjectState
from orch23.engine.session import Session
from orch23.engine.stage_view import StageView
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import FileEntry
from orch23.model.file_policy import tool_file_name
from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage
from orch23.model.plan import Plan
from orch23.plan.nodes import WriterIndex, declared_node, writes_of
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.steps.pytest.spec import PytestStep


_MOST_NAMES = 5
_Node = Stage | ForeachStage | SkippedStage


def own_file_patterns(pipeline: Pipeline) -> tuple[str, ...]:
    """Return patterns of orch23's own files (pipeline, lock file, transcripts), which are protected at any place."""
    return (pipeline.file, _lock(pipeline), *(f"{place.rstrip('/')}/" for place in pipeline.transcript_folders))


def _lock(pipeline: Pipeline) -> str:
    return PurePosixPath(pipeline.file).with_suffix(".lock").as_posix()


def declared_by_pipeline(pipeline: Pipeline) -> DeclaredPatterns:
    """Return the declared patterns of a pipeline as written, before any foreach over a file is expanded."""
    return _declared(pipeline, (*pipeline.stages, *pipeline.skipped))


def _declared(pipeline: Pipeline, nodes: Iterable[_Node]) -> DeclaredPatterns:
    return DeclaredPatterns(_patterns(nodes), own_file_patterns(pipeline), (_lock(pipeline),))


class DeclaredByPlan(Struct, dict=True):
    """The patterns that the stages, items and switched-off stages of a session's plan declare.

    The index is built for the first protected path, which most builds do not have, and again when the plan was
    extended.
    """

    session: Session
    _plan: Plan | None = None
    _declared: DeclaredPatterns | None = None

    @cached_property
    def _none(self) -> DeclaredPatterns:
        return _declared(self.session.pipeline, ())

    def refusal(self, path: str) -> str | None:
        """Return why no stage of today's plan may write or remove a path, or None, by its names alone.

        Raises:
            SafetyError: the path leads through a link.

        """
        return self.session.store.promoter.refusal(path, self._by_names)

    def _by_names(self, path: str) -> str | None:
        # Most paths have no protected name: they need no index of the plan.
        if self._none.write_error(path) is None:
            return None
        plan = self.session.state.plan
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
    node = plan.nodes[stage]
    # The items of a list in a file are data: only names that the pipeline's author wrote count.
    family = declared_node(plan.pipeline, stage) or node
    is_typed = isinstance(family, Stage) or bool(family.foreach.values)
    declared = DeclaredPatterns(writes_of(node if is_typed else family))
    unnamed = [f"`{path}`" for path in found if declared.is_undeclared_tool_file(path)]
    if not unnamed:
        return None
    more = f" and {len(unnamed) - _MOST_NAMES} more" if len(unnamed) > _MOST_NAMES else ""
    message = f"wrote {', '.join(unnamed[:_MOST_NAMES])}{more}: such names configure tools"
    hint = "read them before you run these tools; name them in `outputs` or `allowed_paths.write` if they are meant"
    return Diagnostic("W306", message, hint=hint, severity=Severity.WARNING)


_CONFTEST = "conftest.py"


class TestTrust(Struct, frozen=True):
    """What one stage may trust of the files in its sandbox directories. `plan` is the one at its start."""

    state: ProjectState
    resolved: ResolvedStage
    plan: Plan

    def refused(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> tuple[Diagnostic, ...]:
        """Return an error for each pytest setting that a model made, and each module that hides a library's."""
        return (*self._settings(step, files), *self._shadows(step, files))

    def may_be_written(self, pattern: str) -> bool:
        """Return whether a stage of the pipeline may write a path that the pattern matches."""
        return bool(WriterIndex(self.plan.all_nodes).writers_of(pattern))

    def _shadows(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
        from orch23.steps.pytest.trust import shadowing_errors  # noqa: PLC0415 - for steps of pytest alone

        # Many modules of one tree have the same maker.
        is_of_model = cache(partial(depends_on_model, self.state.plan))
        yield from shadowing_errors(
            step,
            self.resolved.stage.cwd,
            files.keys(),
            interpreter=Path(self.resolved.facts.interpreter),
            is_of_model=lambda path: (maker := self._maker(path, files[path])) is not None and is_of_model(maker),
        )

    def _settings(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
        cwd = self.resolved.stage.cwd
        for path, entry in sorted(files.items()):
            if cwd != "." and not path.startswith(f"{cwd}/"):
                continue
            name = relative_path(path, cwd)
            if (name.rpartition("/")[2] != _CONFTEST and name != step.config) or name in step.trust:
                continue
            maker = self._maker(path, entry)
            if maker is not None and depends_on_model(self.state.plan, maker):
                message = f"is made by `{maker}`, which is a model's work, and would configure the tests that judge it"
                hint = f"leave it out, or name it: `pytest: {{trust: [{name}]}}`"
                yield Diagnostic("E321", message, hint=hint, subject=path)

    def _maker(self, path: str, entry: FileEntry) -> str | None:
        """Return the stage that made the file at a path of the sandbox directory; None if the user did."""
        one = self.resolved
        given = (one.base, one.files, one.verify_files, one.parts, one.verify_parts)
        if all(files.get(path) != entry for files in given):
            return self.resolved.stage.name
        name = self.resolved.stage.name
        if path in self.state.moved_bases.get(
            name, {}
        ):  # a base that has moved: a user's bytes, or what a run left there
            ownership = self.state.ownership
            return name if ownership.is_known(path, entry) and not ownership.is_accepted(path, entry) else None
        if path in self.resolved.base and self.state.known_originals.get(path) == entry:
            return None
        return StageView(self.state, name).maker(path)


def depends_on_model(plan: Plan, name: str) -> bool:
    """Return whether a stage or one of its upstream stages calls a model."""
    seen, open_ = {name}, [name]
    while open_:
        node = plan.nodes.get(open_.pop())
        if node is None:
            continue
        if isinstance(node, ForeachStage):
            if "llm" in node.body:
                return True
        elif is_llm(node.step):
            return True
        for above in plan.upstream.get(node.name, ()):
            if above not in seen:
                seen.add(above)
                open_.append(above)
    return False
