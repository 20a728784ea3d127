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
@option("--defaults", is_flag=True, help="Use the template's defaults instead of asking.")
@option("--dry-run", is_flag=True, help="Show what would be written.")
@option("--ref", metavar="TAG", help="Use this version instead of the newest.")
@option("--keep", is_flag=True, help="Keep existing files, and write the others.")
@option("--overwrite", is_flag=True, help="Replace existing files.")
def command() -> None:
    """Create a project from a template.

    TEMPLATE is a name from `orch23 template list`, or a git URL. Existing files are replaced only with --overwrite.
    """
