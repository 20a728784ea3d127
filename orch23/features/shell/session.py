"""Run `orch23 shell`: start a shell or a command in the sandbox of a step, and relay its terminal."""

import contextlib
import fcntl
import math
import os
import select
import shlex
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.cli.build_run import interrupt_on_signal
from orch23.cli.console import Console
from orch23.cli.opening import open_stages
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, hidden_paths
from orch23.engine.worker_threads import executor_of
from orch23.execute.cleanup import temporary_folder
from orch23.execute.launch import Launch, Launcher, PlainLauncher, SandboxLauncher, not_allowed_error
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.execute.sandbox.visible_paths import SYSTEM_FOLDERS
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.features.shell.step import FoundStep, find_step
from orch23.model.action import PYTHON, ActionOutcome, Completed, EngineUnavailable, InputsChanged
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ExitCode, NotFoundError, UsageError
from orch23.model.pipeline import LOCAL_EXECUTOR
from orch23.model.text import join_first, visible
from orch23.resolve.commands import REPORTER_MODULE
from orch23.store.safe_files import PRIVATE_FOLDER_MODE, make_folder, write_all

_LOOK_EACH_MS = 100
_REST_WITHIN_S = 5.0

# The sandbox starts a process with its own stdin, stdout and stderr, in a session without a terminal. This program, in
# the sandbox, takes the streams of the shell in their place; job control needs it as the terminal of the session.
TAKE_STREAMS: Final = """\
import fcntl, os, signal, sys, termios
given, argv = [int(one) for one in sys.argv[1:4]], sys.argv[4:]
for number, one in enumerate(given):
    os.dup2(one, number)
for one in {*given} - {0, 1, 2}:
    os.close(one)
if os.isatty(0):
    try:
        os.setsid()
    except PermissionError:
        pass
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for one in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(one, signal.SIG_DFL)
try:
    os.execvp(argv[0], argv)
except OSError as problem:
    print(f"{argv[0]}: {problem.strerror}", file=sys.stderr, flush=True)
    os._exit(127 if isinstance(problem, FileNotFoundError) else 126)
"""


def has_terminal() -> bool:
    """Return whether stdin and stdout are terminals."""
    return os.isatty(0) and os.isatty(1)


@contextlib.contextmanager
def relayed_streams() -> Iterator[tuple[int, int, int]]:
    """Yield the descriptors that a process is to have as stdin, stdout and stderr, relayed until the end of the block.

    They are a new terminal if this process has one, else pipes. So the process can neither type into the terminal of
    the user, nor open what stdout is redirected to.
    """
    with contextlib.ExitStack() as stack:
        ended, never = threading.Event(), threading.Event()
        theirs, pairs = _terminal(stack) if has_terminal() else _pipes()
        threads = [
            threading.Thread(target=_relay, args=(*pair, ended if pair[0] == 0 else never), daemon=True)
            for pair in pairs
        ]
        for thread in threads:
            thread.start()
        try:
            yield theirs
        finally:
            # What the process wrote is read up to the end, which comes when no process has the other side.
            for one in {*theirs}:
                os.close(one)
            for thread in threads[1:]:
                thread.join(_REST_WITHIN_S)
            ended.set()


def _pipes() -> tuple[tuple[int, int, int], list[tuple[int, int]]]:
    # Without a stdin, what has its number is another file.
    given = 0 if sys.stdin is not None else os.memfd_create("orch23-stdin")
    (stdin, ours), (out, stdout), (errors, stderr) = os.pipe(), os.pipe(), os.pipe()
    return (stdin, stdout, stderr), [(given, ours), (out, 1), (errors, 2)]


def _terminal(stack: contextlib.ExitStack) -> tuple[tuple[int, int, int], list[tuple[int, int]]]:
    near, far = os.openpty()
    settings = termios.tcgetattr(0)
    termios.tcsetattr(far, termios.TCSANOW, settings)

    def resize(*_: object) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(near, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))

    def restore() -> None:
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(0, termios.TCSADRAIN, settings)

    resize()
    stack.callback(signal.signal, signal.SIGWINCH, signal.signal(signal.SIGWINCH, resize))
    # Every key goes to the other terminal, also Ctrl-C, and what was typed ahead.
    tty.setraw(0, termios.TCSADRAIN)
    stack.callback(restore)
    return (far, far, far), [(0, os.dup(near)), (near, 1)]


def _relay(source: int, target: int, ended: threading.Event) -> None:
    """Copy until the end of the source, or until one side is gone; then close our end."""
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    with contextlib.suppress(OSError):
        while not ended.is_set():
            if waiting.poll(_LOOK_EACH_MS):
                data = os.read(source, 1 << 16)
                if not data:
                    break
                write_all(target, data)
    # A process that writes to a closed pipe ends, as one in a shell would.
    os.close(source if target in (1, 2) else target)


_REPORTED = ("E619", "E620")  # processes that could not be killed, and a limit of the step


def open_shell(
    console: Console, *, args: PipelineArguments, attempt: int | None, command: str | None, allow_unsandboxed: bool
) -> int:
    """Open a shell where a step ran, or run a command there, and return its exit code.

    Raises:
        NotFoundError: there is no such attempt, or the store does not have its files any more.
        ConfigurationError: the step cannot be isolated here as in a build, or its interpreter is missing.
    """
    # click passes the words after `--` as arguments, too.
    words = console.argv[console.argv.index("--") + 1 :] if "--" in console.argv else ()
    args = replace(args, arguments=args.arguments[: len(args.arguments) - len(words)])
    if words and command is not None:
        raise UsageError(Diagnostic("E641", "`-c` and `-- COMMAND` contradict each other", hint="give one of them"))
    project, (name,) = open_stages(console, args, 1)
    step = find_step(project, name, attempt)
    sandbox = SandboxLauncher(best_tier_once, closed=hidden_paths(project), allowed=allow_unsandboxed)
    plain = PlainLauncher(None if allow_unsandboxed else not_allowed_error())
    launcher = sandbox if step.action.sandbox else plain
    shell = _Shell(console, project, step, launcher, words if command is None else ("-c", command))
    # Not where builds have their sandbox directories: each build empties that folder.
    make_folder(folder := project.store.folder / "shells", PRIVATE_FOLDER_MODE)
    with temporary_folder("sandbox", folder) as own:
        return shell.run(SandboxDirs(own, project.store.sources, meter=project.settings.meter))


class _Shell(Struct, frozen=True):
    """A launcher that starts a shell in place of a step. `words` are the arguments of the shell, or another command."""

    console: Console
    project: Project
    step: FoundStep
    launcher: Launcher
    words: Sequence[str]
    streams: ExitStack = field(default_factory=ExitStack)

    @property
    def tier(self) -> str:
        return self.launcher.tier

    def run(self, sandbox_dirs: SandboxDirs) -> int:
        """Run it, and return its exit code, or 128 + the number of the signal that ended it."""
        executor = LocalExecutor(
            sandbox_dirs=sandbox_dirs,
            contents=self.project.store.contents,
            workers=1,
            interpreters=self.project.facts.path_of,
            launcher=self,
            unconfined=self,
        )
        argv = self.step.action.argv
        if REPORTER_MODULE in argv:
            at = argv.index(REPORTER_MODULE)
            argv = (*argv[: at - 1], *argv[at + 1 :])
        # What is written in the tree does not count as a result, so nothing of it is stored.
        action = replace(self.step.action, argv=argv or (PYTHON,), reports=False, timeout_s=math.inf, scratch=("*",))
        numbers: list[int] = []

        def interrupt(number: int) -> None:
            numbers.append(number)
            executor.cancel()

        with closing(executor), interrupt_on_signal(interrupt), self.streams:
            outcome = executor.run(action)
        return 128 + numbers[0] if numbers else self._exit_code(outcome)

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Say where the shell is, connect it, and isolate it as the step."""
        pipeline, named = self.project.pipeline, Path(self.console.environ.get("SHELL", ""))
        if is_open := self.tier == PlainLauncher.tier:
            self.launcher.prepare(launch)  # it may refuse: before anything is said
        is_seen = is_open or any(map(named.resolve().is_relative_to, SYSTEM_FOLDERS))
        shell = str(named) if named.is_absolute() and is_seen and os.access(named, os.X_OK) else "/bin/sh"
        is_shell = not self.words or self.words[0] == "-c"
        lines = [f"note: {self.step.note}"] if self.step.note else []
        if (name := executor_of(self.step.stage, pipeline, pipeline.executor)) != LOCAL_EXECUTOR:
            lines.append(f"note: the step runs by the executor `{name}`; this is the sandbox of this machine")
        for line in (*lines, *(self._description(launch) if is_shell else ())):
            self.console.write_err(f"{visible(line)}\n")
        terminal = {"TERM": self.console.environ.get("TERM", "dumb")} if has_terminal() else {}
        fds = self.streams.enter_context(relayed_streams())
        words = (shell, *self.words) if is_shell else self.words
        argv = (str(launch.interpreter), "-I", "-S", "-c", TAKE_STREAMS, *map(str, fds), *words)
        env, pass_fds = {**terminal, **launch.env}, (*launch.pass_fds, *dict.fromkeys(fds))
        return self.launcher.prepare(replace(launch, argv=argv, env=env, pass_fds=pass_fds))

    def _description(self, launch: Launch) -> Sequence[str]:
        step, action, argv = self.step, self.step.action, launch.argv
        if argv[0] == str(launch.interpreter):
            argv = (launch.interpreter.name, *argv[1:])
        where = launch.sandbox_dir.seen_from_inside(self.tier).work / launch.cwd.relative_to(launch.sandbox_dir.work)
        tree = ("the whole tree",) if action.writable is None else ("HOME", "TMPDIR", *action.writable)
        is_open = self.tier == PlainLauncher.tier
        network = "with" if action.network or is_open else "without"
        held = "but without a sandbox, what you write elsewhere stays" if is_open else "no change reaches the project"
        return (
            f"stage {step.stage.name}, {step.title}",
            f"  $ {shlex.join(argv)}" if action.argv else "  its step starts no program",
            f"  in {where}, sandbox {self.tier}, {network} network",
            f"  writable: {join_first(tree, 5)}",
            f"These are copies: {held}; `exit` ends it.",
        )

    def _exit_code(self, outcome: ActionOutcome) -> int:
        name = self.step.stage.name
        match outcome:
            case Completed(result=result):
                self.console.write_diagnostics([one for one in result.violations if one.code in _REPORTED])
                self.console.write_err(result.output.text)
                return result.exit_code
            case InputsChanged(paths=paths):
                text = f"the store does not have the bytes of {join_first(paths, 5)} any more"
                again = self.project.pipeline.command_line("build", "--force", name)
                hint = f"`{again}` runs the stage again, with the files of today"
                raise NotFoundError(Diagnostic("E664", text, hint=hint, subject=name))
            case EngineUnavailable(reason=reason, diagnostic=barred):
                hint = "`orch23 doctor` checks the machine"
                other = Diagnostic("E309", f"the shell could not be started: {reason}", hint=hint)
                raise ConfigurationError(replace(barred or other, subject=name))
            case _:
                return ExitCode.SIGINT
