"""Declare `validate`."""

import click

from orch23.cli.declaration import declare_command, model_options, option, pipeline_argument, variable_options

_FORMATS = ("full", "concise", "json", "github", "sarif")


@declare_command("validate")
@pipeline_argument
@variable_options
@model_options
@option("--output-format", "style", type=click.Choice(_FORMATS), default="full", help="Choose how errors are written.")
def command() -> None:
    """Report all errors of a pipeline.

    The formats full and concise go to stderr; json, github and sarif go to stdout.
    """
