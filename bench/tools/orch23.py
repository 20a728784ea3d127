"""orch23: the graph as a pipeline of shell stages, trusted (`sandbox: off`) or each in the sandbox."""

from collections.abc import Mapping

from bench.graph import Graph
from bench.tool import FromTree, Tool

FILE = "pipeline.yaml"


def pipeline(graph: Graph, *, sandbox: str) -> Mapping[str, str]:
    """Return the graph as a pipeline file."""
    lines = ["version: 1", "name: bench", f"defaults: {{sandbox: {sandbox}}}", "stages:"]
    for stage in graph.stages:
        lines += [
            f"  {stage.name}:",
            f"    inputs: [{', '.join(stage.inputs)}]",
            f"    outputs: [{stage.output}]",
            f"    shell: {stage.text}" if stage.cat else f"    shell: [{', '.join(stage.argv)}]",
        ]
    return {FILE: "\n".join(lines) + "\n"}


def with_one_stage_edited(text: str, graph: Graph, number: int) -> str:
    """Return the pipeline's text with another description of the stage in the middle."""
    stage = graph.stages[len(graph.stages) // 2]
    head, found, rest = text.partition(f"  {stage.name}:\n")
    assert found
    if rest.startswith("    desc:"):
        rest = rest.partition("\n")[2]
    return f"{head}{found}    desc: edit {number}\n{rest}"


def trusted(graph: Graph) -> Mapping[str, str]:
    """Return the pipeline whose stages run without a sandbox."""
    return pipeline(graph, sandbox="off")


def confined(graph: Graph) -> Mapping[str, str]:
    """Return the pipeline whose stages run in the best sandbox of the machine."""
    return pipeline(graph, sandbox="on")


RAN = r"([\d,]+) built"
BUILD = ("{program}", "build", FILE, "-j{jobs}")
TRUSTED = Tool(
    name="orch23",
    program="orch23",
    source=FromTree(),
    describe=trusted,
    build=BUILD,
    plan=("{program}", "plan", FILE),
    repair=(*BUILD, "--overwrite-edited"),
    environment={"ORCH23_ALLOW_UNSANDBOXED": "1"},
    says_ran=RAN,
    cat=True,
    remark="`sandbox: off`, allowed by the environment; all else as always",
)
CONFINED = Tool(
    name="orch23 confined",
    program="orch23",
    source=FromTree(),
    describe=confined,
    build=BUILD,
    plan=("{program}", "plan", FILE),
    repair=(*BUILD, "--overwrite-edited"),
    says_ran=RAN,
    remark="each stage in the best sandbox of the machine",
    only=("first build, -j1", "first build, -j2"),
)
