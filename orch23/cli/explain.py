"""The command `explain`."""

import click

from orch23.cli.console import Console
from orch23.cli.options import Wanted, hands_wanted, json_option, model_options, stage_argument, variable_options
from orch23.model.errors import ExitCode


@click.command()
@stage_argument
@variable_options
@model_options
@json_option
@click.pass_obj
@hands_wanted
def explain(
    console: Console,
    *,
    wanted: Wanted,
    as_json: bool,
) -> int:
    """Show a stage's key, then and now, and why it changed.

    A foreach stands for all of its items; with --json name one item, as in code@T1.
    """
    from orch23.cli.explanations import explanations  # noqa: PLC0415 - heavy
    from orch23.cli.opening import open_one_stage  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import open_reading  # noqa: PLC0415 - heavy
    from orch23.report.explain_json import explain_json  # noqa: PLC0415 - heavy
    from orch23.report.explain_text import explain_text  # noqa: PLC0415 - heavy

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
