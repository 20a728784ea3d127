"""Write a result to the file that the command line names."""

from pathlib import Path

import click

from orch23.cli.console import Console


def write_named_file(console: Console, name: str, text: str) -> None:
    """Write a text to a file; its path is relative to the working directory, and missing folders are created.

    Raises:
        UsageError: of click, if the file cannot be written.

    """
    path = console.here / Path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write {name}: {error.strerror}"
        raise click.UsageError(message) from error
