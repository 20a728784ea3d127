"""The door: arguments to a command to an exit code. Holds the program's one try."""

import contextlib
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from click.shell_completion import shell_complete

from orch23.cli.console import Console, silence
from orch23.cli.ending import end, open_streams
from orch23.cli.group import PROGRAM, NoSuchCommandError, orch23
from orch23.cli.project import find_root
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, Orch23Error, SafetyError
from orch23.snapshot.reply import Unrest

_COMPLETE = "_ORCH23_COMPLETE"
_MOST_BYTES = 1_048_576
_MACHINE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room on the disk"),
    errno.EIO: "see what is wrong with the disk (`dmesg`)",
    errno.EROFS: "the file system is mounted read-only; mount it for writing",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (`ulimit -n`), or build with fewer jobs"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "let this user write there"),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO),
        "something else stands in the place of a file or folder of orch23; move it away",
    ),
    errno.EINTR: "a signal interrupted a call of the file system",
    errno.ENAMETOOLONG: "take a shorter name, or a folder that lies less deep",
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN), "free memory, or build with fewer jobs"),
}


def run() -> None:
    """Be the program: run the command line and end with its code."""
    open_streams()
    end(main(sys.argv[1:]))


def main(argv: Sequence[str], unrest: Unrest | None = None) -> int:
    """Run a command line and return its exit code; never leaves by an exception.

    `unrest` is what is known of it from a build before.
    """
    try:
        return _run(argv, unrest)
    except KeyboardInterrupt:
        return ExitCode.SIGINT
    except Exception as error:  # noqa: BLE001 - what went wrong while another fault was reported
        return _unreported(error)


def _unreported(error: Exception) -> ExitCode:
    """Report in a line, with what is loaded, a fault of which the report itself failed."""
    is_refused = isinstance(error, OSError) and error.errno in _MACHINE
    text = ascii(f"{type(error).__name__}: {error}")[1:-1]
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"error: {Console().plain(text)}\n")
        sys.stderr.flush()
    return ExitCode.MACHINE if is_refused else ExitCode.BUG


def _run(argv: Sequence[str], unrest: Unrest | None) -> int:
    instruction = os.environ.get(_COMPLETE)
    if instruction:
        return shell_complete(orch23, {}, PROGRAM, _COMPLETE, instruction)
    context: click.Context | None = None
    try:
        with orch23.make_context(
            PROGRAM, list(argv), auto_envvar_prefix="ORCH23", obj=(tuple(argv), unrest)
        ) as context:
            code = orch23.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as asked:
        return asked.exit_code
    except click.ClickException as wrong:
        return _usage(wrong)
    except Orch23Error as stopped:
        code = _without_strange_store(argv, stopped, _console(context))
        return _stopped(stopped, _console(context)) if code is None else code
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.SIGINT
    except OSError as refused:
        return _refused(refused, _console(context))
    except Exception as error:  # noqa: BLE001 - the last resort: a bug is told, never shown as a traceback
        return _bug(error, _console(context))
    return code if isinstance(code, int) else ExitCode.OK


def _without_strange_store(argv: Sequence[str], stopped: Orch23Error, console: Console) -> int | None:
    """Set a store aside that is not the user's, if that is what stopped a command, and run the command again."""
    from orch23.report.diagnostics import render  # noqa: PLC0415 - only where something went wrong
    from orch23.store.standing import StrangeStoreError, set_aside  # noqa: PLC0415 - likewise

    if not isinstance(stopped, StrangeStoreError):
        return None
    try:
        warning = set_aside(stopped.folder)
    except OSError as refused:
        return _refused(refused, console)
    console.tell(render((warning,), {}, color=console.err_style.color))
    return main(argv)


def _refused(error: OSError, console: Console) -> ExitCode:
    """Tell what the machine refused: no fault of the pipeline, and as a rule none of orch23."""
    if error.errno == errno.EPIPE:  # whoever read has had enough
        silence(sys.stdout)
        silence(sys.stderr)
        return ExitCode.OK
    if error.errno not in _MACHINE:
        return _bug(error, console)
    way_out = _MACHINE[error.errno]
    from orch23.report.diagnostics import render  # noqa: PLC0415 - only where something went wrong

    where = error.filename2 or error.filename
    message = f"{error.strerror}{f': {where}' if where is not None else ''}"
    console.tell(
        render([Diagnostic("E650", message, hint=f"{way_out}; then build again, nothing that was done is lost")], {})
    )
    return ExitCode.MACHINE


def _console(context: click.Context | None) -> Console:
    """Return the console that the options before the command made, or one without options."""
    made = context.obj if context is not None else None
    return made if isinstance(made, Console) else Console()


def _usage(wrong: click.ClickException) -> ExitCode:
    context = wrong.ctx if isinstance(wrong, click.UsageError) else None
    usage = f"{context.get_usage()}\n" if context is not None else ""
    command = context.command_path if context is not None else PROGRAM
    from orch23.report.diagnostics import visible  # noqa: PLC0415 - likewise

    hint = f"`{command} --help` lists what there is"
    if isinstance(wrong, NoSuchCommandError) and wrong.near:
        hint = f"did you mean `{wrong.near}`? {hint}"
    told = f"{usage}error: {visible(wrong.format_message())}\n  = help: {hint}\n"
    Console().tell(told)
    return ExitCode.USAGE


def _stopped(stopped: Orch23Error, console: Console) -> int:
    from orch23.report.diagnostics import render  # noqa: PLC0415 - likewise

    sources = getattr(stopped, "sources", None)
    if not isinstance(sources, Mapping):
        sources = _sources(stopped, find_root(console.here.resolve()))
    console.tell(render(stopped.diagnostics, sources, color=console.err_style.color))
    return console.number_of(stopped)


def _sources(stopped: Orch23Error, root: Path) -> dict[str, str]:
    """Return the texts that the diagnostics point into, as far as they can be read."""
    from orch23.store.beneath import open_file, read_all  # noqa: PLC0415 - only for who made a mistake

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


def _bug(error: Exception, console: Console) -> ExitCode:
    """Keep the traceback in a file, for the report; the screen gets one line."""
    import traceback  # noqa: PLC0415 - likewise

    from orch23.report.diagnostics import visible  # noqa: PLC0415 - likewise

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
    console.tell(f"error: this is a bug in orch23 ({told}); {where}\n")
    return ExitCode.BUG
