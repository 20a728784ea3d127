"""Declare `runs`."""

from orch23.cli.declaration import declare_command, json_option


@declare_command("runs")
@json_option
def command() -> None:
    """List runs, newest first."""
