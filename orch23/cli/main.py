"""Run a command line and return its exit code. Every exception ends here."""

import contextlib
import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from orch23.cli.codes import OS_ERROR_HINTS
from orch23.cli.console import Console
from orch23.cli.group import PROGRAM_NAME, orch23
from orch23.model.errors import ExitCode
from orch23.snapshot.fast_path import StaleSnapshot

_COMPLETE = "_ORCH23_COMPLETE"


def main(argv: Sequence[str], stale_snapshot: StaleSnapshot | None = None) -> int:
    """Run a command line and return its exit code; never raises.

    `stale_snapshot` is the snapshot of an earlier build of the same command line, with the files that changed since.
    """
    try:
        return _run(argv, stale_snapshot)
    except KeyboardInterrupt:
        return ExitCode.SIGINT
    except Exception as error:  # noqa: BLE001 - the report of another error failed
        return _unreported(error)


def _unreported(error: Exception) -> ExitCode:
    """Report an error whose report failed, in one line of ASCII and with modules that are loaded already."""
    # `OS_ERROR_HINTS` is imported at the top: with no memory or file descriptor left, no module can be imported here.
    is_refused = isinstance(error, OSError) and error.errno in OS_ERROR_HINTS
    text = ascii(f"{type(error).__name__}: {error}")[1:-1]
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"error: {Console().redact(text)}\n")
        sys.stderr.flush()
    return ExitCode.MACHINE if is_refused else ExitCode.BUG


def _run(argv: Sequence[str], stale_snapshot: StaleSnapshot | None) -> int:
    instruction = os.environ.get(_COMPLETE)
    if instruction:
        return shell_complete(orch23, {}, PROGRAM_NAME, _COMPLETE, instruction)
    # Made before it is invoked: an error report needs the console with `-C` and `--color`.
    context: click.Context | None = None
    try:
        with orch23.make_context(
            PROGRAM_NAME, list(argv), auto_envvar_prefix="ORCH23", obj=(tuple(argv), stale_snapshot)
        ) as context:
            code = orch23.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as finished:
        return finished.exit_code
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.SIGINT
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a bug is reported in one line, never as a traceback
        from orch23.cli.error_report import report_error  # noqa: PLC0415 - only for errors

        # The options before the command make the console. If they are what is wrong, there is only a default one.
        console = context.obj if context is not None else None
        reported = report_error(error, console if isinstance(console, Console) else Console())
        # A store of another user was moved aside: the command runs again without it.
        return main(argv) if reported is None else reported
    return code if isinstance(code, int) else ExitCode.OK  # an action returns None for success
