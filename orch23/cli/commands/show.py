"""Declare `show`."""

import click

from orch23.cli.declaration import declare_command, json_option, model_options, option, stage_argument, variable_options


@declare_command("show")
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
def command() -> None:
    """Show what an attempt was asked, answered or printed.

    Without an option: all that is kept of the attempt.
    """
