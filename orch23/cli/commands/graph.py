"""Declare `graph`."""

import click

from orch23.cli.declaration import declare_command, option, pipeline_argument, variable_options

_FORMATS = ("text", "mermaid", "dot", "json")


@declare_command("graph")
@pipeline_argument
@variable_options
@option("--format", "form", type=click.Choice(_FORMATS), default="text", help="How it is written.")
@option("--json", "as_json", is_flag=True, help="As --format json.")
def command() -> None:
    """Show the stages in order, and what each needs.

    Items of a foreach are shown as far as they are known.
    """
