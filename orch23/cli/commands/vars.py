"""The declaration of the command `vars`."""

from orch23.cli.command import declared
from orch23.cli.flags import option
from orch23.cli.options import json_option, pipeline_argument, variable_options


@declared("vars")
@pipeline_argument
@variable_options
@option("--origin", is_flag=True, help="Say where each value comes from.")
@json_option
def command() -> None:
    """Show the vars of a pipeline with their values."""
