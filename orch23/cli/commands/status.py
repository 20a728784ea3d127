"""Declare `status`."""

from orch23.cli.declaration import (
    declare_command,
    exit_code_option,
    json_option,
    model_options,
    stages_argument,
    variable_options,
)


@declare_command("status")
@stages_argument
@variable_options
@model_options
@json_option
@exit_code_option
def command() -> None:
    """List stale stages."""
