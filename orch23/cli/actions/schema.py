"""Run `schema`: write the JSON schema of pipelines."""

import json
from pathlib import Path

import click

from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import named_plugins
from orch23.resolve.schema import published_schema


def run(console: Console, *, args: PipelineArguments, out: str | None) -> None:
    """Write the JSON schema of pipelines."""
    text = json.dumps(published_schema(named_plugins(console, args.arguments)), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        console.write_out(text)
        return
    # Relative to the working directory, as all paths on the command line.
    path = console.here / Path(out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write {out}: {error.strerror}"
        raise click.UsageError(message) from error
    console.write_err(f"wrote {out}; make this the first line of a pipeline, for editors:\n")
    console.write_err(f"# yaml-language-server: $schema={out}\n")
