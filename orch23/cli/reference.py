"""The page of all commands, as the command line itself describes them."""

from collections.abc import Iterator

import click

from orch23.cli.group import PROGRAM, orch23

_HEAD = """# Commands

What `orch23` can be told. This page is generated from the commands themselves (`make docs`); do not edit it by hand.
What a command was asked for goes to stdout; progress, warnings and complaints go to stderr. Exit codes: exit-codes.md.
"""


def commands_page() -> str:
    """Return the reference of all commands as Markdown: each one's help text."""
    context = click.Context(orch23, info_name=PROGRAM, terminal_width=100, **orch23.context_settings)
    parts = [_HEAD, f"\n```\n{orch23.get_help(context).rstrip()}\n```\n"]
    for title, text in command_helps(context, orch23):
        parts.append(f"\n## {title}\n\n```\n{text.rstrip()}\n```\n")
    return "".join(parts)


def command_helps(context: click.Context, group: click.Group) -> Iterator[tuple[str, str]]:
    """Give every command's full name and its help text, commands of groups after their group."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        below = click.Context(command, info_name=name, parent=context, terminal_width=100)
        yield below.command_path, command.get_help(below)
        if isinstance(command, click.Group):
            yield from command_helps(below, command)
