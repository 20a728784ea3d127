"""turborepo: the graph as a workspace with a package for each stage."""

import json
from collections.abc import Mapping

from bench.graph import Graph
from bench.tool import FromNpm, Tool

UP = "../.."


def workspace(graph: Graph) -> Mapping[str, str]:
    """Return the graph as packages that depend on each other; what they read and write lies outside of them."""
    makers = {stage.output: stage.name for stage in graph.stages}
    root = {"name": "bench", "private": True, "packageManager": "npm@11.0.0", "workspaces": ["packages/*"]}
    files = {
        "package.json": _json(root),
        "turbo.json": _json({"tasks": {"build": {"dependsOn": ["^build"]}}}),
        "package-lock.json": _json({"name": "bench", "lockfileVersion": 3, "packages": {"": root}}),
    }
    for stage in graph.stages:
        before = {makers[path]: "*" for path in stage.inputs if path in makers}
        argv = ("sort", "-u", "-o", *(f"{UP}/{path}" for path in (stage.output, *stage.inputs)))
        task = {
            "dependsOn": ["^build"],
            "inputs": ["package.json", *(f"$TURBO_ROOT$/{path}" for path in stage.inputs if path not in makers)],
            "outputs": [f"$TURBO_ROOT$/{stage.output}"],
        }
        package = {"name": stage.name, "version": "1.0.0", "scripts": {"build": " ".join(argv)}, "dependencies": before}
        files[f"packages/{stage.name}/package.json"] = _json(package)
        files[f"packages/{stage.name}/turbo.json"] = _json({"extends": ["//"], "tasks": {"build": task}})
    return files


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"


TURBOREPO = Tool(
    name="turborepo",
    program="turbo",
    source=FromNpm("turbo"),
    describe=workspace,
    build=("{program}", "run", "build", "--concurrency={jobs}", "--output-logs=none"),
    plan=("{program}", "run", "build", "--dry-run=json"),
    environment={"TURBO_TELEMETRY_DISABLED": "1", "DO_NOT_TRACK": "1", "CI": "1"},
)
