"""Declare `vars`."""

from orch23.cli.declaration import declare_command, json_option, option, pipeline_argument, variable_options


@declare_command("vars")
@pipeline_argument
@variable_options
@option("--origin", is_flag=True, help="Show where each value comes from.")
@json_option
def command() -> None:
    """Show the variables of a pipeline."""
