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
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.kept_attempt import read_kept
from orch23.attempt.process_runner import ProcessRunner
from orch23.attempt.pytest_trust import TestTrust
from orch23.attempt.run_events import Reporter
from orch23.cli.build_run import interrupt_on_signal
from orch23.cli.consent import Consent
from orch23.cli.console import Console
from orch23.cli.opening import open_stages
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, hidden_paths, open_for_reading
from orch23.decide.dry_run import preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.ownership import is_of_plan
from orch23.decide.stage_view import StageTree
from orch23.engine.worker_threads import executor_of
from orch23.execute.cleanup import temporary_folder
from orch23.execute.launch import Launch, Launcher, PlainLauncher, SandboxLauncher, not_allowed_error
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.execute.sandbox.visible_paths import SYSTEM_FOLDERS
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import PYTHON, Action, ActionOutcome, Completed, EngineUnavailable, InputsChanged
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import ConfigurationError, ExitCode, NotFoundError, UsageError
from orch23.model.event_data import StageStatus
from orch23.model.pipeline import LOCAL_EXECUTOR, CommandsStep, Stage
from orch23.model.plan import Fresh, Restore
from orch23.model.record import Manifest, Record
from orch23.model.step import ProcessStep
from orch23.model.text import join_first, visible
from orch23.plan.planner import Selection
from orch23.report.formats import Fanout
from orch23.resolve.commands import REPORTER_MODULE, command_steps
from orch23.resolve.resolution import ResolvedStage
from orch23.store.run_logs import AttemptFiles, stage_ends
from orch23.store.safe_files import PRIVATE_FOLDER_MODE, make_folder, write_all


class FoundStep(Struct, frozen=True):
    """The action of a step, the stage as it is now, whose attempt it was, and what the user should know."""

    action: Action
    stage: Stage
    title: str
    note: str = ""


def find_step(project: Project, name: str, attempt: int | None) -> FoundStep:
    """Return the step of a stage: of the last attempt if that failed, of attempt number `attempt`, or of its result.

    Raises:
        NotFoundError: there is no such stage, attempt or result.
    """
    opened = open_for_reading(project)
    Selection(targets=(name,)).nodes(opened.state.plan)
    seen = preview(opened)
    again = f"`{project.pipeline.command_line('build', name)}` runs the stage"
    stage = seen.plan.nodes.get(name)
    if not isinstance(stage, Stage):
        items = [one for one in seen.plan.nodes if one.startswith(f"{name}@")]
        hint = f"name an item: {join_first(items, 5)}" if items else "it is skipped, or has no items yet"
        raise NotFoundError(Diagnostic("E664", f"`{name}` itself runs no step", hint=hint))
    withheld, never = "", NotFoundError(Diagnostic("E664", f"`{name}` has not run here yet", hint=again))
    # A folder of the store that no build made would be taken for the store of another user.
    if not opened.store.folder.is_dir():
        raise never
    for run, message, end in stage_ends(project.store.logs, project.pipeline.file, name):
        failed, number = end.status is StageStatus.FAILED, end.attempts if attempt is None else attempt
        withheld = end.key if end.status is StageStatus.WITHHELD else ""
        if not (failed or withheld or end.status.has_result) or (attempt is not None and not end.attempts):
            continue  # blocked or cancelled; or it had no attempt, and one is asked for
        kept = read_kept(AttemptFiles(project.store.logs / run), name, number) if failed or attempt else None
        if kept is not None:
            return FoundStep(_as_allowed(kept.action, stage), stage, f"attempt {number} of {run}, which failed")
        if failed or number > end.attempts:
            text = f"attempt {number} of `{name}` is not kept in {run}, which had {end.attempts}"
            text = text if end.attempts else f"`{name}` failed before its step could start: {message.split(chr(10))[0]}"
            raise NotFoundError(Diagnostic("E664", text, hint=f"{again} again"))
        break
    if (record := _record(opened, name, withheld)) is None:
        raise never
    if (decided := seen.decided_stages.get(name)) is None:
        text = f"what `{name}` reads is not known: a stage before it has no result"
        raise NotFoundError(Diagnostic("E664", text, hint=again))
    found = _action_of(opened, _as_recorded(decided.resolved, record.manifest), record)
    now = decided.decision
    is_todays = isinstance(now, Fresh) or (isinstance(now, Restore) and now.record.key == record.key)
    note = "" if is_todays else f"`{name}` is stale: the files are of its last result"
    return FoundStep(found, stage, "its last result", note)


def _as_allowed(kept: Action, stage: Stage) -> Action:
    """Return an action of `logs`, which are not trusted, with no more rights than the pipeline gives."""
    network, sandbox = kept.network and stage.network, kept.sandbox or stage.sandbox
    return replace(kept, network=network, sandbox=sandbox, min_tier=stage.min_tier, limits=stage.limits)


def _record(opened: OpenPipeline, name: str, withheld: str) -> Record | None:
    """Return the last result, or the one with the key `withheld`."""
    known = [one for one in opened.store.records.labelled(name) if not one.failed]
    mine = [one for one in known if is_of_plan(one, opened.state.plan, opened.store.root)]
    last = (opened.lock.records.get(name), *mine)
    return next((one for one in last if one is not None and withheld in ("", one.key)), None)


def _as_recorded(resolved: ResolvedStage, manifest: Manifest) -> ResolvedStage:
    """Return a stage with the files and the environment of a manifest."""

    def of(prefix: str) -> dict[str, str]:
        named = ((aspect.removeprefix(prefix), text) for aspect, text in manifest.items() if aspect.startswith(prefix))
        return {name: text for name, text in named if isinstance(text, str)}

    def entry(text: str) -> FileEntry:
        # Without its size: the bytes are found by the sha256 alone.
        sha256, _, link = text.partition(" -> ")
        return FileEntry(Digest(sha256.removesuffix("+x"), 0), sha256.endswith("+x"), link)

    files, verify_files, base = (
        {path: entry(text) for path, text in of(prefix).items()} for prefix in ("input:", "verify.input:", "base:")
    )
    stage = replace(resolved.stage, env=of("env:"))
    return replace(resolved, stage=stage, files=files, verify_files=verify_files, base=base)


def _action_of(opened: OpenPipeline, resolved: ResolvedStage, record: Record) -> Action:
    """Return what a build runs for a stage: its own process, else the first one that verifies its result."""
    stage, store, contents = resolved.stage, opened.store, opened.store.contents
    for data in resolved.composed:
        contents.put(data)
    runner = ProcessRunner(
        stage=stage,
        facts=resolved.facts,
        executor=LocalExecutor(sandbox_dirs=SandboxDirs(store.folder, store.sources), contents=contents, workers=1),
        contents=contents,
        tree=StageTree(opened.state, stage.name),
        redact=str,
        trust=lambda: TestTrust(opened.state, resolved, opened.state.plan),
        report=Reporter(observer=Fanout(), artifacts=AttemptFiles(store.logs)).of_stage(stage.name),
    )
    if isinstance(stage.step, ProcessStep):
        return runner.action_of(stage.step, {**resolved.parts, **resolved.files, **resolved.base})
    steps = (command_steps(one) if isinstance(one, CommandsStep) else (one,) for one in stage.verify.steps)
    process = next((one for some in steps for one in some if isinstance(one, ProcessStep)), None)
    given = {**resolved.verify_parts, **resolved.files, **resolved.verify_files, **resolved.base}
    files = {path: one for path, one in given.items() if path not in record.deleted}
    return runner.action_of(process, {**files, **record.outputs}, verifies=True)


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
    store, meter = project.store, project.settings.meter
    make_folder(folder := store.folder / "shells", PRIVATE_FOLDER_MODE)
    with temporary_folder("sandbox", folder) as own:
        return shell.run(SandboxDirs(own, store.sources, meter=meter, tool_caches=store.tool_caches))


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
        consent = Consent.of(self.project.settings.root, self.project.settings.environ)
        executor = LocalExecutor(
            sandbox_dirs=sandbox_dirs,
            contents=self.project.store.contents,
            workers=1,
            interpreters=self.project.facts.path_of,
            tools=partial(consent.tools_of, self.project),
            launcher=self,
            unconfined=self,
        )
        argv = self.step.action.argv
        if REPORTER_MODULE in argv:
            at = argv.index(REPORTER_MODULE)
            argv = (*argv[: at - 1], *argv[at + 1 :])
        # What is written in the tree does not count as a result, so nothing of it is stored.
        action = replace(self.step.action, argv=argv or (PYTHON,), reports=False, timeout_s=math.inf, scratch=("*",))
        # Of what a shell writes there, nothing stays either.
        action = replace(action, tool_caches=self.step.stage.tool_caches, cache_mode="view", views_of="")
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
