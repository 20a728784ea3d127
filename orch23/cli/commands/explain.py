"""Declare `explain`."""

from orch23.cli.declaration import declare_command, json_option, model_options, stage_argument, variable_options


@declare_command("explain")
@stage_argument
@variable_options
@model_options
@json_option
def command() -> None:
    """Show a stage's key, then and now, and why it changed.

    A foreach stands for all of its items; with --json name one item, as in code@T1.
    """
