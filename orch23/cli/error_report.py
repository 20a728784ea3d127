"""Report what stopped a command: usage errors, diagnostics, errors of the system, bugs."""

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from msgspec.structs import replace

from orch23.cli.console import Console, redirect_to_devnull
from orch23.cli.discovery import find_project
from orch23.cli.group import PROGRAM_NAME
from orch23.cli.usage_hints import usage_hint
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import OS_ERROR_HINTS, ExitCode, Orch23Error, SafetyError
from orch23.model.paths import LOGS_FOLDER
from orch23.model.plugins import plugin_error_of, used_plugins
from orch23.report.diagnostics import render_diagnostics, visible
from orch23.store.access import ForeignStoreError, move_store_aside
from orch23.store.project_store import STORE_NAME
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_file, replace_file

_MAX_BYTES = 1_048_576
_REMOVED = "`git clean -fdx` does that, `git clean -fdx -e .orch23 -e logs` does not; build again"


def report_error(error: Exception | SystemExit, console: Console, argv: Sequence[str] = ()) -> int | None:
    """Report an error and return the exit code; None if the command must run again.

    `argv` are the words of the command line: for a misspelt one the whole command line is shown.
    """
    match error:
        case click.ClickException():
            return _usage(error, console, argv)
        case click.Abort():
            return ExitCode.SIGINT
        case ForeignStoreError():
            return _move_aside(error, console)
        case Orch23Error():
            return _report(error, console, argv)
        case OSError():
            return _os_error(error, console)
        case _:
            return _bug(error, console)


def _move_aside(foreign: ForeignStoreError, console: Console) -> int | None:
    try:
        warning = move_store_aside(foreign.folder)
    except (OSError, SafetyError) as error:
        return report_error(error, console)
    console.write_diagnostics((warning,))
    return None


def _os_error(error: OSError, console: Console) -> int:
    """Report what the operating system refused, such as a full disk. Other OSErrors are bugs."""
    if error.errno == errno.EPIPE:  # the reader closed the pipe, as `head` does
        redirect_to_devnull(sys.stdout)
        redirect_to_devnull(sys.stderr)
        return ExitCode.OK
    # The second name is the target of a rename, which is the file that the user knows.
    path = error.filename2 or error.filename
    inside = os.path.relpath(path, _root(console)) if isinstance(path, str) else ""
    if error.errno == errno.ENOENT and inside.split("/")[0] in (STORE_NAME, LOGS_FOLDER):
        message = f"`{inside}` was removed while orch23 used it"
        console.write_diagnostics((Diagnostic("E651", message, hint=_REMOVED),))
        return ExitCode.MACHINE
    # Other numbers, such as ENOENT, show that orch23 expected a file that is missing.
    if error.errno not in OS_ERROR_HINTS or plugin_error_of(error) is not None:
        return _bug(error, console)
    message = f"{error.strerror}{f': {path}' if path is not None else ''}"
    hint = f"{OS_ERROR_HINTS[error.errno]}; then build again, finished stages are kept"
    console.write_diagnostics((Diagnostic("E650", message, hint=hint),))
    return ExitCode.MACHINE


def _usage(error: click.ClickException, console: Console, argv: Sequence[str]) -> ExitCode:
    context = error.ctx if isinstance(error, click.UsageError) else None
    usage = f"{context.get_usage()}\n" if context is not None else ""
    hint = usage_hint(error, console.here, argv)
    Console().write_err(f"{usage}error: {visible(error.format_message())}\n  = help: {hint}\n")
    return ExitCode.USAGE


def _report(error: Orch23Error, console: Console, argv: Sequence[str] = ()) -> int:
    sources = getattr(error, "sources", None)
    if not isinstance(sources, Mapping):
        sources = _sources(error, _root(console))
    diagnostics = tuple(_with_command(one, console.here, argv) for one in error.diagnostics)
    from orch23.cli.error_notes import with_root_note  # noqa: PLC0415 - only for errors

    console.write_diagnostics(with_root_note(diagnostics, console), sources)
    if console.is_in_github_actions:
        _annotate(error, console)
    return console.exit_number_of(error)


def _with_command(one: Diagnostic, here: Path, argv: Sequence[str]) -> Diagnostic:
    """Return a diagnostic about a word of the command line with the command line to type in its hint."""
    if one.fix is None or one.location is not None:
        return one
    old, new = one.fix
    above = os.path.normpath(here.absolute())
    if Path(old).is_absolute():  # a file, with its whole path
        new = os.path.relpath(new, above)
    # The last one: a stage may have the name of the command.
    wrong = [n for n, word in enumerate(argv) if old in (word, os.path.normpath(f"{above}/{word}"))]
    if not wrong:
        return one
    command = shlex.join((PROGRAM_NAME, *argv[: wrong[-1]], new, *argv[wrong[-1] + 1 :]))
    is_question = one.hint is not None and one.hint.startswith("did you mean")
    return replace(one, hint=f"did you mean `{command}`?" if is_question else f"{one.hint}: `{command}`")


def _annotate(error: Orch23Error, console: Console) -> None:
    """Show the diagnostics beside the lines of a pull request, too."""
    folder = console.folder_in_repository(_root(console))
    located = [
        one
        if one.location is None
        else replace(one, location=replace(one.location, file=str(folder / one.location.file)))
        for one in error.diagnostics
    ]
    console.write_err(render_diagnostics(located, {}, style="github"))


def _root(console: Console) -> Path:
    """Return the root that the command found; if it found none yet, the root of the working directory."""
    return (console.found[0] if console.found else find_project(console.here)).root


def _sources(error: Orch23Error, root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for diagnostic in error.diagnostics:
        locations = [diagnostic.location, *(related.location for related in diagnostic.related)]
        for file in {location.file for location in locations if location is not None} - found.keys():
            # The file may be removed, a link or huge: then the message is shown without an excerpt.
            try:
                data = read_file(root, file, _MAX_BYTES + 1)
            except (OSError, SafetyError):
                continue
            if data is not None and len(data) <= _MAX_BYTES:
                found[file] = data.decode("utf-8", errors="replace")
    return found


def _bug(error: Exception | SystemExit, console: Console) -> int:
    """Report an error of a plugin with its code; report a bug in one line and write its traceback to a file."""
    if (fault := plugin_error_of(error)) is not None:
        return _report(fault, console)
    # A traceback can show values of variables in messages, so secrets are removed before it is written.
    text = console.redact("".join(traceback.format_exception(error)))
    root, path = _root(console), f"{LOGS_FOLDER}/crash-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.txt"
    try:
        # The text of an error may have private data: only this user can read the file.
        replace_file(root, path, text.encode("utf-8", "replace"), PRIVATE_FILE_MODE)
        where = f"its traceback is in {os.path.relpath(root / path, console.here.resolve())}"
    except (OSError, SafetyError) as refused:
        where = f"its traceback could not be written ({getattr(refused, 'strerror', refused)})"
    first_line = visible(f"{type(error).__name__}: {error}").split("\n", 1)[0]
    plugins = ", ".join(used_plugins())
    origin = f"orch23 or in a plugin that it uses, {plugins}" if plugins else "orch23"
    console.write_err(f"error: this is a bug in {origin} ({first_line}); {where}\n")
    return ExitCode.BUG
