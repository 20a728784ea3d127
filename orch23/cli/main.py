"""Run a command line and return its exit code. Every exception ends here."""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from functools import partial

from orch23.cli.console import Console, open_console
from orch23.cli.parameters import parsed_build, run_build
from orch23.model.errors import OS_ERROR_HINTS, ExitCode
from orch23.snapshot.fast_path import COMPLETE, StaleSnapshot


def main(argv: Sequence[str], stale_snapshot: StaleSnapshot | None = None) -> int:
    """Run a command line and return its exit code; never raises.

    `stale_snapshot` is the snapshot of an earlier build of the same command line, with the files that changed since.
    """
    try:
        return _run(argv, stale_snapshot, time.monotonic())
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


def _run(argv: Sequence[str], stale_snapshot: StaleSnapshot | None, began_s: float) -> int:
    instruction = os.environ.get(COMPLETE)
    if instruction:
        from orch23.cli.group import complete  # noqa: PLC0415 - loads click

        return complete(instruction)
    # Filled before the command runs: an error report needs the console with `-C` and `--color`.
    consoles: list[Console] = []
    try:
        build = parsed_build(argv, stale_snapshot)
        if build is not None:
            consoles.append(build)
            code = run_build(build)
        else:
            from orch23.cli.group import run_command  # noqa: PLC0415 - loads click

            code = run_command(argv, partial(open_console, consoles, argv=tuple(argv), stale_snapshot=stale_snapshot))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.SIGINT
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a bug is reported in one line, never as a traceback
        from orch23.cli.error_report import report_error  # noqa: PLC0415 - only for errors

        # The options before the command make the console. If they are what is wrong, there is only a default one.
        reported = report_error(error, consoles[0] if consoles else Console(), argv, began_s)
        # A store of another user was moved aside, or the build has ended that this one waited for.
        return _run(argv, None, began_s) if reported is None else reported
    return code if isinstance(code, int) else ExitCode.OK  # an action returns None for success
