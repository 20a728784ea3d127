"""Complete stage names and pipeline files in the shell."""

import re
from itertools import takewhile
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from orch23.cli.discovery import PIPELINE_SUFFIXES, find_project

_MAX_BYTES = 1_048_576
_SECTION = re.compile(r"stages:[ \t]*(?:#.*)?$")
_NAME = re.compile(r"  ([A-Za-z0-9_][A-Za-z0-9_.-]*+)[ \t]*+:")


def stage_names(text: str) -> list[str]:
    """Return the stage names in a pipeline's text, by its layout: completion must be fast, and loads no YAML reader."""
    lines = iter(text.split("\n"))
    next(filter(_SECTION.match, lines), None)
    section = takewhile(lambda line: line.startswith((" ", "\t", "#")) or not line, lines)
    return [found[1] for found in map(_NAME.match, section) if found]


def complete_stages(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete stage names and pipeline files."""
    here = Path(str(context.find_root().params.get("directory") or "."))
    named = [str(one) for one in context.params.get("arguments") or () if str(one).endswith(PIPELINE_SUFFIXES)]
    pipeline = find_project(here, tuple(named)).pipeline
    names = _names_in(pipeline) if pipeline is not None else []
    if not named:
        places = [(folder, suffix) for folder in (here, here / "pipelines") for suffix in PIPELINE_SUFFIXES]
        found = (path for folder, suffix in places for path in sorted(folder.glob(f"*{suffix}")))
        names += [path.relative_to(here).as_posix() for path in found]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _names_in(pipeline: Path) -> list[str]:
    try:
        if not pipeline.is_file():
            return []
        # Only a part is read, and errors are ignored: each press of the Tab key runs this.
        with pipeline.open(encoding="utf-8", errors="replace") as stream:
            return stage_names(stream.read(_MAX_BYTES))
    except OSError:
        return []
