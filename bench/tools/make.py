"""GNU make, as it comes and without its built-in rules."""

from collections.abc import Mapping
from dataclasses import replace

from bench.graph import Graph
from bench.tool import FromPath, Tool


def makefile(graph: Graph) -> Mapping[str, str]:
    """Return the graph as a makefile."""
    lines = [f"all: {' '.join(stage.output for stage in graph.stages)}"]
    for stage in graph.stages:
        lines += [f"{stage.output}: {' '.join(stage.inputs)}", f"\t{stage.text}"]
    return {"Makefile": "\n".join(lines) + "\n"}


STOCK = Tool(
    name="make",
    program="make",
    source=FromPath("apt-get install make"),
    describe=makefile,
    build=("{program}", "-s", "-j{jobs}"),
    plan=("{program}", "-n"),
    cat=True,
)
BARE = replace(
    STOCK,
    name="make -rR",
    build=("{program}", "-rRs", "-j{jobs}"),
    plan=("{program}", "-rRn"),
    remark="without built-in rules and variables",
)
