"""wireit: the graph as scripts of a package.json."""

import json
from collections.abc import Mapping

from bench.graph import Graph
from bench.tool import FromNpm, Tool


def package(graph: Graph) -> Mapping[str, str]:
    """Return the graph as a package with a script for each stage."""
    makers = {stage.output: stage.name for stage in graph.stages}
    ends = [stage.name for stage in graph.stages if stage.output not in graph.read_outputs]
    scripts = {
        stage.name: {
            "command": " ".join(stage.argv),
            "files": [path for path in stage.inputs if path not in makers],
            "output": [stage.output],
            "dependencies": [makers[path] for path in stage.inputs if path in makers],
        }
        for stage in graph.stages
    }
    described = {"all": {"dependencies": ends}, **scripts}
    body = {"name": "bench", "scripts": dict.fromkeys(described, "wireit"), "wireit": described}
    return {"package.json": json.dumps(body, indent=1) + "\n"}


WIREIT = Tool(
    name="wireit",
    program="wireit",
    source=FromNpm("wireit"),
    describe=package,
    build=("/usr/bin/env", "npm", "run", "--silent", "all"),
    version=("/usr/bin/env", "node", "-p", "require('{program}/../../wireit/package.json').version"),
    help=("/usr/bin/env", "npm", "--help"),
    serial=True,
    remark="called through npm run; it has no dry run; as many at once as it likes",
)
