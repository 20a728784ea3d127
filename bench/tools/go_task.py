"""go-task: the graph as a Taskfile."""

from collections.abc import Mapping

from bench.graph import Graph
from bench.tool import FromPypi, Tool


def taskfile(graph: Graph) -> Mapping[str, str]:
    """Return the graph as a Taskfile; checksums decide, which is its default."""
    makers = {stage.output: stage.name for stage in graph.stages}
    ends = [stage.name for stage in graph.stages if stage.output not in graph.read_outputs]
    lines = ["version: '3'", "run: once", "silent: true", "tasks:", "  default:", f"    deps: [{', '.join(ends)}]"]
    for stage in graph.stages:
        before = [makers[path] for path in stage.inputs if path in makers]
        lines += [
            f"  {stage.name}:",
            f"    deps: [{', '.join(before)}]",
            f"    sources: [{', '.join(stage.inputs)}]",
            f"    generates: [{stage.output}]",
            f"    cmds: ['{' '.join(stage.argv)}']",
        ]
    return {"Taskfile.yml": "\n".join(lines) + "\n"}


GO_TASK = Tool(
    name="go-task",
    program="task",
    source=FromPypi("go-task-bin"),
    describe=taskfile,
    build=("{program}", "--concurrency", "{jobs}"),
    plan=("{program}", "--dry"),
)
