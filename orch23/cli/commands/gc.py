"""Declare `gc`."""

from orch23.cli.declaration import declare_command, json_option, option


@declare_command("gc")
@option("-n", "--dry-run", is_flag=True, help="Show what would be removed.")
@option(
    "--keep",
    metavar="SIZE|AGE",
    multiple=True,
    help="Limit size (5GB), age (30d) or both. Default: 10GB.",
)
@option(
    "--forget-paid-answers",
    is_flag=True,
    help="Also remove recorded responses that no result needs.",
)
@json_option
def command() -> None:
    """Remove unneeded data from the store.

    Removes the least recently used results first, until .orch23 is within the limits of --keep. Never removes data
    that a lock file or the current plan of a pipeline needs, recorded responses, or edits that were overwritten. A
    build makes removed results again if it needs them.
    """
