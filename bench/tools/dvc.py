"""DVC: the graph as the stages of a dvc.yaml."""

from collections.abc import Mapping

from bench.graph import Graph
from bench.tool import FromPypi, Tool


def dvc_yaml(graph: Graph) -> Mapping[str, str]:
    """Return the graph as DVC's pipeline file."""
    lines = ["stages:"]
    for stage in graph.stages:
        lines += [
            f"  {stage.name}:",
            f"    cmd: {' '.join(stage.argv)}",
            f"    deps: [{', '.join(stage.inputs)}]",
            f"    outs: [{stage.output}]",
        ]
    return {"dvc.yaml": "\n".join(lines) + "\n"}


DVC = Tool(
    name="DVC",
    program="dvc",
    source=FromPypi("dvc"),
    describe=dvc_yaml,
    prepare=("{program}", "init", "--no-scm", "--quiet"),
    build=("{program}", "repro", "--quiet"),
    plan=("{program}", "repro", "--dry"),
    environment={"DVC_NO_ANALYTICS": "1", "DVC_TEST": "1"},
    serial=True,
    remark="one stage at a time, it has no -j",
)
