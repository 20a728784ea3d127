"""Declare commands: their options, arguments, environment variables and actions."""

import os
import shlex
from collections.abc import Callable
from functools import partial, update_wrapper
from types import NoneType
from typing import Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from orch23.model import features

# A function that only carries options, arguments and the help text of a command.
Declaration: TypeAlias = Callable[[], None]


def declare_command(name: str, place: str, group: click.Group | None = None) -> Callable[[Declaration], click.Command]:
    """Make a command of its declaration and the place of its action, as in `load_action`.

    The action gets the console and all parameters by name. Those of `PipelineArguments` come together, as `args`. It
    returns an exit code, or None for success.
    """

    def act(context: click.Context, /, **given: Any) -> Any:
        from orch23.cli.parameters import load_action, run_action  # noqa: PLC0415 - `--help` needs no msgspec

        console = context.obj
        texts = (name for name, value in given.items() if not isinstance(value, _STORABLE))
        # A snapshot must not store a text from the environment, which may be a secret.
        if not any(context.get_parameter_source(name) is ParameterSource.ENVIRONMENT for name in texts):
            console.parameters.update(given)
        return run_action(load_action(place), console, given)

    def declare(declaration: Declaration) -> click.Command:
        command = click.command if group is None else group.command
        return command(name, cls=_Command)(update_wrapper(click.pass_context(act), declaration))

    return declare


WAIT_LOCK, _NO_LIMIT = "--wait-lock", "inf"


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        from orch23.model.fields import parse_seconds  # noqa: PLC0415 - `--help` needs none

        seconds = float(value) if value == _NO_LIMIT else parse_seconds(value)
        if seconds is None:
            self.fail(f"`{value}` is not a duration: write 300s, 45m, 2h or a number of seconds", param, ctx)
        return seconds


# The types of values that a snapshot may store, wherever they are from.
_STORABLE = (bool, int, NoneType)


class NoSuchCommandError(click.UsageError):
    """A word is not a command of a group."""

    def __init__(self, name: str, ctx: click.Context) -> None:
        """Keep the word, to suggest near ones."""
        super().__init__(f"no such command: `{name}`", ctx)
        self.name = name


class _Command(click.Command):
    # Click raises some errors of options without their context.
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Click takes any next word as the value, also a pipeline or a stage.
        pairs = zip(args, [*args[1:], ""], strict=False)
        bare = [one == WAIT_LOCK and not following[:1].isdigit() for one, following in pairs]
        args = [f"{one}={_NO_LIMIT}" if is_bare else one for one, is_bare in zip(args, bare, strict=True)]
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            error.ctx = error.ctx or ctx
            raise


class CommandGroup(_Command, click.Group):
    """A group of commands, which reports a word that is not a command by an error of its own."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names, with its arguments.

        Raises:
            NoSuchCommandError: there is no such command.
        """
        # An unknown option is reported by click itself.
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise NoSuchCommandError(args[0], ctx)
        return super().resolve_command(ctx, args)


def end_of_group(context: click.Context) -> int:
    """Return the exit code of a group. Called without one of its commands, it shows its help, which is an error."""
    from orch23.model.errors import ExitCode  # noqa: PLC0415 - as above

    if context.invoked_subcommand is not None:
        return ExitCode.OK
    context.obj.write_err(f"{context.get_help()}\n")
    return ExitCode.USAGE  # a script that forgot the command must not look successful


def declare_group(name: str, group: click.Group | None = None) -> Callable[[Declaration], click.Group]:
    """Make a group of its declaration."""

    def declare(declaration: Declaration) -> click.Group:
        make = click.group if group is None else group.group
        shown = update_wrapper(click.pass_context(end_of_group), declaration)
        return make(name, cls=CommandGroup, invoke_without_command=True)(shown)

    return declare


class EnvironmentOption(click.Option):
    """An option whose environment variable is named after its flag: `--set` of `orch23 build` is ORCH23_BUILD_SET.

    Click names variables after parameters, which users do not see: `sets` for `--set`. An option without a long flag
    still gets the name of its parameter. A repeatable option takes several values, quoted as in a shell.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the text of the option's variable; None if it is not set or empty."""
        named = click.Parameter.resolve_envvar_value(self, ctx)
        variable = self.variable(ctx)
        return named if named is not None or variable is None else os.environ.get(variable) or None

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return the value in the option's variable: a list for a repeatable option, None for a flag that is off."""
        # click splits a repeatable option at spaces, which would break `--set "b=two words"`.
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
        """Return the name of the option's variable; None if the program has none."""
        # Without a prefix click was called by a test or a page generator, not by `main`.
        if ctx.auto_envvar_prefix is None:
            return None
        flag = next((one.removeprefix("--") for one in self.opts if one.startswith("--")), self.name or "")
        return f"{ctx.auto_envvar_prefix}_{flag.replace('-', '_').upper()}"


option = partial(click.option, cls=EnvironmentOption)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def complete_by(place: str) -> Callable[..., Any]:
    """Return a function that completes a word by an action."""

    def complete(*given: Any) -> Any:
        from orch23.cli.parameters import load_action  # noqa: PLC0415 - as above

        return load_action(place)(*given)

    return complete


# Complete stage names and pipeline files.
complete_stage = complete_by("completing.complete_stages")


class PluginChoice(click.Choice[str]):
    """One of some names, or a name of a plugin: plugins are not known before the pipeline is read."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name unchecked."""
        del param, ctx
        return value


def _arguments(metavar: str) -> Callable[[_Function], _Function]:
    # In any order: `discovery` tells them apart by the suffix.
    return click.argument("arguments", nargs=-1, metavar=metavar, shell_complete=complete_stage)


pipeline_argument = _arguments("[PIPELINE]")
stages_argument = _arguments("[PIPELINE] [STAGE]...")
stage_argument = _arguments("[PIPELINE] STAGE")


def _options(*options: Callable[[_Function], _Function]) -> Callable[[_Function], _Function]:
    def declare(function: _Function) -> _Function:
        # `--help` lists them in the order given.
        for one in reversed(options):
            function = one(function)
        return function

    return declare


variable_options = _options(
    option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="Set a var of the pipeline. Repeatable."),
    option("--vars", "vars_file", metavar="FILE", help="Read vars of the pipeline from a YAML file."),
)
model_options = _options(
    option("--provider", metavar="NAME", envvar="ORCH23_PROVIDER", help="Use this provider in every llm stage."),
    option("--model", metavar="NAME", envvar="ORCH23_MODEL", help="Use this model in every llm stage."),
)
override_options = _options(variable_options, model_options)
cache_options = _options(
    option("--cache", metavar="URL", help="Use this shared cache; `off` uses none."),
    option("--cache-write", is_flag=True, help="Store results in the shared cache."),
)
_EXECUTORS = click.Choice(("local", *features.EXECUTORS))
executor_options = _options(
    option("--executor", type=_EXECUTORS, help="Run steps on this machine or on a cluster."),
    option("--scheduler", metavar="ADDRESS", default="", help="Use the cluster of this scheduler."),
)
budget_option = option("--budget", metavar="USD", help="Spend at most this; replaces max_cost_usd.")
unsandboxed_option = option(
    "--allow-unsandboxed", is_flag=True, envvar="ORCH23_ALLOW_UNSANDBOXED", help="Allow steps without a sandbox."
)
wait_lock_option = option(WAIT_LOCK, metavar="[DURATION]", type=_Duration(), help="Wait until another build has ended.")
json_option = option("--json", "as_json", is_flag=True, help="Write one JSON document.")
exit_code_option = option("--exit-code", is_flag=True, help="Exit with 1 if a stage would run.")


repeatable_stage_option = partial(
    option,
    metavar="STAGE",
    multiple=True,
    callback=lambda _context, _parameter, names: tuple(name.removesuffix("[*]") for name in names),  # as in `needs`
    shell_complete=complete_stage,
)
selection_options = _options(
    option("--overwrite-edited", is_flag=True, help="Overwrite outputs that you edited."),
    repeatable_stage_option("-f", "--force", "forced", help="Run this stage even if it is fresh. Repeatable."),
    option("--only", is_flag=True, help="Select only the named stages."),
    option("--until", is_flag=True, help="Select the named stages and their upstream (default)."),
    option("--downstream", is_flag=True, help="Select the named stages and their downstream."),
)
