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
@option("--online", is_flag=True, help="Look up each model at its provider, at no cost.")
@json_option
def command() -> None:
    """Check the machine, the project and its models.

    Checks the interpreter, pytest, the providers, the store and the models of PIPELINE (default: pipeline.yaml, if
    there is one). Tests the sandbox in a temporary directory. Starts nothing else, and writes nothing to the project.
    """
