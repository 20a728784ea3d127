"""Report what stopped a command: usage errors with what is meant, diagnostics with notes, system errors, bugs."""

import errno
import math
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from msgspec.structs import replace

from orch23.cli.console import Console, redirect_to_devnull
from orch23.cli.declaration import NoSuchCommandError
from orch23.cli.discovery import MARKER, PIPELINE_SUFFIXES, FoundProject, find_project
from orch23.cli.group import COMMAND_NAMES, PROGRAM_NAME, orch23
from orch23.model.diagnostic import Diagnostic, Location, Related, Severity, location_of_line, nearest_names, question
from orch23.model.errors import OS_ERROR_HINTS, BusyError, ExitCode, Orch23Error, SafetyError
from orch23.model.paths import LOGS_FOLDER
from orch23.model.plugins import plugin_error_of, used_plugins
from orch23.model.text import join_first, visible
from orch23.report.diagnostics import render_diagnostics
from orch23.store.access import ForeignStoreError, move_store_aside
from orch23.store.project_store import STORE_NAME
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_file, replace_file

_MAX_BYTES = 1_048_576
_REMOVED = "`git clean -fdx` does that, `git clean -fdx -e .orch23 -e logs` does not; build again"


def report_error(
    error: Exception | SystemExit, console: Console, argv: Sequence[str] = (), began_s: float = -math.inf
) -> int | None:
    """Report an error and return the exit code; None if the command must run again.

    `argv` are the words of the command line: for a misspelt one the whole command line is shown. `began_s` is when the
    command began, by the monotonic clock: it waits for the build lock from then on.
    """
    match error:
        case click.ClickException():
            return _usage(error, console, argv)
        case click.Abort():
            return ExitCode.SIGINT
        case ForeignStoreError():
            return _move_aside(error, console)
        case BusyError() if error.wait is not None and error.wait(began_s):
            return None
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
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    message = f"{error.strerror}{f': {path}' if path is not None else ''}{notes}"
    place = Path(path).parent if isinstance(path, str) else _root(console)
    disk = f" (`df -h {place}` shows it)" * (error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    hint = f"{OS_ERROR_HINTS[error.errno]}{disk}; then build again, finished stages are kept"
    console.write_diagnostics((Diagnostic("E650", message, hint=hint),))
    return ExitCode.MACHINE


def _usage(error: click.ClickException, console: Console, argv: Sequence[str]) -> ExitCode:
    context = error.ctx if isinstance(error, click.UsageError) else None
    usage = f"{context.get_usage()}\n" if context is not None else ""
    hint = _usage_hint(error, console.here, argv)
    if isinstance(error, click.NoSuchOption):
        near = nearest_names(error.option_name, error.possibilities or ())
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    Console().write_err(f"{usage}error: {visible(error.format_message())}\n  = help: {hint}\n")
    return ExitCode.USAGE


def _report(error: Orch23Error, console: Console, argv: Sequence[str] = ()) -> int:
    sources = getattr(error, "sources", None)
    if not isinstance(sources, Mapping):
        sources = _sources(error, _root(console))
    diagnostics = tuple(_with_command(one, console.here, argv) for one in error.diagnostics)
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


# Words of other tools, which the commands here do not resemble, or of which the nearest command does something else.
_SAME_AS = {
    **dict.fromkeys(("run", "make", "start", "exec", "execute", "repro", "apply", "up"), "build"),
    **dict.fromkeys(("check", "lint"), "validate"),
    **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("ls", "list", "stages"), "graph"),
    **dict.fromkeys(("dry-run", "status"), "plan"),
    "clean": "gc",
    "logs": "log",
}


def _usage_hint(error: click.ClickException, here: Path, argv: Sequence[str]) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else PROGRAM_NAME
    words = ""
    if isinstance(error, NoSuchCommandError):
        near = _near_commands(error.name, context, here)
        words = f"{question(near)} " if near else ""
    elif isinstance(error, click.NoSuchOption) and context is not None and context.parent is None:
        words = _meant_option(context, error.option_name, argv)
    elif isinstance(error, click.NoSuchOption) and error.option_name in ("--stage", "--stages", "--only", "--target"):
        words = f"stages are arguments: `{command} STAGE`; "
    elif isinstance(error, click.BadOptionUsage | click.BadParameter) and context is not None:
        name = getattr(error, "option_name", "")
        options = (one for one in context.command.params if name in one.opts or one is getattr(error, "param", None))
        record = next((one.get_help_record(context) for one in options), None)
        words = f"write `{record[0]}`; " if record else ""
    what = "commands" if isinstance(error, NoSuchCommandError) else "options and arguments"
    return f"{words}`{command} --help` lists {what}"


def _near_commands(word: str, context: click.Context | None, here: Path) -> list[str]:
    group = None if context is None else context.command
    if isinstance(group, click.Group) and group is not orch23:
        return nearest_names(word, sorted(group.commands))
    if _is_target(word, here):
        return [f"{PROGRAM_NAME} build {word}"]
    known = _SAME_AS.get(word)
    return [known] if known in COMMAND_NAMES else nearest_names(word, COMMAND_NAMES)


def _is_target(word: str, here: Path) -> bool:
    """Return whether a word is what `build` takes: a pipeline file, or a stage of the default pipeline."""
    if word.endswith(PIPELINE_SUFFIXES):
        return (here / word).is_file()
    try:
        from orch23.load.pipeline import load_pipeline  # noqa: PLC0415 - only for this error

        found = find_project(here)
        pipeline = None if found.pipeline is None else load_pipeline(found.pipeline, found.root).pipeline
    except (Orch23Error, OSError):
        return False  # the command is wrong in any case
    return pipeline is not None and any(stage.name == word for stage in pipeline.stages)


def _meant_option(context: click.Context, name: str, argv: Sequence[str]) -> str:
    """Return the command line with an option after the command that has it; empty if the command does not."""
    words = argv[argv.index(name) + 1 :] if name in argv else ()
    command = orch23.get_command(context, words[0]) if words else None
    if command is None or not any(name in one.opts for one in command.params):
        return ""
    instead = _SAME_AS.get(name.lstrip("-"))
    other = f", or `{PROGRAM_NAME} {instead}`" if instead else ""
    return f"options of a command come after it: did you mean `{PROGRAM_NAME} {words[0]} {name}`{other}? "


# Missing inputs, prompts, and files of responses. The first name in their messages is the path.
_MISSING = ("E822", "E831", "E404")
_PATH = re.compile(r"`([^`]+)`")
_MOST_PATHS = 3


def with_root_note(diagnostics: Sequence[Diagnostic], console: Console) -> tuple[Diagnostic, ...]:
    """Return diagnostics that name the files beside the pipeline that are meant, with one note on how to set the root.

    Without a project that the command found, or without such files, they stay as they are.
    """
    found = console.found[0] if console.found else None
    if found is None or found.pipeline is None or not any(one.code in _MISSING for one in diagnostics):
        return tuple(diagnostics)
    folder = found.pipeline.resolve().parent
    if folder == found.root or not folder.is_relative_to(found.root):
        return tuple(diagnostics)
    below = folder.relative_to(found.root).as_posix()
    meant = {n: path for n, one in enumerate(diagnostics) if (path := _path_beside(one, found.root, folder))}
    if not meant:
        return tuple(diagnostics)
    explained = [
        replace(one, hint=f"paths are relative to the root: did you mean `{below}/{meant[n]}`?", fix=None)
        if n in meant
        else one
        for n, one in enumerate(diagnostics)
    ]
    return (
        *explained,
        _note(list(dict.fromkeys(meant.values())), found, below, os.path.relpath(folder, console.here.resolve())),
    )


def _path_beside(one: Diagnostic, root: Path, folder: Path) -> str | None:
    """Return the path that a diagnostic misses below the root and that is below the directory of the pipeline."""
    name = _PATH.search(one.message) if one.code in _MISSING and one.location is not None else None
    if name is None or Path(name[1]).is_absolute() or ".." in Path(name[1]).parts:
        return None
    return name[1] if os.path.lexists(folder / name[1]) and not os.path.lexists(root / name[1]) else None


def _note(paths: list[str], found: FoundProject, below: str, folder: str) -> Diagnostic:
    names = join_first([f"`{path}`" for path in paths], _MOST_PATHS)
    verb = "is" if len(paths) == 1 else "are"
    root = visible(str(found.root))
    message = f"{names} {verb} in `{below}/`, but paths are relative to the root of the project, {root}"
    marker = shlex.quote(os.path.normpath(f"{folder}/{MARKER}"))
    where = "" if folder == "." else f" and work there: `orch23 -C {shlex.quote(folder)}`"
    hint = f"to make `{below}/` the root, `touch {marker}`{where}"
    return Diagnostic("W661", message, hint=hint, severity=Severity.NOTE)


def with_var_notes(
    diagnostics: Sequence[Diagnostic], origins: Mapping[str, str], sources: Mapping[str, str], file: str
) -> tuple[Diagnostic, ...]:
    """Return diagnostics about a pipeline file, with a note for each var that `--set` or a file of vars has set.

    `origins` are those of the vars, `sources` the texts by file. A diagnostic with related places stays as it is.
    """
    outside = {name: origin for name, origin in origins.items() if not origin.startswith(f"{file}:")}
    if not outside:
        return tuple(diagnostics)
    lines = sources.get(file, "").split("\n")
    return tuple(
        replace(one, related=tuple(_notes(one.location, lines, outside)))
        if one.location is not None and one.location.file == file and not one.related
        else one
        for one in diagnostics
    )


def _notes(place: Location, lines: Sequence[str], outside: Mapping[str, str]) -> Iterator[Related]:
    from orch23.language.expressions import members_used  # noqa: PLC0415 - as above
    from orch23.load.overrides import set_note  # noqa: PLC0415 - only for errors

    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    text = line[place.column - 1 : place.column - 1 + place.length]
    for name in sorted(members_used(text, "vars") & outside.keys()):
        yield set_note(name, location_of_line(outside[name]))  # None for an option of the command line
