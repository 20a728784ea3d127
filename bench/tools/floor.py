"""The floor (`bench/floor.py`): the graph as lines of a text that it makes its plan from."""

from collections.abc import Mapping
from pathlib import Path

from bench.graph import Graph
from bench.tool import FromTree, Tool

# As a module, since Python keeps the bytecode of modules.
START = f"import sys; sys.path[:0] = [{str(Path(__file__).parent.parent)!r}]; import floor; floor.main()"
TEXT = "floor.txt"
CLICK = "import click; click.Group('orch23', help='Build.', commands=[click.Command('build')])(['--help'])"


def text(graph: Graph) -> Mapping[str, str]:
    """Return the graph as lines with a command, an output and inputs."""
    rows = [
        (stage.text if stage.cat else "\x1f".join(stage.argv), stage.output, *stage.inputs) for stage in graph.stages
    ]
    return {TEXT: "".join("\t".join(row) + "\n" for row in rows)}


BUILD = ("{program}", "-I", "-c", START, "build")
FLOOR = Tool(
    name="floor",
    program="python",
    source=FromTree(),
    describe=text,
    build=BUILD,
    plan=("{program}", "-I", "-c", START, "plan"),
    repair=(*BUILD, "--overwrite-edited"),
    help=("{program}", "-I", "-c", CLICK),
    serial=True,
    says_ran=r"(\d+) built",
    cat=True,
    remark="`bench/floor.py`, a prototype: not a product; its `--help` is one of click",
)
