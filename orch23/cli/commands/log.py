"""Declare `log`."""

import click

from orch23.cli.declaration import declare_command, option


@declare_command("log")
@click.argument("run", required=False)
@option("--json", "as_json", is_flag=True, help="The journal's lines as they are: JSON, one event a line.")
@option("--state", "as_state", is_flag=True, help="Where the run stands, or ended, with the fields of state.json.")
def command() -> None:
    """Show what happened in a run.

    By default in the newest one. A run may be named by the beginning of its id.
    """
