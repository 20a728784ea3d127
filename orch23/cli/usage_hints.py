"""Find what is meant by a command line that click refuses: a misspelt command, a stage, an option in another place."""

from collections.abc import Sequence
from pathlib import Path

import click

from orch23.cli.declaration import NoSuchCommandError
from orch23.cli.discovery import PIPELINE_SUFFIXES, find_project
from orch23.cli.group import COMMAND_NAMES, PROGRAM_NAME, orch23
from orch23.model.diagnostic import nearest_names
from orch23.model.errors import Orch23Error

# Words of other tools, which the commands here do not resemble, or of which the nearest command does something else.
_SAME_AS = {
    **dict.fromkeys(("run", "make", "start", "exec", "execute", "repro", "apply", "up"), "build"),
    **dict.fromkeys(("check", "lint"), "validate"),
    **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("ls", "list", "stages"), "graph"),
    **dict.fromkeys(("dry-run", "status"), "plan"),
    "clean": "gc",
    "logs": "log",
}


def usage_hint(error: click.ClickException, here: Path, argv: Sequence[str]) -> str:
    """Return the hint of a usage error, with what is probably meant."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else PROGRAM_NAME
    words = ""
    if isinstance(error, NoSuchCommandError):
        near = _near_commands(error.name, context, here)
        words = f"did you mean `{near[0]}`? " if near else ""
    elif isinstance(error, click.NoSuchOption) and context is not None and context.parent is None:
        words = _meant_option(context, error.option_name, argv)
    elif isinstance(error, click.BadOptionUsage) and context is not None:
        option = next(one for one in context.command.params if error.option_name in one.opts)
        words = f"write `{(option.get_help_record(context) or (error.option_name,))[0]}`; "
    what = "commands" if isinstance(error, NoSuchCommandError) else "options and arguments"
    return f"{words}`{command} --help` lists {what}"


def _near_commands(word: str, context: click.Context | None, here: Path) -> list[str]:
    group = None if context is None else context.command
    if isinstance(group, click.Group) and group is not orch23:
        return nearest_names(word, sorted(group.commands))
    if _is_target(word, here):
        return [f"{PROGRAM_NAME} build {word}"]
    known = _SAME_AS.get(word)
    return [known] if known in COMMAND_NAMES else nearest_names(word, COMMAND_NAMES)


def _is_target(word: str, here: Path) -> bool:
    """Return whether a word is what `build` takes: a pipeline file, or a stage of the default pipeline."""
    if word.endswith(PIPELINE_SUFFIXES):
        return (here / word).is_file()
    try:
        from orch23.load.pipeline import load_pipeline  # noqa: PLC0415 - only for this error

        found = find_project(here)
        pipeline = None if found.pipeline is None else load_pipeline(found.pipeline, found.root).pipeline
    except (Orch23Error, OSError):
        return False  # the command is wrong in any case
    return pipeline is not None and any(stage.name == word for stage in pipeline.stages)


def _meant_option(context: click.Context, name: str, argv: Sequence[str]) -> str:
    """Return the command line with an option after the command that has it; empty if the command does not."""
    words = argv[argv.index(name) + 1 :] if name in argv else ()
    command = orch23.get_command(context, words[0]) if words else None
    if command is None or not any(name in one.opts for one in command.params):
        return ""
    instead = _SAME_AS.get(name.lstrip("-"))
    other = f", or `{PROGRAM_NAME} {instead}`" if instead else ""
    return f"options of a command come after it: did you mean `{PROGRAM_NAME} {words[0]} {name}`{other}? "
