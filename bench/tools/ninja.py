"""ninja and its relative n2, which reads the same files."""

from collections.abc import Mapping
from dataclasses import replace

from bench.graph import Graph
from bench.tool import FromPath, FromPypi, Tool


def ninja_file(graph: Graph) -> Mapping[str, str]:
    """Return the graph as a ninja file."""
    command = "cat $in > $out" if graph.stages[0].cat else "sort -u -o $out $in"
    return {"build.ninja": _text(graph, command, ())}


def ninja_file_restat(graph: Graph) -> Mapping[str, str]:
    """Return the graph as a ninja file whose commands leave an output alone that would not change, as restat asks."""
    command = "sort -u -o $out.new $in && if cmp -s $out.new $out; then rm $out.new; else mv $out.new $out; fi"
    return {"build.ninja": _text(graph, command, ("  restat = 1",))}


def _text(graph: Graph, command: str, more: tuple[str, ...]) -> str:
    lines = ["rule merge", f"  command = {command}", *more]
    lines += [f"build {stage.output}: merge {' '.join(stage.inputs)}" for stage in graph.stages]
    return "\n".join(lines) + "\n"


NINJA = Tool(
    name="ninja",
    program="ninja",
    source=FromPypi("ninja"),
    describe=ninja_file,
    build=("{program}", "-j{jobs}"),
    plan=("{program}", "-n"),
    cat=True,
)
RESTAT = replace(
    NINJA,
    name="ninja restat",
    cat=False,
    describe=ninja_file_restat,
    remark="`restat = 1`, and a command that compares first",
    only=("first build, -j1", "an edit, the same output"),
)
N2 = replace(
    NINJA,
    name="n2",
    program="n2",
    source=FromPath("it is built from its repository by cargo, no package has it"),
    plan=None,
    remark="reads ninja's file; it has no dry run",
)
