"""The group of all commands, with the options that stand before a command."""

from pathlib import Path

import click

from orch23 import __version__
from orch23.cli.accept import accept
from orch23.cli.affected import affected
from orch23.cli.build import build
from orch23.cli.cache import cache
from orch23.cli.clean import clean
from orch23.cli.console import ColorChoice, Console
from orch23.cli.doctor import doctor
from orch23.cli.explain import explain
from orch23.cli.gc import gc
from orch23.cli.graph import graph
from orch23.cli.help import help_command
from orch23.cli.init import init
from orch23.cli.model import model
from orch23.cli.plan import plan, status
from orch23.cli.reset import reset
from orch23.cli.runs import log, runs
from orch23.cli.schema import schema
from orch23.cli.show import show
from orch23.cli.template import template
from orch23.cli.validate import validate
from orch23.cli.variables import variables
from orch23.model.errors import ExitCode

PROGRAM = "orch23"
_COMMANDS = (
    *(build, plan, status, explain, validate, graph, affected, variables, schema),
    *(runs, log, show, accept, clean, reset, gc, cache, init, template, model, doctor, help_command),
)


class Commands(click.Group):
    """A group that lists its commands in the order they are declared in, the most used first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(self.commands)


@click.group(
    name=PROGRAM,
    cls=Commands,
    commands=list(_COMMANDS),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("-C", "directory", metavar="DIR", default=".", help="Work in this folder.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colours: auto asks NO_COLOR, CLICOLOR_FORCE and the terminal.",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def orch23(context: click.Context, directory: str, color: ColorChoice) -> int:
    """Build software with language models: stages declared in YAML, verified results, nothing made twice.

    Every option can also be given as ORCH23_..., such as ORCH23_COLOR or ORCH23_BUILD_JOBS.
    """
    here = Path.cwd() / directory
    if not here.is_dir():
        message = f"there is no folder {directory}"
        raise click.BadParameter(message, ctx=context, param_hint="-C")
    argv, unrest = context.obj or ((), None)
    context.obj = Console(here=here, color=color, argv=argv, unrest=unrest)
    if context.invoked_subcommand is None:
        context.obj.tell(f"{context.get_help()}\n")
        return ExitCode.USAGE
    return ExitCode.OK
