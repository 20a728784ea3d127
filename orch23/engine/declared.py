"""Say which protected names the stages of a pipeline declare (ADR 28), and which of their files configure a tool."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from orch23.decide.protected import Declared
from orch23.engine.transcripts import transcript_folders
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage
from orch23.model.plan import Plan
from orch23.model.protected import tool_name
from orch23.plan.writers import writes_of

_Node = Stage | ForeachStage | SkippedStage


def own_files(pipeline: Pipeline) -> tuple[str, ...]:
    """Return patterns of the files that say what to do and what was done: they are protected wherever they are."""
    lock = PurePosixPath(pipeline.file).with_suffix(".lock").as_posix()
    return (pipeline.file, lock, *(f"{place.rstrip('/')}/" for place in transcript_folders(pipeline)))


def declared_by_pipeline(pipeline: Pipeline) -> Declared:
    """Return what a pipeline declares as it is written, before any foreach over a file is expanded."""
    return Declared(_patterns((*pipeline.stages, *pipeline.skipped)), own_files(pipeline))


@dataclass(slots=True)
class DeclaredByPlan:
    """What the stages, items and switched-off stages of a plan declare.

    The index is made for the first protected path, which most builds do not have, and anew when the plan was extended.
    """

    _plan: Plan | None = None
    _own: Declared | None = None
    _declared: Declared | None = None

    def refusal(self, plan: Plan, path: str) -> str | None:
        """Return why no stage of the plan may write or remove a path, or None: by its names alone."""
        if self._own is None:
            self._own = Declared((), own_files(plan.pipeline))
        if self._own.refusal(path) is None:
            return None
        if self._declared is None or self._plan is not plan:
            nodes = (*plan.pipeline.stages, *plan.nodes.values(), *plan.skipped.values())
            self._plan, self._declared = plan, Declared(_patterns(nodes), own_files(plan.pipeline))
        return self._declared.refusal(path)


def _patterns(nodes: Iterable[_Node]) -> Iterator[str]:
    for node in nodes:
        yield from node.writes if isinstance(node, SkippedStage) else writes_of(node)
        if isinstance(node, Stage):
            yield from node.fence.delete


def unnamed_tools(plan: Plan, stage: str, paths: Iterable[str]) -> tuple[Diagnostic, ...]:
    """Return a warning for each of these files of a stage that configures a tool and that the pipeline does not name.

    What an item of a list in a file names, the author of the pipeline does not.
    """
    found = [path for path in paths if tool_name(path) is not None]
    if not found:
        return ()
    node = plan.nodes[stage]
    family = next((one for one in plan.pipeline.stages if one.name == stage.partition("@")[0]), node)
    is_typed = isinstance(family, Stage) or bool(family.foreach.values)
    declared = Declared(writes_of(node if is_typed else family))
    return tuple(_unnamed(path, name) for path in found if (name := declared.unnamed_tool(path)) is not None)


def _unnamed(path: str, name: str) -> Diagnostic:
    message = f"wrote `{path}`: `{name}` configures a tool"
    hint = "read it before you run that tool; name it in `outputs` or `allowed_paths.write` if it is meant"
    return Diagnostic("W306", message, hint=hint, severity=Severity.WARNING)
