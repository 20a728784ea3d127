"""Snakemake: the graph as a rule for each stage."""

from collections.abc import Mapping

from bench.graph import Graph
from bench.tool import FromPypi, Tool


def snakefile(graph: Graph) -> Mapping[str, str]:
    """Return the graph as a Snakefile."""
    lines = ["rule all:", "    input:", *(f"        {stage.output!r}," for stage in graph.stages)]
    for stage in graph.stages:
        lines += [
            f"rule {stage.name}:",
            f"    input: {stage.inputs[0]!r}, {stage.inputs[1]!r}",
            f"    output: {stage.output!r}",
            f"    shell: {' '.join(stage.argv)!r}",
        ]
    return {"Snakefile": "\n".join(lines) + "\n"}


SNAKEMAKE = Tool(
    name="Snakemake",
    program="snakemake",
    source=FromPypi("snakemake"),
    describe=snakefile,
    build=("{program}", "--cores", "{jobs}", "--quiet"),
    plan=("{program}", "--cores", "1", "--dry-run", "--quiet"),
)
