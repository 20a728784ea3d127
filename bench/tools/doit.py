"""doit: the graph as a dodo.py."""

from collections.abc import Mapping

from bench.graph import Graph
from bench.tool import FromPypi, Tool


def dodo(graph: Graph) -> Mapping[str, str]:
    """Return the graph as a dodo file: one task with a subtask for each stage."""
    lines = ["STAGES = ["]
    lines += [f"    ({stage.name!r}, {stage.inputs!r}, {stage.output!r})," for stage in graph.stages]
    lines += [
        "]",
        "",
        "def task_merge():",
        "    for name, inputs, output in STAGES:",
        "        argv = ['sort', '-u', '-o', output, *inputs]",
        "        yield {'name': name, 'file_dep': list(inputs), 'targets': [output], 'actions': [argv]}",
    ]
    return {"dodo.py": "\n".join(lines) + "\n"}


DOIT = Tool(
    name="doit",
    program="doit",
    source=FromPypi("doit"),
    describe=dodo,
    build=("{program}", "run", "-n{jobs}"),
    plan=("{program}", "list", "--all", "--status"),
    version=("{program}", "--version"),
    help=("{program}", "help"),
    remark="plan: `doit list --all --status`",
)
