"""Declare `gc`."""

from orch23.cli.declaration import declare_command, json_option, option


@declare_command("gc")
@option("-n", "--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@option(
    "--keep",
    metavar="SIZE|AGE",
    multiple=True,
    help="Keep so much (5GB), or what was used since (30d), or both. Default: 10GB.",
)
@option(
    "--forget-paid-answers",
    is_flag=True,
    help="Also remove recorded answers that no result needs: to ask again costs again.",
)
@json_option
def command() -> None:
    """Remove from the store what no pipeline needs now.

    The least recently used results go first, until .orch23 is no larger than what is to be kept. What lock files or
    today's plans need stays, whatever its size; so do recorded answers, and bytes of edits that were replaced. A
    result that is gone is made again if a stage comes back to it.
    """
