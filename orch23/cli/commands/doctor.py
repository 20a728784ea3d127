"""Declare `doctor`."""

from orch23.cli.declaration import (
    declare_command,
    json_option,
    model_options,
    option,
    pipeline_argument,
    variable_options,
)


@declare_command("doctor")
@pipeline_argument
@variable_options
@model_options
@option("--online", is_flag=True, help="Ask each provider of the pipeline whether it has the model; costs nothing.")
@json_option
def command() -> None:
    """Say what works here, and how to get the rest.

    Looks at interpreter, pytest, providers, store, and at the models of PIPELINE, by default pipeline.yaml if there is
    one. Tries the sandbox, in a folder of its own. Starts nothing else, writes nothing to the project.
    """
