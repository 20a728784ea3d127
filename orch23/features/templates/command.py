"""Declare the commands `init` and `template`."""

import click

from orch23.cli.declaration import complete_by, declare_command, declare_group, json_option, option, wait_lock_option

complete_template = complete_by("templates.rendering:complete_templates")


@declare_command("init", "templates.actions:create_project")
@click.argument(
    "template",
    required=False,
    shell_complete=complete_template,
    metavar="[TEMPLATE|GIT_URL]",
)
@option("--data", metavar="NAME=VALUE", multiple=True, help="Answer a question of the template. Repeatable.")
@option("--defaults", is_flag=True, help="Use the template's defaults instead of asking.")
@option("--dry-run", is_flag=True, help="Show what would be written.")
@option("--ref", metavar="TAG", help="Use this version instead of the newest.")
@option("--keep", is_flag=True, help="Keep existing files, and write the others.")
@option("--overwrite", is_flag=True, help="Replace existing files.")
@wait_lock_option
def init_command() -> None:
    """Create a project from a template.

    TEMPLATE is a name from `orch23 template list`, or a git URL. Existing files are replaced only with --overwrite.
    """


@declare_group("template")
def template_command() -> None:
    """List, show, compare and update templates.

    `orch23 init` creates a project from a template.
    """


@declare_command("list", "templates.actions:list_templates", template_command)
@json_option
def template_list() -> None:
    """List the templates of orch23."""


@declare_command("show", "templates.actions:show_template", template_command)
@click.argument("name", shell_complete=complete_template, metavar="NAME|GIT_URL")
def template_show() -> None:
    """Show questions, files and next steps."""


@declare_command("diff", "templates.actions:diff_templates", template_command)
@click.argument("name", required=False, shell_complete=complete_by("templates.actions:complete_own"))
@option("--data", metavar="NAME=VALUE", multiple=True, help="Change an answer. Repeatable.")
@option("--ref", metavar="TAG", help="Use this version instead of the newest.")
@option("--exit-code", is_flag=True, help="Exit with 1 if something would change.")
def template_diff() -> None:
    """Show what `template update` would change.

    Writes a unified diff. NAME is a template of this project (default: all of them).
    """


@declare_command("update", "templates.actions:update_templates", template_command)
@click.argument("name", required=False, shell_complete=complete_by("templates.actions:complete_own"))
@option("--data", metavar="NAME=VALUE", multiple=True, help="Change an answer. Repeatable.")
@option("--ref", metavar="TAG", help="Use this version instead of the newest.")
@option("--dry-run", is_flag=True, help="Show what would change.")
@wait_lock_option
def template_update() -> None:
    """Merge a newer version of a template.

    NAME is a template of this project (default: all of them). Your edits stay. Where an edit and the template
    conflict, both are written into the file between conflict markers, and the place is reported.
    """
