"""From a declaration to its action: `commands` loads nothing that does a command's work, `actions` all of it."""

from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from typing import Any, TypeAlias

import click
from msgspec import Struct

from orch23.cli.console import Console
from orch23.model.errors import ExitCode

Declaration: TypeAlias = Callable[[], None]
"""A function that only carries options, arguments and the help text of a command."""


class Wanted(Struct, frozen=True, kw_only=True):
    """What a command line names: stages, how they are meant, values of vars, who is asked."""

    arguments: tuple[str, ...] = ()
    only: bool = False
    until: bool = False
    downstream: bool = False
    sets: tuple[str, ...] = ()
    vars_file: str | None = None
    provider: str | None = None
    model: str | None = None


def action(module: str, name: str = "run") -> Callable[..., Any]:
    """Return a function that does what one of `actions` does; its module is loaded when it is called."""

    def act(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(f"orch23.cli.actions.{module}"), name)(*arguments, **named)

    return act


def declared(name: str, family: click.Group | None = None) -> Callable[[Declaration], click.Command]:
    """Make a command of its declaration.

    Its action is `run` in the module of `actions` that is called like the declaration's; in a family it is the function
    that is called like the declaration. It is given the console and all parameters by name, those of `Wanted` as one.
    """

    def declare(declaration: Declaration) -> click.Command:
        do = action(declaration.__module__.rpartition(".")[2], "run" if family is None else declaration.__name__)

        def act(console: Console, /, **given: Any) -> Any:
            named = {field: given.pop(field) for field in Wanted.__struct_fields__ if field in given}
            return do(console, **({"wanted": Wanted(**named)} if named else {}), **given)

        make = click.command if family is None else family.command
        return make(name)(update_wrapper(click.pass_obj(act), declaration))

    return declare


def declared_family(name: str) -> Callable[[Declaration], click.Group]:
    """Make a group of its declaration; called without a command of it, it shows its help."""

    def declare(declaration: Declaration) -> click.Group:
        def show(context: click.Context) -> int:
            if context.invoked_subcommand is None:
                context.obj.tell(f"{context.get_help()}\n")
                return ExitCode.USAGE
            return ExitCode.OK

        return click.group(name, invoke_without_command=True)(update_wrapper(click.pass_context(show), declaration))

    return declare
