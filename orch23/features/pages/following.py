"""Run `view`: serve the page of a run, which follows the run."""

import click

from orch23.cli.console import Console
from orch23.cli.opening import project_root
from orch23.features.pages.view.followed_page import FollowedPage
from orch23.features.pages.view.server import serve_page


def view_run(console: Console, *, run: str | None, port: int) -> None:
    """Serve the page of a run until the process is interrupted."""
    page = FollowedPage(console, project_root(console), run)

    def ready(address: str) -> None:
        console.write_out(f"{address}\n")
        console.write_err("open this address in a browser of this machine; Ctrl-C ends it\n")

    try:
        serve_page(page, port, ready)
    except KeyboardInterrupt:
        return
    except OSError as error:
        message = f"cannot listen on port {port}: {error.strerror}"
        raise click.UsageError(message) from error
