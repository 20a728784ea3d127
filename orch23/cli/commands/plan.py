"""Declare `plan`."""

from orch23.cli.declaration import (
    budget_option,
    declare_command,
    exit_code_option,
    json_option,
    model_options,
    option,
    selection_options,
    stages_argument,
    variable_options,
)


@declare_command("plan")
@stages_argument
@selection_options
@variable_options
@model_options
@budget_option
@option("-v", "--verbose", is_flag=True, help="Show every reason, not only the first.")
@json_option
@exit_code_option
def command() -> None:
    """Show what a build would do, and why.

    Runs no step, calls no model, writes nothing.
    """
