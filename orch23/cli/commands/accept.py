"""Declare `accept`."""

from orch23.cli.declaration import declare_command, model_options, stage_argument, unsandboxed_option, variable_options


@declare_command("accept")
@stage_argument
@variable_options
@model_options
@unsandboxed_option
def command() -> None:
    """Accept outputs that you edited.

    Verifies the outputs, then records them as a result of the stage.
    """
