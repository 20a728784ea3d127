"""Declare `template list`, `show`, `diff` and `update`."""

import click

from orch23.cli.declaration import declare_command, declare_group, json_option, load_action, option

_OWN = load_action("template", "complete_own")


@declare_group("template")
def command() -> None:
    """Look at templates, and bring a project up to date with one.

    `orch23 init` starts from a template.
    """


@declare_command("list", command)
@json_option
def list_templates() -> None:
    """List the templates that come with orch23."""


@declare_command("show", command)
@click.argument("name", shell_complete=load_action("completing", "shipped_templates"), metavar="NAME|GIT_URL")
def show() -> None:
    """Show what a template asks, what it brings, and what comes next."""


@declare_command("diff", command)
@click.argument("name", required=False, shell_complete=_OWN)
@option("--data", metavar="NAME=VALUE", multiple=True, help="Answer a question anew. Repeatable.")
@option("--ref", metavar="TAG", help="This version of the template, not its newest.")
@option("--exit-code", is_flag=True, help="End with 1 if something would change.")
def diff() -> None:
    """Show what `template update` would change, as a unified diff.

    NAME is a template of this project; without it, all of them.
    """


@declare_command("update", command)
@click.argument("name", required=False, shell_complete=_OWN)
@option("--data", metavar="NAME=VALUE", multiple=True, help="Answer a question anew. Repeatable.")
@option("--ref", metavar="TAG", help="This version of the template, not its newest.")
@option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
def update() -> None:
    """Merge a newer version of a template; your edits stay.

    NAME is a template of this project; without it, all of them. Where an edit and the template disagree, both are
    written into the file, between marks, and the place is told.
    """
