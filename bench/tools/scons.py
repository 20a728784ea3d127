"""SCons: the graph as a SConstruct."""

from collections.abc import Mapping

from bench.graph import Graph
from bench.tool import FromPypi, Tool


def sconstruct(graph: Graph) -> Mapping[str, str]:
    """Return the graph as a SConstruct; contents decide, which is its default."""
    lines = ["import os", "env = Environment(tools=[], ENV=dict(os.environ))", "STAGES = ["]
    lines += [f"    ({stage.inputs!r}, {stage.output!r})," for stage in graph.stages]
    lines += ["]", "for inputs, output in STAGES:", "    env.Command(output, inputs, 'sort -u -o $TARGET $SOURCES')"]
    return {"SConstruct": "\n".join(lines) + "\n"}


SCONS = Tool(
    name="SCons",
    program="scons",
    source=FromPypi("scons"),
    describe=sconstruct,
    build=("{program}", "-Q", "-s", "-j{jobs}"),
    plan=("{program}", "-Q", "-n"),
)
