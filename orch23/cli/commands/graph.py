"""Declare `graph`."""

import click

from orch23.cli.declaration import declare_command, option, pipeline_argument, variable_options

_FORMATS = ("text", "mermaid", "dot", "json")


@declare_command("graph")
@pipeline_argument
@variable_options
@option("--format", "form", type=click.Choice(_FORMATS), default="text", help="Choose the output format.")
@option("--json", "as_json", is_flag=True, help="Same as --format json.")
def command() -> None:
    """Show stages and their dependencies.

    Items of a foreach are shown as far as they are known.
    """
