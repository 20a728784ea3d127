"""The options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from orch23.cli.command import action
from orch23.cli.flags import option

_Function = TypeVar("_Function", bound=Callable[..., Any])

complete_stage = action("completing", "stages")
"""Complete names of stages, and pipeline files."""


class NameOrPlugins(click.Choice[str]):
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
