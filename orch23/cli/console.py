"""Write to stdout and stderr: redaction, colors, closed pipes."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from msgspec import Struct, field

from orch23.model.errors import Orch23Error, custom_exit_code
from orch23.report.marks import Style, marks_for
from orch23.snapshot.fast_path import StaleSnapshot, color_by_environment

if TYPE_CHECKING:
    from orch23.cli.found_project import FoundProject
    from orch23.decide.secrets import Secrets
    from orch23.report.progress import ProgressLine


ColorChoice: TypeAlias = Literal["auto", "always", "never"]


class Console(Struct, frozen=True, kw_only=True):
    """The streams and the environment of one command: results go to stdout, progress and warnings to stderr.

    `exit_codes` are those of the pipeline, once it is loaded. `argv` is the command line, `began_ns` when it started,
    in ns since 1970. `err_written` collects what was written to stderr: it becomes the answer of later builds with
    nothing to do. `stale_snapshot` is the snapshot of an earlier build in which files have changed since. `found` is
    the project, once it was searched for, and `notes` what was written about its root.
    """

    here: Path = field(default_factory=lambda: working_directory() or Path("/"))
    color: ColorChoice = "auto"
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    exit_codes: dict[str, int] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    began_ns: int = field(default_factory=lambda: time_ns())  # noqa: PLW0108 - looked up late: a test has its own clock
    err_written: list[str] = field(default_factory=list)
    stale_snapshot: StaleSnapshot | None = None
    found: "list[FoundProject]" = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _lines: "list[ProgressLine]" = field(default_factory=list)
    _known: "list[Secrets]" = field(default_factory=list)

    @property
    def progress(self) -> "ProgressLine":
        """Give the line on stderr that shows that files are hashed or copied; anything else that is told clears it."""
        if not self._lines:
            from orch23.report.progress import ProgressLine  # noqa: PLC0415 - for what reads or copies files

            terminal = sys.stderr.isatty() and self.environ.get("TERM", "dumb") != "dumb"
            write = ignore_closed_pipe(lambda text: _write(sys.stderr, self.redact(text)), sys.stderr)
            self._lines.append(ProgressLine(write=write, clock=monotonic, is_terminal=terminal))
        return self._lines[0]

    def exit_number_of(self, stopped: Orch23Error) -> int:
        """Return the number to end with for what stopped a command."""
        return custom_exit_code(stopped.exit_code, stopped.diagnostics, self.exit_codes)

    def write_out(self, text: str) -> None:
        """Write to stdout: what the command was asked for."""
        self._clear()
        _write(sys.stdout, self.redact(text))

    def write_err(self, text: str) -> None:
        """Write to stderr: progress, warnings, complaints."""
        self._clear()
        plain = self.redact(text)
        self.err_written.append(plain)
        _write(sys.stderr, plain)

    def _clear(self) -> None:
        for line in self._lines:
            line.clear()

    def redact(self, text: str) -> str:
        """Return a text without the secrets of the environment: nothing that is told or kept holds one."""
        return self._secrets().redact(text)

    def _secrets(self) -> "Secrets":
        """Return the secrets of the environment, which are looked for once."""
        if not self._known:
            from orch23.decide.secrets import secrets_from  # noqa: PLC0415 - not for a page of help

            self._known.append(secrets_from(self.environ))
        return self._known[0]

    @property
    def is_interactive(self) -> bool:
        """Say whether a person is there to answer: a terminal to read from, and one to ask on."""
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def out_style(self) -> Style:
        """Give the style of stdout."""
        return self._style(sys.stdout)

    @property
    def err_style(self) -> Style:
        """Give the style of stderr."""
        return self._style(sys.stderr)

    def _style(self, stream: TextIO) -> Style:
        return Style(marks=marks_for(stream.encoding), color=use_color(self.color, self.environ, stream))


def working_directory() -> Path | None:
    """Return the folder that the process works in, None where it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def ignore_closed_pipe(write: Callable[[str], None], stream: TextIO) -> Callable[[str], None]:
    """Return a write that is given up in silence once nobody reads the stream: a build goes on without its screen."""
    gone = False

    def attempt(text: str) -> None:
        nonlocal gone
        if gone:
            return
        try:
            write(text)
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            gone = True
            redirect_to_devnull(stream)

    return attempt


def redirect_to_devnull(stream: TextIO) -> None:
    """Let a stream that nobody reads end nowhere, so that the interpreter's last flush does not complain."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def use_color(choice: ColorChoice, environ: Mapping[str, str], stream: TextIO) -> bool:
    """Say whether a stream gets colours: by the option, else NO_COLOR, else CLICOLOR_FORCE, else what it is."""
    if choice != "auto":
        return choice == "always"
    return color_by_environment(environ, terminal=stream.isatty())


def _write(stream: TextIO, text: str) -> None:
    """Write a text, with what the stream's encoding lacks as escapes, and let it be seen at once."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
