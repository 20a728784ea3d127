"""Declare commands: their options, arguments, environment variables and actions."""

import os
import shlex
from collections.abc import Callable
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

import click
from msgspec import Struct

from orch23.cli.console import Console
from orch23.model.errors import ExitCode

Declaration: TypeAlias = Callable[[], None]
"""A function that only carries options, arguments and the help text of a command."""


class PipelineArguments(Struct, frozen=True, kw_only=True):
    """What a command line names: stages, how they are meant, values of vars, who is asked."""

    arguments: tuple[str, ...] = ()
    only: bool = False
    until: bool = False
    downstream: bool = False
    sets: tuple[str, ...] = ()
    vars_file: str | None = None
    provider: str | None = None
    model: str | None = None


def load_action(module: str, name: str = "run") -> Callable[..., Any]:
    """Return a function that does what one of `actions` does; its module is loaded when it is called."""

    def act(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(f"orch23.cli.actions.{module}"), name)(*arguments, **named)

    return act


def declare_command(name: str, family: click.Group | None = None) -> Callable[[Declaration], click.Command]:
    """Make a command of its declaration.

    Its action is `run` in the module of `actions` that is called like the declaration's; in a family it is the function
    that is called like the declaration. It is given the console and all parameters by name, those of `Wanted` as one.
    """

    def declare(declaration: Declaration) -> click.Command:
        do = load_action(declaration.__module__.rpartition(".")[2], "run" if family is None else declaration.__name__)

        def act(console: Console, /, **given: Any) -> Any:
            named = {field: given.pop(field) for field in PipelineArguments.__struct_fields__ if field in given}
            return do(console, **({"args": PipelineArguments(**named)} if named else {}), **given)

        make = click.command if family is None else family.command
        return make(name)(update_wrapper(click.pass_obj(act), declaration))

    return declare


def declare_group(name: str) -> Callable[[Declaration], click.Group]:
    """Make a group of its declaration; called without a command of it, it shows its help."""

    def declare(declaration: Declaration) -> click.Group:
        def show(context: click.Context) -> int:
            if context.invoked_subcommand is None:
                context.obj.write_err(f"{context.get_help()}\n")
                return ExitCode.USAGE
            return ExitCode.OK

        return click.group(name, invoke_without_command=True)(update_wrapper(click.pass_context(show), declaration))

    return declare


class EnvironmentOption(click.Option):
    """An option whose variable is named after its flag: `--set` of `orch23 build` is ORCH23_BUILD_SET.

    One without a long flag takes the name of its parameter. A repeatable one takes several values, quoted as in a
    shell.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the text of the option's variable; None where it is not set, or empty."""
        named = click.Parameter.resolve_envvar_value(self, ctx)
        variable = self.variable(ctx)
        return named if named is not None or variable is None else os.environ.get(variable) or None

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return what the option's variable sets: values of a repeatable one, and nothing where a flag is off."""
        if not self.multiple:
            value = super().value_from_envvar(ctx)
            return None if value is False and not self.is_bool_flag else value
        text = self.resolve_envvar_value(ctx)
        try:
            return None if text is None else shlex.split(text)
        except ValueError as error:
            message = f"{self.variable(ctx)} is not quoted as in a shell: {error}"
            raise click.BadParameter(message, ctx=ctx, param=self) from error

    def variable(self, ctx: click.Context) -> str | None:
        """Return the name of the option's variable; None where the program has none."""
        if ctx.auto_envvar_prefix is None:
            return None
        flag = next((one.removeprefix("--") for one in self.opts if one.startswith("--")), self.name or "")
        return f"{ctx.auto_envvar_prefix}_{flag.replace('-', '_').upper()}"


option = partial(click.option, cls=EnvironmentOption)


_Function = TypeVar("_Function", bound=Callable[..., Any])

complete_stage = load_action("completing", "stages")
"""Complete names of stages, and pipeline files."""


class PluginChoice(click.Choice[str]):
    """One of some names, or one that a plugin of the pipeline may have: that is known once the pipeline is read."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name as it is."""
        del param, ctx
        return value


def pipeline_argument(function: _Function) -> _Function:
    """Take `[PIPELINE]`."""
    return click.argument("arguments", nargs=-1, metavar="[PIPELINE]", shell_complete=complete_stage)(function)


def stages_argument(function: _Function) -> _Function:
    """Take `[PIPELINE] [STAGE]...`."""
    take = click.argument("arguments", nargs=-1, metavar="[PIPELINE] [STAGE]...", shell_complete=complete_stage)
    return take(function)


def stage_argument(function: _Function) -> _Function:
    """Take `[PIPELINE] STAGE`."""
    take = click.argument("arguments", nargs=-1, metavar="[PIPELINE] STAGE", shell_complete=complete_stage)
    return take(function)


def variable_options(function: _Function) -> _Function:
    """Take `--set` and `--vars`."""
    file = option("--vars", "vars_file", metavar="FILE", help="A YAML file that sets vars of the pipeline.")
    one = option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="Set a var of the pipeline. Repeatable.")
    return one(file(function))


def model_options(function: _Function) -> _Function:
    """Take `--provider` and `--model`."""
    provider = option(
        "--provider",
        metavar="NAME",
        envvar="ORCH23_PROVIDER",
        help="Ask this provider in every llm stage, whatever the pipeline says.",
    )
    model = option(
        "--model", metavar="NAME", envvar="ORCH23_MODEL", help="Ask this model in every llm stage and attempt."
    )
    return provider(model(function))


def budget_option(function: _Function) -> _Function:
    """Take `--budget`."""
    text = "Spend no more than this, instead of the pipeline's max_cost_usd."
    return option("--budget", metavar="USD", help=text)(function)


def unsandboxed_option(function: _Function) -> _Function:
    """Take `--allow-unsandboxed`."""
    return option(
        "--allow-unsandboxed",
        is_flag=True,
        envvar="ORCH23_ALLOW_UNSANDBOXED",
        help="Run steps without a sandbox where the machine has none or a stage says `sandbox: off`.",
    )(function)


def plain_names(stages: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of stages in which `name[*]` is `name`: on a command line both mean all items."""
    return tuple(name.removesuffix("[*]") for name in stages)


def read_names(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stages that a repeatable option names."""
    return plain_names(names)


def selection_options(function: _Function) -> _Function:
    """Take what chooses the stages, besides their names."""
    for take in (
        option("--downstream", is_flag=True, help="The named stages and all that follows them."),
        option("--until", is_flag=True, help="The named stages and all they need; as without it."),
        option("--only", is_flag=True, help="The named stages alone, with what they need as it was last made."),
        option(
            "-f",
            "--force",
            "forced",
            metavar="STAGE",
            multiple=True,
            callback=read_names,
            shell_complete=complete_stage,
            help="Run this stage although it may be fresh. Repeatable.",
        ),
        option("--overwrite-edited", is_flag=True, help="Give up outputs that were edited by hand."),
    ):
        function = take(function)
    return function


def json_option(function: _Function) -> _Function:
    """Take `--json`."""
    return option("--json", "as_json", is_flag=True, help="Write one JSON document.")(function)


def exit_code_option(function: _Function) -> _Function:
    """Take `--exit-code`."""
    return option("--exit-code", is_flag=True, help="End with 1 if something would run.")(function)
