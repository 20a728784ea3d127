"""The options that several commands share."""

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.project import plain_names, split_arguments
from orch23.model.errors import NotFoundError

_Function = TypeVar("_Function", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[_Function], _Function]

_SUFFIXES = (".yaml", ".yml")
_MOST_BYTES = 1_048_576
_SECTION = re.compile(r"^stages:[ \t]*(?:#.*)?\n((?:[ \t]+.*\n|[ \t]*#.*\n|\n)*)", re.MULTILINE)
_NAME = re.compile(r"^  ([A-Za-z0-9_][A-Za-z0-9_.-]*)[ \t]*:", re.MULTILINE)


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


def hands_wanted(function: _Function) -> Callable[..., Any]:
    """Hand a command what its line names as one `wanted`, in place of the options that it is made of."""

    @functools.wraps(function)
    def command(console: Console, **given: Any) -> Any:
        named = {name: given.pop(name) for name in Wanted.__struct_fields__ if name in given}
        return function(console, wanted=Wanted(**named), **given)

    return command


def stage_names(text: str) -> list[str]:
    """Return the names of the stages in a pipeline's text, by its layout alone: completion must be quick."""
    section = _SECTION.search(f"{text}\n")
    return _NAME.findall(section.group(1)) if section else []


def complete_stage(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of stages, and pipeline files."""
    here = Path(str(context.find_root().params.get("directory") or "."))
    named = [str(one) for one in context.params.get("arguments") or () if str(one).endswith(_SUFFIXES)]
    try:
        pipeline, _ = split_arguments(tuple(named), here)
    except NotFoundError:
        pipeline = here
    found = [name for name in _names_in(pipeline) if name.startswith(incomplete)]
    items = [CompletionItem(name) for name in found]
    if not named:
        items += [CompletionItem(path) for path in _pipelines(here) if path.startswith(incomplete)]
    return items


def _names_in(pipeline: Path) -> list[str]:
    try:
        if not pipeline.is_file():
            return []
        with pipeline.open(encoding="utf-8", errors="replace") as stream:
            return stage_names(stream.read(_MOST_BYTES))
    except OSError:
        return []


def _pipelines(here: Path) -> Iterator[str]:
    for folder in (here, here / "pipelines"):
        for suffix in _SUFFIXES:
            yield from sorted(path.relative_to(here).as_posix() for path in folder.glob(f"*{suffix}"))


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
