"""The declaration of the command `help`."""

import click

from orch23.cli.command import declared


@declared("help")
@click.argument("topic", required=False, metavar="[CODE|COMMAND]")
def command() -> None:
    """Explain a code such as E802, or a command."""
