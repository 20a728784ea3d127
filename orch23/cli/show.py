"""The command `show`."""

import click

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.options import Wanted, hands_wanted, json_option, model_options, stage_argument, variable_options
from orch23.model.errors import ExitCode
from orch23.report.document import document

_VIEWS = ("prompt", "response", "diff", "cost", "key")


@click.command()
@stage_argument
@variable_options
@option("--prompt", "view", flag_value="prompt", help="What the model was asked.")
@option("--response", "view", flag_value="response", help="What it answered.")
@option("--diff", "view", flag_value="diff", help="What the last result changed in each output.")
@option("--cost", "view", flag_value="cost", help="Calls, tokens and money, by run.")
@option("--key", "view", flag_value="key", help="The key of the last result, with all that is in it.")
@option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of this attempt; by default of the last.")
@option("--run", metavar="RUN", help="Of this run; by default of the newest that has it.")
@model_options
@json_option
@click.pass_obj
@hands_wanted
def show(
    console: Console,
    *,
    wanted: Wanted,
    view: str | None,
    attempt: int | None,
    run: str | None,
    as_json: bool,
) -> int:
    """Show what an attempt was asked, answered or printed.

    Without an option: all that is kept of the attempt.
    """
    from orch23.cli.opening import open_one_stage  # noqa: PLC0415 - heavy
    from orch23.cli.showing import Asked, shown  # noqa: PLC0415 - heavy

    project, stage = open_one_stage(console, wanted)
    told = shown(project, Asked(stage=stage, view=view or "all", attempt=attempt, run=run))
    console.answer(document({"orch23_show": 1, **told.facts, "text": told.text}) if as_json else told.text)
    return ExitCode.OK
