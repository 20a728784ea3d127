"""The declarations of the commands `template list`, `show`, `diff` and `update`."""

import click

from orch23.cli.command import action, declared, declared_family
from orch23.cli.flags import option
from orch23.cli.options import json_option

_OWN = action("template", "complete_own")


@declared_family("template")
def command() -> None:
    """Look at templates, and bring a project up to date with one.

    `orch23 init` starts from a template.
    """


@declared("list", command)
@json_option
def list_templates() -> None:
    """List the templates that come with orch23."""


@declared("show", command)
@click.argument("name", shell_complete=action("completing", "shipped_templates"), metavar="NAME|GIT_URL")
def show() -> None:
    """Show what a template asks, what it brings, and what comes next."""


@declared("diff", command)
@click.argument("name", required=False, shell_complete=_OWN)
@option("--data", metavar="NAME=VALUE", multiple=True, help="Answer a question anew. Repeatable.")
@option("--ref", metavar="TAG", help="This version of the template, not its newest.")
@option("--exit-code", is_flag=True, help="End with 1 if something would change.")
def diff() -> None:
    """Show what `template update` would change, as a unified diff.

    NAME is a template of this project; without it, all of them.
    """


@declared("update", command)
@click.argument("name", required=False, shell_complete=_OWN)
@option("--data", metavar="NAME=VALUE", multiple=True, help="Answer a question anew. Repeatable.")
@option("--ref", metavar="TAG", help="This version of the template, not its newest.")
@option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
def update() -> None:
    """Merge a newer version of a template; your edits stay.

    NAME is a template of this project; without it, all of them. Where an edit and the template disagree, both are
    written into the file, between marks, and the place is told.
    """
