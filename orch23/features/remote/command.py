"""Declare the command `worker`."""

import click

from orch23.cli.declaration import declare_command, option, unsandboxed_option


@declare_command("worker", "remote.serving:serve_worker")
@option("--scheduler", "address", metavar="ADDRESS", help="Connect to this dask scheduler.")
@option("--once", metavar="DIGEST", help="Run one action in this folder, as a server's command.")
@option("--cache", "cache_url", metavar="URL", default="", help="Use this shared cache (default: that of each build).")
@option("--slots", type=click.IntRange(min=1), metavar="N", help="Run at most N actions at once (default: cores).")
@option(
    "--resource",
    "resources",
    metavar="NAME=AMOUNT",
    multiple=True,
    help="Offer this to steps of pools: gpu=1, memory=16GiB. Repeatable.",
)
@option("--folder", metavar="DIR", type=click.Path(), help="Keep temporary files below DIR (default: TMPDIR).")
@unsandboxed_option
def worker_command() -> None:
    """Run steps of builds on other machines.

    Serves `orch23 build --executor dask` until Ctrl-C, SIGTERM, or the end of the scheduler. Everyone who can connect
    to the scheduler can run programs as this user: a scheduler that is not on this machine needs TLS.

    With --once it is the command that servers of `orch23 build --executor reapi` run.
    """
