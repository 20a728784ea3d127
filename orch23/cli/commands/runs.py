"""The declaration of the command `runs`."""

from orch23.cli.command import declared
from orch23.cli.options import json_option


@declared("runs")
@json_option
def command() -> None:
    """List the runs of this project, the newest first."""
