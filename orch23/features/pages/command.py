"""Declare the commands `report` and `view`."""

import click

from orch23.cli.declaration import declare_command, option


@declare_command("report", "pages.writing:write_report")
@click.argument("run", required=False)
@option("-o", "--out", metavar="FILE", default="report.html", help="Write to this file; - is stdout.")
def report_command() -> None:
    """Write a page about a run.

    One HTML file that loads nothing: result, totals, graph, timeline, and prompts, responses, changes and failed tests
    of each attempt. The default is the newest run. The beginning of a run id is enough.
    """


@declare_command("view", "pages.view.server:view_run")
@click.argument("run", required=False)
@option("--port", type=click.IntRange(0, 65_535), default=0, metavar="N", help="Listen on this port of 127.0.0.1.")
def view_command() -> None:
    """Show a run in the browser while it runs.

    Writes the address of the page of `orch23 report`, which follows the run until you press Ctrl-C. Only this machine
    can open it, with the whole address. The default is the newest run, also one that starts later. The beginning of a
    run id is enough.
    """
