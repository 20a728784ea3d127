"""Declare `validate`."""

import click

from orch23.cli.declaration import declare_command, model_options, option, pipeline_argument, variable_options

_FORMATS = ("full", "concise", "json", "github", "sarif")


@declare_command("validate")
@pipeline_argument
@variable_options
@model_options
@option("--output-format", "style", type=click.Choice(_FORMATS), default="full", help="How complaints are written.")
def command() -> None:
    """Say everything that is wrong with a pipeline.

    Complaints for people go to stderr; json, github and sarif go to stdout.
    """
