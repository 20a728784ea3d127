"""The declaration of the command `status`."""

from orch23.cli.command import declared
from orch23.cli.options import (
    exit_code_option,
    json_option,
    model_options,
    stages_argument,
    variable_options,
)


@declared("status")
@stages_argument
@variable_options
@model_options
@json_option
@exit_code_option
def command() -> None:
    """Name the stages that are not up to date."""
