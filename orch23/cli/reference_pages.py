"""Generate the reference pages of commands and events."""

import inspect as python
import json
from collections.abc import Iterator
from typing import Final

import click
from msgspec import NODEFAULT, UNSET, Struct, inspect, to_builtins

from orch23.cli.group import PROGRAM_NAME, orch23
from orch23.model.event import EVENT_KINDS

_COMMANDS_HEAD = r"""# Commands

The commands of `orch23`, generated from the code (`make docs`); do not edit this page by hand. Results go to stdout;
progress, warnings and errors go to stderr. Exit codes: exit-codes.md.

## Shell completion

Completes commands, options, files, stages and templates. Add the line for your shell to its file:

| shell | file | line |
|---|---|---|
| bash | `~/.bashrc` | `eval "$(_ORCH23_COMPLETE=bash_source orch23)"` |
| zsh | `~/.zshrc`, after `compinit` | `eval "$(_ORCH23_COMPLETE=zsh_source orch23)"` |
| fish | `~/.config/fish/completions/orch23.fish` | `_ORCH23_COMPLETE=fish_source orch23 \| source` |

## orch23
"""


def commands_page() -> str:
    """Return the help texts of all commands as Markdown."""
    # A fixed width: the page must not depend on the terminal in which it is generated.
    context = click.Context(orch23, info_name=PROGRAM_NAME, terminal_width=100, **orch23.context_settings)
    parts = [_COMMANDS_HEAD, f"\n```\n{orch23.get_help(context).rstrip()}\n```\n"]
    parts += [f"\n## {title}\n\n```\n{text.rstrip()}\n```\n" for title, text in command_helps(context, orch23)]
    return "".join(parts)


def command_helps(context: click.Context, group: click.Group) -> Iterator[tuple[str, str]]:
    """Give the full name and the help text of every command; commands of a group after the group."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        below = click.Context(command, info_name=name, parent=context, terminal_width=100)
        yield below.command_path, command.get_help(below)
        if isinstance(command, click.Group):
            yield from command_helps(below, command)


_EVENTS_HEAD: Final = """# Events

A run writes its events to `logs/RUN.jsonl`, one event a line; `orch23 build --output jsonl` writes them to stdout.
This page is generated from `orch23/model/event.py` (`make docs`); do not edit it by hand.

Each line is a JSON object:

| key | value | meaning |
|---|---|---|
| `v` | whole number | The version of the format, 1. |
| `seq` | whole number | The number of the line, from 1. |
| `ts` | text | The time, UTC, to the millisecond. |
| `level` | `debug`, `info`, `warning` or `error` | How important it is. |
| `type` | text | The type of the event, one of those below. |
| `role` | text | The stage; `orch23` for an event of the whole run. |
| `message` | text | The event in words, for users. The words may change. |
| `data` | object | The fields of the event, listed below. |
| `sum` | text | The beginning of the SHA-256 of the line up to `,"sum"`. |

Within a version, types and fields may be added: ignore those that you do not know. Secrets are redacted before an
event is written. If a snapshot shows that nothing changed, a run has only two events, `run_started` and
`run_finished`.
"""


def events_page() -> str:
    """Return the reference of all events as Markdown."""
    parts, objects = [_EVENTS_HEAD], dict[str, type[Struct]]()
    for kind, form in EVENT_KINDS.items():
        parts += [f"\n## `{kind}`\n\n{python.cleandoc(form.__doc__ or '')}\n", *_table(form, objects)]
    for name, part in objects.items():
        parts += [f"\n## {name}\n\n{python.cleandoc(part.__doc__ or '')}\n", *_table(part, {})]
    return "".join(parts)


def _table(form: type[Struct], objects: dict[str, type[Struct]]) -> Iterator[str]:
    """Yield the rows of a type's fields, and add the types of fields that are objects to `objects`."""
    described = inspect.type_info(form)
    assert isinstance(described, inspect.StructType)
    if described.fields:
        yield "\n| field | value | if missing |\n|---|---|---|\n"
    for field in described.fields:
        yield f"| `{field.encode_name}` | {_value(field.type, objects)} | {_default(field)} |\n"


def _default(field: inspect.Field) -> str:
    if field.default_factory is not NODEFAULT:
        return f"`{json.dumps(to_builtins(field.default_factory()))}`"
    return "" if field.default in (NODEFAULT, UNSET) else f"`{json.dumps(to_builtins(field.default))}`"


def _value(kind: inspect.Type, objects: dict[str, type[Struct]]) -> str:
    match kind:
        case inspect.EnumType(cls=cls):
            return " or ".join(f"`{one.value}`" for one in cls if getattr(one, "is_reported", True))
        case inspect.LiteralType(values=values):
            return " or ".join(f"`{one}`" if one else '`""`' for one in values)
        case inspect.UnionType(types=types):
            return " or ".join(_value(one, objects) for one in types)
        case inspect.VarTupleType(item_type=item):
            return f"list of {_value(item, objects)}"
        case inspect.DictType(value_type=value):
            return f"object, each value {_value(value, objects)}"
        case inspect.StructType(cls=cls):
            objects[cls.__name__] = cls
            return f"[{cls.__name__}](#{cls.__name__.lower()})"
        case _:
            return _WORDS[type(kind)]


_WORDS: Final = {
    inspect.StrType: "text",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.BoolType: "`true` or `false`",
    inspect.NoneType: "`null`",
}
