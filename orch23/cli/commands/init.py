"""Declare `init`."""

import click

from orch23.cli.declaration import declare_command, load_action, option


@declare_command("init")
@click.argument(
    "template",
    required=False,
    shell_complete=load_action("completing", "shipped_templates"),
    metavar="[TEMPLATE|GIT_URL]",
)
@option("--data", metavar="NAME=VALUE", multiple=True, help="Answer a question of the template. Repeatable.")
@option("--defaults", is_flag=True, help="Ask nothing: what --data leaves open gets the template's default.")
@option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@option("--ref", metavar="TAG", help="This version of the template, not its newest.")
@option("--keep", is_flag=True, help="Leave files that are in the way as they are, and write the rest.")
@option("--overwrite", is_flag=True, help="Replace files that are in the way.")
def command() -> None:
    """Start from a template: a pipeline that runs.

    TEMPLATE is one of `orch23 template list`, or a git URL. Files that are there are never replaced unasked.
    """
