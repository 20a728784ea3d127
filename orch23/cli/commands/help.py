"""Declare `help`."""

import click

from orch23.cli.declaration import declare_command


@declare_command("help")
@click.argument("topic", required=False, metavar="[CODE|COMMAND]")
def command() -> None:
    """Explain a diagnostic code or a command."""
