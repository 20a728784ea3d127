"""The group of all commands, and the options before a command."""

import contextlib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import click

from orch23 import __version__
from orch23.cli.declaration import CommandGroup, end_of_group, option
from orch23.model.features import COMMANDS, has_feature, load_feature

PROGRAM_NAME = "orch23"
# The commands, most used first. Each is `NAME_command` of a module in `commands`, if it is not of a feature.
COMMAND_NAMES = (
    *("build", "watch", "plan", "status", "cancel", "explain", "validate", "graph", "affected", "diff", "vars"),
    *("schema", "runs", "log", "report", "view", "show", "shell", "accept", "approve", "reject", "release", "clean"),
    *("reset", "gc", "cache", "trust", "init", "template", "model", "worker", "doctor", "help"),
)
_MODULES = {
    **dict.fromkeys(("build", "plan", "status", "accept"), "building"),
    **dict.fromkeys(("validate", "trust"), "checking"),
}


class LazyGroup(CommandGroup):
    """A group that imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, without those of features that are not installed."""
        del ctx
        return [name for name in COMMAND_NAMES if has_feature(COMMANDS, name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name; None if there is no such command.

        Raises:
            ConfigurationError: it is of a feature that is not a part of this installation.
        """
        if cmd_name in COMMAND_NAMES and cmd_name not in self.commands:
            if cmd_name in _MODULES:
                module = import_module(f"orch23.cli.commands.{_MODULES[cmd_name]}")
                self.commands[cmd_name] = getattr(module, f"{cmd_name}_command")
            else:
                self.commands[cmd_name] = load_feature(COMMANDS[cmd_name])
        return super().get_command(ctx, cmd_name)


@click.group(
    name=PROGRAM_NAME,
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@option("-C", "directory", metavar="DIR", default=".", help="Work in this directory.")
@option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Use colors; auto checks NO_COLOR, CLICOLOR_FORCE and terminal.",
)
@click.version_option(__version__, prog_name=PROGRAM_NAME, message="%(prog)s %(version)s", allow_from_autoenv=False)
@click.pass_context
def orch23(context: click.Context, directory: str, color: Any) -> int:
    """Build software with language models: declare stages in YAML, verify results, build only what changed.

    The project root is the nearest parent directory with orch23.toml or with [tool.orch23] in pyproject.toml, else
    the nearest with .git, else the nearest with pipeline.yaml. Files of other users there are ignored. Paths on the
    command line are relative to the working directory, paths in messages to the project root.

    Every option can be set as ORCH23_..., such as ORCH23_COLOR or ORCH23_BUILD_JOBS; -C as ORCH23_DIRECTORY. A
    repeatable option takes several values: ORCH23_BUILD_SET="a=1 b='two words'".
    """
    context.obj = context.obj(directory, color)
    context.call_on_close(context.obj.resources.close)
    return end_of_group(context)


def run_command(argv: Sequence[str], open_console: Callable[[str, Any], Any]) -> Any:
    """Parse a command line, run its command with the console that opens, and return what its action returned."""
    try:
        with orch23.make_context(PROGRAM_NAME, list(argv), auto_envvar_prefix="ORCH23", obj=open_console) as context:
            return orch23.invoke(context)
    except click.exceptions.Exit as finished:
        return finished.exit_code


def write_help(argv: list[str]) -> None:
    """Write the help of a command line of names whose last word is `--help`. Loads no module of a build.

    Raises:
        ClickException: there is no such command, or a variable of the environment has a wrong value.
    """
    command: Any = orch23
    with contextlib.suppress(click.exceptions.Exit):
        context = command.make_context(PROGRAM_NAME, argv[:], auto_envvar_prefix="ORCH23")
        while True:  # ends by the option
            name, command, argv = command.resolve_command(context, argv)
            context = command.make_context(name, argv[:], context)


def complete(instruction: str) -> int:
    """Write the completions that a shell asks for, and return the exit code."""
    from click.shell_completion import shell_complete  # noqa: PLC0415 - few commands are this

    from orch23.snapshot.fast_path import COMPLETE  # noqa: PLC0415 - `--help` does not need it

    return shell_complete(orch23, {}, PROGRAM_NAME, COMPLETE, instruction)
