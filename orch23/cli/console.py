"""Write to stdout and stderr: redaction, colors, closed pipes."""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeAlias

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError, Orch23Error, custom_exit_code
from orch23.report.values import LINE_WIDTH, Style, marks_for
from orch23.snapshot.fast_path import StaleSnapshot, color_by_environment
from orch23.text.secrets import Secrets, secrets_from

if TYPE_CHECKING:
    from orch23.cli.discovery import FoundProject
    from orch23.cli.watched_build import WatchedBuild
    from orch23.report.terminal import ProgressLine, TerminalArea


ColorChoice: TypeAlias = Literal["auto", "always", "never"]
_USUAL_SIZE = os.terminal_size((80, 24))


class Console(Struct, frozen=True, kw_only=True, dict=True):
    """The streams and the environment of one command: results go to stdout, progress and warnings to stderr.

    `exit_codes` are those of the pipeline, once it is loaded. `argv` is the command line, `began_ns` when it started,
    in ns since 1970. `err_written` collects what was written to stderr: a snapshot repeats it in later builds with
    nothing to do. `stale_snapshot` is the snapshot of an earlier build in which files have changed since. `found` is
    the project, once it was searched for, and `notes` what was written about its root. `parameters` are those of the
    command, if a snapshot may store them; with `was_parsed` an earlier build has parsed them. `watched` is what `watch`
    asks of a build. `resources` are closed when the command ends.
    """

    here: Path = field(default_factory=lambda: working_directory() or Path("/"))
    color: ColorChoice = "auto"
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    exit_codes: dict[str, int] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    began_ns: int = field(default_factory=lambda: time_ns())  # noqa: PLW0108 - looked up late: tests patch it
    err_written: list[str] = field(default_factory=list)
    stale_snapshot: StaleSnapshot | None = None
    found: "list[FoundProject]" = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    was_parsed: bool = False
    watched: "WatchedBuild | None" = None
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @cached_property
    def progress(self) -> "ProgressLine":
        """The line on stderr that shows that files are hashed or copied."""
        from orch23.report.terminal import ProgressLine  # noqa: PLC0415 - for commands that read or copy files

        return ProgressLine(write=_write_err, clock=monotonic, area=self.area, redact=self.redact)

    @cached_property
    def _can_overwrite(self) -> bool:
        return sys.stderr.isatty() and self.environ.get("TERM", "dumb") != "dumb"

    @cached_property
    def area(self) -> "TerminalArea | None":
        """The bottom of the terminal that stderr is, to be painted again and again; None if it is none, or in CI."""
        if not self._can_overwrite or self.environ.get("CI"):
            return None
        from orch23.report.terminal import TerminalArea  # noqa: PLC0415 - only on a terminal

        # These terminals cut their lines; tmux, which may call itself `screen`, breaks them.
        reflows = self.environ["TERM"] not in ("linux", "screen", "xterm") or "TMUX" in self.environ
        return TerminalArea(write=_write_err, size=_terminal_size, reflows=reflows)

    def exit_number_of(self, stopped: Orch23Error) -> int:
        """Return the exit code for an error: the pipeline's own, if it sets one in `exit_codes`."""
        return custom_exit_code(stopped.exit_code, stopped.diagnostics, self.exit_codes)

    def write_out(self, text: str) -> None:
        """Write the result of the command to stdout."""
        with self._cleared():
            _write(sys.stdout, self.redact(text))

    def write_err(self, text: str) -> None:
        """Write to stderr: progress, warnings, errors."""
        redacted = self.redact(text)
        with self._cleared():
            self.err_written.append(redacted)
            _write_err(self._fitted(redacted))

    def line_width(self) -> int:
        """Return the number of columns of a line on stderr."""
        return _terminal_size().columns if self._can_overwrite else LINE_WIDTH

    def _fitted(self, text: str) -> str:
        if not self._can_overwrite or max(map(len, text.split("\n"))) <= (columns := _terminal_size().columns):
            return text
        from orch23.report.terminal import fit_lines  # noqa: PLC0415 - few lines are that long

        return fit_lines(text, columns)

    def write_diagnostics(self, diagnostics: Sequence[Diagnostic], sources: Mapping[str, str] | None = None) -> None:
        """Write diagnostics to stderr, with excerpts of `sources`: path -> text."""
        if diagnostics:
            from orch23.report.diagnostics import render_diagnostics  # noqa: PLC0415 - few builds have any

            self.write_err(render_diagnostics(diagnostics, sources or {}, color=self.err_style.color))

    def _cleared(self) -> "contextlib.AbstractContextManager[None]":
        # `cached_property` keeps its value here: a command that paints nothing must not load it to clear it.
        area = self.__dict__.get("area")
        return contextlib.nullcontext() if area is None else area.cleared()

    def redact(self, text: str) -> str:
        """Return a text with the secrets of the environment replaced."""
        return self._secrets.redact(text)

    @cached_property
    def _secrets(self) -> Secrets:
        return secrets_from(self.environ)

    @property
    def is_in_github_actions(self) -> bool:
        """Whether the command runs in a job of GitHub Actions."""
        return self.environ.get("GITHUB_ACTIONS") == "true"

    def folder_in_repository(self, root: Path) -> PurePosixPath:
        """Return the folder of a project in the repository that GitHub Actions checked out; `.` if it is unknown."""
        checkout = self.environ.get("GITHUB_WORKSPACE")
        is_inside = bool(checkout) and root.is_relative_to(checkout or "")
        return PurePosixPath(root.relative_to(checkout or "")) if is_inside else PurePosixPath()

    @property
    def is_interactive(self) -> bool:
        """Whether the user can be asked: stdin and stderr are terminals."""
        # Python sets stdin to None if it was closed before the start.
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def out_style(self) -> Style:
        """The style of stdout."""
        return self._style(sys.stdout)

    @property
    def err_style(self) -> Style:
        """The style of stderr."""
        return self._style(sys.stderr)

    def _style(self, stream: TextIO) -> Style:
        return Style(marks=marks_for(stream.encoding), color=use_color(self.color, self.environ, stream))


def _terminal_size() -> os.terminal_size:
    try:
        size = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        return _USUAL_SIZE
    # Some serial lines and containers report no size.
    return size if size.columns and size.lines else _USUAL_SIZE


def working_directory() -> Path | None:
    """Return the working directory of the process; None if it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def ignore_closed_pipe(write: Callable[[str], None], stream: TextIO) -> Callable[[str], None]:
    """Return a write that does nothing once the stream is closed by its reader: a build continues without a screen."""

    def attempt(text: str) -> None:
        try:
            write(text)
        except BrokenPipeError:
            redirect_to_devnull(stream)

    return attempt


def redirect_to_devnull(stream: TextIO) -> None:
    """Point a closed stream to /dev/null: otherwise the interpreter's last flush at exit reports a broken pipe."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)


def use_color(choice: ColorChoice, environ: Mapping[str, str], stream: TextIO) -> bool:
    """Return whether a stream gets colors: by --color, else NO_COLOR, else CLICOLOR_FORCE, else if it is a terminal."""
    return choice == "always" if choice != "auto" else color_by_environment(environ, terminal=stream.isatty())


def _write_err(text: str) -> None:
    # If the reader is gone, the exit code says what happened.
    ignore_closed_pipe(partial(_write, sys.stderr), sys.stderr)(text)


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    # A terminal with a narrow encoding, such as LANG=C, must not end a build with a UnicodeEncodeError.
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def open_console(consoles: list[Console], directory: str, color: ColorChoice, **given: Any) -> Console:
    """Return the console of a command line that names a directory and colors, and add it to the `consoles`.

    Raises:
        NotFoundError: the directory does not exist.
    """
    # With an absolute -C the working directory does not matter, even if it was removed.
    started = Path("/") if Path(directory).is_absolute() else working_directory()
    here = None if started is None else started / directory
    if here is None or not here.is_dir():
        why = "the working directory was removed" if here is None else f"`{directory}` is not an existing directory"
        raise NotFoundError(Diagnostic("E667", why, hint="change to a folder that exists, or name one with `-C`"))
    consoles.append(Console(here=here, color=color, **given))
    return consoles[-1]
