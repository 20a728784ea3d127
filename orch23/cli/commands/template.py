"""Declare `template list`, `show`, `diff` and `update`."""

import click

from orch23.cli.declaration import declare_command, declare_group, json_option, load_action, option

_OWN = load_action("template", "complete_own")


@declare_group("template")
def command() -> None:
    """List, show, compare and update templates.

    `orch23 init` creates a project from a template.
    """


@declare_command("list", command)
@json_option
def list_templates() -> None:
    """List the templates of orch23."""


@declare_command("show", command)
@click.argument("name", shell_complete=load_action("completing", "shipped_templates"), metavar="NAME|GIT_URL")
def show() -> None:
    """Show questions, files and next steps."""


@declare_command("diff", command)
@click.argument("name", required=False, shell_complete=_OWN)
@option("--data", metavar="NAME=VALUE", multiple=True, help="Change an answer. Repeatable.")
@option("--ref", metavar="TAG", help="Use this version instead of the newest.")
@option("--exit-code", is_flag=True, help="Exit with 1 if something would change.")
def diff() -> None:
    """Show what `template update` would change.

    Writes a unified diff. NAME is a template of this project (default: all of them).
    """


@declare_command("update", command)
@click.argument("name", required=False, shell_complete=_OWN)
@option("--data", metavar="NAME=VALUE", multiple=True, help="Change an answer. Repeatable.")
@option("--ref", metavar="TAG", help="Use this version instead of the newest.")
@option("--dry-run", is_flag=True, help="Show what would change.")
def update() -> None:
    """Merge a newer version of a template.

    NAME is a template of this project (default: all of them). Your edits stay. Where an edit and the template
    conflict, both are written into the file between conflict markers, and the place is reported.
    """
