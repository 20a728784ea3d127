"""The declaration of the command `plan`."""

from orch23.cli.command import declared
from orch23.cli.flags import option
from orch23.cli.options import (
    budget_option,
    exit_code_option,
    json_option,
    model_options,
    selection_options,
    stages_argument,
    variable_options,
)


@declared("plan")
@stages_argument
@selection_options
@variable_options
@model_options
@budget_option
@option("-v", "--verbose", is_flag=True, help="Every reason, not only the first.")
@json_option
@exit_code_option
def command() -> None:
    """Say what a build would do, and why.

    Runs no step, calls no model, writes nothing.
    """
