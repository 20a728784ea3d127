"""The action of `explain`."""

import click

from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.explanations import explanations
from orch23.cli.opening import open_one_stage
from orch23.cli.wiring import open_reading
from orch23.model.errors import ExitCode
from orch23.report.explain_json import explain_json
from orch23.report.explain_text import explain_text


def run(
    console: Console,
    *,
    wanted: Wanted,
    as_json: bool,
) -> int:
    """Show a stage's key, then and now, and why it changed."""
    project, name = open_one_stage(console, wanted)
    found = explanations(project, open_reading(project), name)
    if as_json:
        if len(found) > 1:
            items = ", ".join(told.line.stage for told in found)
            message = f"with --json one item must be named: {items}"
            raise click.UsageError(message)
        console.answer(explain_json(found[0]))
    else:
        console.answer("\n".join(explain_text(told, console.out_style) for told in found))
    return ExitCode.OK
