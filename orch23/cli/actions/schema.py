"""The action of `schema`."""

import json
from pathlib import Path

import click

from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.opening import check_number, found_project, project_root
from orch23.load.pipeline import plugins_of
from orch23.model.errors import ExitCode
from orch23.resolve.schema import published_schema


def run(console: Console, *, wanted: Wanted, out: str | None) -> int:
    """Write the JSON schema of pipelines, for editors."""
    text = json.dumps(published_schema(_plugins(console, wanted)), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        console.answer(text)
        return ExitCode.OK
    path = console.here / Path(out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write {out}: {error.strerror}"
        raise click.UsageError(message) from error
    console.tell(f"wrote {out}; the first line of a pipeline names it to editors:\n")
    console.tell(f"# yaml-language-server: $schema={out}\n")
    return ExitCode.OK


def _plugins(console: Console, wanted: Wanted) -> tuple[str, ...]:
    """Return the plugins of the pipeline that is meant; none where there is no pipeline and none is named."""
    found = found_project(console, wanted.arguments)
    if found.pipeline is None:
        return ()
    check_number(found.stages, 0)
    return plugins_of(found.pipeline, project_root(console, wanted.arguments))
