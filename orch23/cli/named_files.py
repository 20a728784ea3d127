"""Write a result to the file that the command line names."""

from pathlib import Path

import click

from orch23.cli.console import Console
from orch23.store.safe_files import write_atomic


def write_named_file(console: Console, name: str, text: str) -> None:
    """Write a text to a file, whole or not at all.

    The path is relative to the working directory, and missing folders are created.

    Raises:
        UsageError: of click, if the file cannot be written.

    """
    data = text.encode()
    try:
        path = (console.here / Path(name)).resolve()
        if path.is_file() or not path.exists():
            write_atomic(path, data, durable=False)
        else:
            # A device or a pipe, such as /dev/stdout.
            path.write_bytes(data)
    except OSError as error:
        message = f"cannot write {name}: {error.strerror}"
        raise click.UsageError(message) from error
