"""Declare `explain`."""

from orch23.cli.declaration import declare_command, json_option, model_options, stage_argument, variable_options


@declare_command("explain")
@stage_argument
@variable_options
@model_options
@json_option
def command() -> None:
    """Show why a stage's key changed.

    Compares the key with that of the last result. If STAGE is a foreach, shows all of its items; --json needs one
    item, such as code@T1.
    """
