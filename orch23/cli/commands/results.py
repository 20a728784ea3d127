"""Declare the command that keeps edited outputs."""

from orch23.cli.declaration import (
    declare_command,
    model_options,
    stages_argument,
    unsandboxed_option,
    variable_options,
)


@declare_command("accept", "build.accept_edits")
@stages_argument
@variable_options
@model_options
@unsandboxed_option
def accept_command() -> None:
    """Accept outputs that you edited.

    Verifies the outputs, then records them as results of the stages.
    """
