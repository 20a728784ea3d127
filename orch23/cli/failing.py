"""Report what stopped a command: a mistake in its line, a complaint, a refusal of the machine, a bug."""

import errno
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from orch23.cli.console import Console, silence
from orch23.cli.group import NAMES, PROGRAM, NoSuchCommandError
from orch23.cli.machine import WAYS_OUT
from orch23.cli.project import find_root
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, Orch23Error, SafetyError
from orch23.model.nearest import nearest
from orch23.model.plugins import at_fault, looked_up
from orch23.report.diagnostics import render, visible
from orch23.store.beneath import open_file, read_all
from orch23.store.standing import StrangeStoreError, set_aside

_MOST_BYTES = 1_048_576


def report(error: Exception | SystemExit, console: Console) -> int | None:
    """Report an error and return the exit code; None where the command is to be run again."""
    match error:
        case click.ClickException():
            return _usage(error)
        case StrangeStoreError():
            return _set_aside(error, console)
        case Orch23Error():
            return _stopped(error, console)
        case OSError():
            return _refused(error, console)
        case _:
            return _bug(error, console)


def _set_aside(stopped: StrangeStoreError, console: Console) -> int | None:
    """Set a store aside that is not the user's: without it the command can run again."""
    try:
        warning = set_aside(stopped.folder)
    except OSError as refused:
        return _refused(refused, console)
    console.tell(render((warning,), {}, color=console.err_style.color))
    return None


def _refused(error: OSError, console: Console) -> int:
    """Tell what the machine refused: no fault of the pipeline, and as a rule none of orch23."""
    if error.errno == errno.EPIPE:  # whoever read has had enough
        silence(sys.stdout)
        silence(sys.stderr)
        return ExitCode.OK
    if error.errno not in WAYS_OUT or at_fault(error) is not None:
        return _bug(error, console)
    way_out = WAYS_OUT[error.errno]
    where = error.filename2 or error.filename
    message = f"{error.strerror}{f': {where}' if where is not None else ''}"
    console.tell(
        render([Diagnostic("E650", message, hint=f"{way_out}; then build again, nothing that was done is lost")], {})
    )
    return ExitCode.MACHINE


def _usage(wrong: click.ClickException) -> ExitCode:
    context = wrong.ctx if isinstance(wrong, click.UsageError) else None
    usage = f"{context.get_usage()}\n" if context is not None else ""
    command = context.command_path if context is not None else PROGRAM
    hint = f"`{command} --help` lists what there is"
    near = nearest(wrong.name, NAMES) if isinstance(wrong, NoSuchCommandError) else ()
    if near:
        hint = f"did you mean `{near[0]}`? {hint}"
    told = f"{usage}error: {visible(wrong.format_message())}\n  = help: {hint}\n"
    Console().tell(told)
    return ExitCode.USAGE


def _stopped(stopped: Orch23Error, console: Console) -> int:
    sources = getattr(stopped, "sources", None)
    if not isinstance(sources, Mapping):
        sources = _sources(stopped, find_root(console.here.resolve()))
    console.tell(render(stopped.diagnostics, sources, color=console.err_style.color))
    return console.number_of(stopped)


def _sources(stopped: Orch23Error, root: Path) -> dict[str, str]:
    """Return the texts that the diagnostics point into, as far as they can be read."""
    found: dict[str, str] = {}
    for diagnostic in stopped.diagnostics:
        places = [diagnostic.location, *(related.location for related in diagnostic.related)]
        for file in {place.file for place in places if place is not None} - found.keys():
            try:
                descriptor = open_file(root, file)
                data = b"" if descriptor is None else read_all(descriptor, _MOST_BYTES + 1)
            except (OSError, SafetyError):
                continue
            if descriptor is not None and len(data) <= _MOST_BYTES:
                found[file] = data.decode("utf-8", errors="replace")
    return found


def _bug(error: Exception | SystemExit, console: Console) -> int:
    """Report the code of a plugin that failed, or a bug: its traceback is kept in a file, the screen gets one line."""
    if (fault := at_fault(error)) is not None:
        return _stopped(fault, console)
    text = console.plain("".join(traceback.format_exception(error)))
    folder = find_root(console.here.resolve()) / "logs"
    path = folder / f"crash-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8", errors="replace")
        where = f"its traceback is in logs/{path.name}"
    except OSError as refused:
        where = f"its traceback could not be written ({refused.strerror})"
    told = visible(f"{type(error).__name__}: {error}").split("\n", 1)[0]
    plugins = ", ".join(looked_up())
    whose = f"orch23 or in a plugin that it uses, {plugins}" if plugins else "orch23"
    console.tell(f"error: this is a bug in {whose} ({told}); {where}\n")
    return ExitCode.BUG
