"""Declare `log`."""

import click

from orch23.cli.declaration import declare_command, option


@declare_command("log")
@click.argument("run", required=False)
@option("--json", "as_json", is_flag=True, help="Write the journal, one JSON event a line.")
@option("--state", "as_state", is_flag=True, help="Write the run's state, as in state.json.")
def command() -> None:
    """Show the events of a run.

    The default is the newest run. The beginning of a run id is enough.
    """
