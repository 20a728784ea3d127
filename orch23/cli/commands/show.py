"""Declare `show`."""

import click

from orch23.cli.declaration import declare_command, json_option, model_options, option, stage_argument, variable_options


@declare_command("show")
@stage_argument
@variable_options
@option("--prompt", "view", flag_value="prompt", help="Show the prompt.")
@option("--response", "view", flag_value="response", help="Show the response of the model.")
@option("--diff", "view", flag_value="diff", help="Show the changes to each output.")
@option("--cost", "view", flag_value="cost", help="Show calls, tokens and money, by run.")
@option("--key", "view", flag_value="key", help="Show the last result's key and its parts.")
@option("--attempt", type=click.IntRange(min=1), metavar="N", help="Show this attempt instead of the last.")
@option("--run", metavar="RUN", help="Show this run instead of the newest.")
@model_options
@json_option
def command() -> None:
    """Show prompts, responses and outputs of a stage.

    Without an option, shows everything that is kept of the last attempt.
    """
