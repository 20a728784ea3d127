"""Run `vars`: show the variables of a pipeline."""

import json
from collections.abc import Mapping

from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import open_for_command
from orch23.model.digest import Json
from orch23.report.diagnostics import visible
from orch23.report.values import json_document

VARS_VERSION = 1


def run(
    console: Console,
    *,
    args: PipelineArguments,
    origin: bool,
    as_json: bool,
) -> None:
    """Show the variables of a pipeline."""
    project, _ = open_for_command(console, args, most_stages=0)
    values, origins = project.pipeline.vars, project.loaded.origins
    if as_json:
        rows: dict[str, Json] = {
            name: {"value": value, "origin": origins.get(name, "")} for name, value in values.items()
        }
        console.write_out(json_document({"orch23_vars": VARS_VERSION, "vars": rows}))
    else:
        console.write_out(_text(values, origins if origin else {}))


def _text(values: Mapping[str, Json], origins: Mapping[str, str]) -> str:
    lines = []
    for name, value in values.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        where = f"   ({visible(origins[name])})" if name in origins else ""
        lines.append(f"{visible(name)}={visible(shown)}{where}\n")
    return "".join(lines)
