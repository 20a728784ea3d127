"""Report what stopped a command: usage errors, diagnostics, errors of the system, bugs."""

import errno
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from orch23.cli.codes import OS_ERROR_HINTS
from orch23.cli.console import Console, redirect_to_devnull
from orch23.cli.discovery import find_project
from orch23.cli.group import COMMAND_NAMES, PROGRAM_NAME, NoSuchCommandError
from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.errors import ExitCode, Orch23Error, SafetyError
from orch23.model.paths import LOGS_FOLDER
from orch23.model.plugins import plugin_error_of, used_plugins
from orch23.report.diagnostics import render_diagnostics, visible
from orch23.store.access import ForeignStoreError, move_store_aside
from orch23.store.safe_files import open_file, read_and_close

_MOST_BYTES = 1_048_576


def report_error(error: Exception | SystemExit, console: Console) -> int | None:
    """Report an error and return the exit code; None where the command is to be run again."""
    match error:
        case click.ClickException():
            return _usage(error)
        case ForeignStoreError():
            return _set_aside(error, console)
        case Orch23Error():
            return _stopped(error, console)
        case OSError():
            return _refused(error, console)
        case _:
            return _bug(error, console)


def _set_aside(stopped: ForeignStoreError, console: Console) -> int | None:
    """Set a store aside that is not the user's: without it the command can run again."""
    try:
        warning = move_store_aside(stopped.folder)
    except OSError as refused:
        return _refused(refused, console)
    console.write_err(render_diagnostics((warning,), {}, color=console.err_style.color))
    return None


def _refused(error: OSError, console: Console) -> int:
    """Tell what the machine refused: no fault of the pipeline, and as a rule none of orch23."""
    if error.errno == errno.EPIPE:  # whoever read has had enough
        redirect_to_devnull(sys.stdout)
        redirect_to_devnull(sys.stderr)
        return ExitCode.OK
    if error.errno not in OS_ERROR_HINTS or plugin_error_of(error) is not None:
        return _bug(error, console)
    way_out = OS_ERROR_HINTS[error.errno]
    where = error.filename2 or error.filename
    message = f"{error.strerror}{f': {where}' if where is not None else ''}"
    console.write_err(
        render_diagnostics(
            [Diagnostic("E650", message, hint=f"{way_out}; then build again, nothing that was done is lost")], {}
        )
    )
    return ExitCode.MACHINE


def _usage(wrong: click.ClickException) -> ExitCode:
    context = wrong.ctx if isinstance(wrong, click.UsageError) else None
    usage = f"{context.get_usage()}\n" if context is not None else ""
    command = context.command_path if context is not None else PROGRAM_NAME
    hint = f"`{command} --help` lists what there is"
    near = nearest_names(wrong.name, COMMAND_NAMES) if isinstance(wrong, NoSuchCommandError) else ()
    if near:
        hint = f"did you mean `{near[0]}`? {hint}"
    told = f"{usage}error: {visible(wrong.format_message())}\n  = help: {hint}\n"
    Console().write_err(told)
    return ExitCode.USAGE


def _stopped(stopped: Orch23Error, console: Console) -> int:
    sources = getattr(stopped, "sources", None)
    if not isinstance(sources, Mapping):
        sources = _sources(stopped, _root(console))
    console.write_err(render_diagnostics(stopped.diagnostics, sources, color=console.err_style.color))
    return console.exit_number_of(stopped)


def _root(console: Console) -> Path:
    """Return the root that the command found, or would have found without a pipeline on its command line."""
    return (console.found[0] if console.found else find_project(console.here)).root


def _from_here(path: Path, here: Path) -> str:
    """Return a path as it can be opened from the directory that the user works in."""
    return os.path.relpath(path, here.resolve())


def _sources(stopped: Orch23Error, root: Path) -> dict[str, str]:
    """Return the texts that the diagnostics point into, as far as they can be read."""
    found: dict[str, str] = {}
    for diagnostic in stopped.diagnostics:
        places = [diagnostic.location, *(related.location for related in diagnostic.related)]
        for file in {place.file for place in places if place is not None} - found.keys():
            try:
                descriptor = open_file(root, file)
                data = b"" if descriptor is None else read_and_close(descriptor, _MOST_BYTES + 1)
            except (OSError, SafetyError):
                continue
            if descriptor is not None and len(data) <= _MOST_BYTES:
                found[file] = data.decode("utf-8", errors="replace")
    return found


def _bug(error: Exception | SystemExit, console: Console) -> int:
    """Report the code of a plugin that failed, or a bug: its traceback is kept in a file, the screen gets one line."""
    if (fault := plugin_error_of(error)) is not None:
        return _stopped(fault, console)
    text = console.redact("".join(traceback.format_exception(error)))
    folder = _root(console) / LOGS_FOLDER
    path = folder / f"crash-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8", errors="replace")
        where = f"its traceback is in {_from_here(path, console.here)}"
    except OSError as refused:
        where = f"its traceback could not be written ({refused.strerror})"
    told = visible(f"{type(error).__name__}: {error}").split("\n", 1)[0]
    plugins = ", ".join(used_plugins())
    whose = f"orch23 or in a plugin that it uses, {plugins}" if plugins else "orch23"
    console.write_err(f"error: this is a bug in {whose} ({told}); {where}\n")
    return ExitCode.BUG
