"""Generate the reference pages of commands, events, checks and expressions."""

import inspect as python
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

import click
from msgspec import NODEFAULT, UNSET, Struct, inspect, to_builtins

from orch23.checks.registry import CHECKS
from orch23.cli.group import PROGRAM_NAME, orch23
from orch23.cli.pages import diagnostic_codes
from orch23.model.event import EVENT_KINDS
from scripts.filter_reference import BLOCK_FILTERS, FILTERS, FUNCTIONS

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
    shown: set[str] = set()
    while left := [name for name in objects if name not in shown]:  # an object may have others
        for name in left:
            shown.add(name)
            parts += [
                f"\n## {name}\n\n{python.cleandoc(objects[name].__doc__ or '')}\n",
                *_table(objects[name], objects),
            ]
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


_EXPRESSIONS_HEAD: Final = r"""# Expressions

```yaml
vars: {app: shop, layers: [model, view]}
stages:
  test:
    inputs: ["${{ vars.app }}/**/*.py"]                 # in a longer text
    outputs: ["${{ vars.layers | under(vars.app) }}"]   # a list: its values become values of `outputs`
    if: ${{ vars.app != 'none' }}
    shell: [echo, "$${{ not an expression }}"]          # `$${{` writes `${{`
```

An expression is one expression of [Jinja](https://jinja.palletsprojects.com/en/stable/templates/#expressions). It may
be the value of any key that does not say "No expression" in the [pipeline reference](pipeline-reference.md). It is
evaluated when the pipeline is loaded, so it can neither read a file nor depend on a result, except on the list of a
`foreach`.

| name | value |
|---|---|
| `vars` | the variables of the pipeline, with `--set` and `--vars`. In `vars`, an expression may use other vars |
| `item`, or the name of `foreach.as` | the item, in the stage with the `foreach` |

- A value that is only an expression has the value's type. In a longer text, the value must be a text, number or
  boolean.
- Undefined names and members are errors (E840), with the nearest name. Use `default` where one may be missing.
- Operators: `+ - * / // %`, `**` of small numbers, `~` joins texts, `== != < <= > >=`, `and or not`, `in`, `A if B else
  C`.
- Tests after `is` are those of Jinja: `defined`, `odd`, `none`, `string`, `mapping`, …
- Limits: 4,096 characters, a depth of 64, a result of 100,000 values and 4 MiB. `*` and `%` take numbers only. The
  methods `format`, `format_map`, `center`, `ljust`, `rjust`, `zfill` and `expandtabs` are not available.

This page is generated from the code (`make docs`); do not edit it by hand.

## Filters

They work in expressions and in [prompts](prompts.md). No other filter of Jinja is available: `random`, for example,
would change a key with each build. Methods of texts and mappings work too, as in `vars.app.startswith('s')`.

| filter | meaning | example | result |
|---|---|---|---|
"""


def expressions_page() -> str:
    """Return the reference of expressions as Markdown, with the results of the examples."""
    parts = [_EXPRESSIONS_HEAD, *_examples(FILTERS)]
    parts.append("\n## Functions\n\n| function | meaning | example | result |\n|---|---|---|---|\n")
    parts += _examples(FUNCTIONS)
    parts.append("\n## Filters of prompts and templates\n\n| filter | meaning |\n|---|---|\n")
    parts += [f"| `{name}` | {_cell(meaning)} |\n" for name, meaning in BLOCK_FILTERS.items()]
    parts.append("\n[Prompts](prompts.md#blocks) has examples.\n")
    return "".join(parts)


def _examples(table: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    from orch23.language.evaluation import evaluate  # noqa: PLC0415 - jinja2

    for name, (meaning, example) in table.items():
        result = json.dumps(evaluate(example, {}), ensure_ascii=False)
        row = (f"`{name}`", meaning, f"`{example}`", f"`{result}`")
        yield f"| {' | '.join(map(_cell, row))} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_CHECKS_HEAD: Final = """# Checks

```yaml
stages:
  plan:
    outputs: [build/plan.json]
    llm: {provider: anthropic, model: claude-opus-4-8, prompt: prompts/plan.md.j2, returns: json}
    verify:
      inputs: [specs/plan.schema.json]
      steps:
        - check: json_schema
          with: {schema: specs/plan.schema.json}
```

A check of `verify` looks at the outputs of a stage and reports every error. It runs in orch23, without a program, and
reads only the outputs, the declared inputs and its options. An unknown or wrong option is an error (E315). An output
that a check needs and that is missing is E310. [Plugins](plugins.md) can add checks. This page is generated from the
checks (`make docs`); do not edit it by hand.
"""


def checks_page() -> str:
    """Return the reference of all checks as Markdown."""
    parts = [_CHECKS_HEAD]
    for name, check in CHECKS.items():
        parts.append(
            f"\n## `{name}`\n\n{check.summary}\n\n```yaml\nverify:\n{textwrap.indent(check.example, '  ')}```\n"
        )
        parts.append("\n| option | meaning |\n|---|---|\n")
        parts += [f"| `{option}` | {_cell(meaning)} |\n" for option, meaning in check.options.items()]
        codes = "".join(f"- {code}: {diagnostic_codes()[code][0]}\n" for code in check.codes)
        parts.append(f"\nErrors of its own:\n{codes}")
    return "".join(parts)
