"""Run actions on this machine, each in a sandbox directory, with a maximum number at a time."""

import codecs
import contextlib
import errno
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from orch23.execute import process_tree, supervisor
from orch23.execute.cleanup import BackgroundCleaner
from orch23.execute.launch import (
    Launch,
    Launcher,
    LaunchRefusedError,
    PlainLauncher,
    cache_variables,
    process_environment,
    refused_pytest_variables,
    refused_variables,
)
from orch23.execute.process import OutputLimits, ProcessOutcome, run_process
from orch23.execute.pytest_report import ReportChannel, report_variables
from orch23.execute.resource_limits import ResourceMonitor, apply_limits
from orch23.execute.sandbox_dir import (
    ReadOnlyChanges,
    SandboxDir,
    SandboxDirs,
    TreeChanges,
    TreeStamps,
    compare_read_only,
    make_pytest_cache,
    make_writable_files,
    required_folders,
    stamp_tree,
)
from orch23.model.action import (
    PYTHON,
    TOOLS_FOLDER,
    WORKING_DIRECTORY,
    Action,
    ActionOutcome,
    ActionResult,
    Cancelled,
    Completed,
    EngineUnavailable,
    InputsChanged,
    Interpreter,
    Output,
    TimedOut,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import ConfigurationError, MissingBytesError
from orch23.model.ports import FileContentStore
from orch23.model.text import LineListener, LineSplitter
from orch23.resolve.commands import SHELL_COMMAND
from orch23.store.input_files import NewFile

SHOWN_SANDBOX_PATH = "/room"
"""What stands for the room's path in everything that a process printed: the path itself differs each time."""

_SCRIPT = "command.sh"
_ARGUMENT_BYTES, _COMMAND_BYTES = 131_072, 2_097_152
"""The limits of Linux: MAX_ARG_STRLEN with pages of 4 KiB, and a quarter of a stack of 8 MiB."""

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as every shell has it


def running_interpreter(_wanted: Interpreter) -> Path:
    """Return the interpreter that orch23 runs in."""
    return Path(sys.executable)


class LocalExecutor:
    """Run actions in the threads that ask for it. Nothing of a process is running when its outcome is there."""

    def __init__(
        self,
        *,
        rooms: SandboxDirs,
        contents: FileContentStore,
        workers: int,
        interpreters: Callable[[Interpreter], Path] = running_interpreter,
        launcher: Launcher | None = None,
        unconfined: Launcher | None = None,
        caps: OutputLimits | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        """Run `workers` actions at once at most, and become the one to whom lost children return.

        `interpreters` finds what an action needs on this machine; it may raise ConfigurationError. `unconfined` is how
        the actions are started that ask for no sandbox. `redact` takes secrets out of reports before they are stored.
        """
        self._rooms = rooms
        self._contents = contents
        self._launcher = launcher if launcher is not None else PlainLauncher()
        self._unconfined = unconfined if unconfined is not None else PlainLauncher()
        self._interpreters = interpreters
        self._redact = redact
        self._caps = caps if caps is not None else OutputLimits()
        self.has_started = False
        """Whether any process was started."""
        self._stop = threading.Event()
        self._workers = workers
        self._places = threading.Semaphore(workers)
        self._cleaner = BackgroundCleaner()
        process_tree.become_subreaper()
        process_tree.deny_memory_access()

    @property
    def sandbox(self) -> str:
        """Name the tier of the sandbox that processes run in."""
        return self._launcher.tier

    def run(self, action: Action, hear: LineListener | None = None) -> ActionOutcome:
        """Run an action as soon as there is a place for it; what it comes to is an outcome, whatever it is."""
        if self._stop.is_set():
            return Cancelled()
        with self._places:
            return self._run(action, hear)

    def cancel(self) -> None:
        """Kill everything that runs, and start nothing more: the outcomes are Cancelled."""
        self._stop.set()

    def close(self) -> None:
        """Stop whatever still runs, and wait for its end."""
        self.cancel()
        for _ in range(self._workers):
            self._places.acquire()
        self._places.release(self._workers)  # for those that waited: they are told to stop
        process_tree.kill_strays()
        supervisor.close_idle_supervisors()
        try:
            self._cleaner.close()
        finally:
            self._rooms.close()

    def _run(self, action: Action, hear: LineListener | None) -> ActionOutcome:
        if self._stop.is_set():
            return Cancelled()
        if (refusal := _refusal(action)) is not None:
            return EngineUnavailable(refusal)
        try:
            interpreter = self._interpreters(action.python)
        except ConfigurationError as missing:
            return EngineUnavailable(missing.diagnostics[0].message, diagnostic=missing.diagnostics[0])
        try:
            folders = (*action.output_folders, *required_folders(action.writable or ()))
            room = self._rooms.lay(action.inputs, action.working_directory, folders)
        except OSError as problem:
            return EngineUnavailable(f"no room could be made: {problem}", "room")
        if isinstance(room, InputsChanged):
            return room
        outcome: ActionOutcome | None = None
        try:
            outcome = self._run_in(room, action, interpreter, hear)
            return outcome
        finally:
            is_clean = outcome is not None and self._leaves_nobody(action, outcome)
            self._cleaner.do(partial(self._rooms.clear if is_clean else self._rooms.discard, room))

    def _leaves_nobody(self, action: Action, outcome: ActionOutcome) -> bool:
        """Say whether no process can know the folders of the room from now on.

        Where no other step runs, each process that is left was seen to be this one's; one that is confined may have
        been after more than its work.
        """
        ended = isinstance(outcome, Completed) and not outcome.result.violations
        return ended and self._workers == 1 and not action.sandbox

    def _run_in(self, room: SandboxDir, action: Action, interpreter: Path, hear: LineListener | None) -> ActionOutcome:
        try:
            if lost := self._lay_tools(room, action):
                return InputsChanged(lost)
            made = make_writable_files(room, action.writable or ())
            if action.writable is not None and not action.reports:
                make_pytest_cache(room)
            before = self._stamps(room, action)
        except OSError as problem:
            return EngineUnavailable(f"no room could be made: {problem}", "room")
        channel = ReportChannel() if action.reports else None
        report = None
        try:
            try:
                with _lines(room, hear) as on_output:
                    end = self._start(room, action, interpreter, channel, on_output)
            finally:
                report = channel.finish() if channel is not None else None
        except LaunchRefusedError as refused:
            return EngineUnavailable(refused.diagnostic.message, "sandbox", refused.diagnostic)
        except OSError as problem:
            return _not_started(action, problem)
        try:
            return self._outcome(
                room, action, end, report, compare_read_only(room, action.writable or (), made, before)
            )
        except OSError as problem:
            return EngineUnavailable(f"the result could not be kept: {problem}", "room")

    def _stamps(self, room: SandboxDir, action: Action) -> TreeStamps | None:
        """Return the stamps of a tree that is to stay as it is, where no sandbox keeps it so."""
        launcher = self._launcher if action.sandbox else self._unconfined
        return None if action.writable is None or launcher.tier != "none" else stamp_tree(room, action.writable)

    def _lay_tools(self, room: SandboxDir, action: Action) -> tuple[str, ...]:
        """Put the tools beside the tree, where the process can read them. Return those whose bytes are missing."""
        lost = []
        if action.tools:
            room.tools.mkdir(mode=0o700, parents=True)
        for name, entry in action.tools.items():
            try:
                with NewFile(room.tools / name, executable=entry.executable) as descriptor:
                    self._contents.copy_to(entry.digest, descriptor, name)
            except MissingBytesError:
                lost.append(name)
        return tuple(lost)

    def _start(
        self,
        room: SandboxDir,
        action: Action,
        interpreter: Path,
        channel: ReportChannel | None,
        on_output: Callable[[bytes], None] | None,
    ) -> ProcessOutcome:
        launcher = self._launcher if action.sandbox else self._unconfined
        seen = launcher.seen(room)
        env = process_environment(seen, interpreter, {**cache_variables(seen, action), **action.env})
        argv = _with_script(room, seen, action.argv)
        if argv[0] == PYTHON:
            argv = (str(interpreter), *argv[1:])
        if action.tools:
            tools, cwd = str(seen.tools), str(seen.work / action.working_directory)
            argv = tuple(one.replace(TOOLS_FOLDER, tools).replace(WORKING_DIRECTORY, cwd) for one in argv)
        if channel is not None:
            env |= report_variables(channel) | {"PYTHONPATH": str(seen.tools)}
            channel.start()
        wanted = Launch(
            argv=argv,
            env=env,
            cwd=room.work / action.working_directory,
            room=room,
            interpreter=interpreter,
            network=action.network,
            limits=action.limits,
            writable=action.writable,
            pass_fds=(channel.far_fd,) if channel is not None else (),
        )
        with launcher.prepare(wanted) as launch:
            self.has_started = True
            end = run_process(
                launch.argv,
                cwd=launch.cwd,
                env=launch.env,
                timeout_s=action.timeout_s,
                cancel=self._stop,
                log=room.log,
                caps=self._caps,
                on_output=on_output,
                marker=room.marker,
                pass_fds=launch.pass_fds,
                stdin=launch.stdin,
                confinement=launch.confinement,
                gate=launch.gate or (lambda family: apply_limits(family.leader, action.limits)),
                fault=ResourceMonitor(room.root, action.limits).fault,
            )
            return end if launch.judge is None else launch.judge(end)

    def _outcome(
        self, room: SandboxDir, action: Action, end: ProcessOutcome, report: bytes | None, read_only: ReadOnlyChanges
    ) -> ActionOutcome:
        if end.end == "cancelled":
            return Cancelled()
        output = self._output(room, end)
        scan = self._scan(room, action, end)
        scan = replace(scan, written={p: f for p, f in scan.written.items() if p not in read_only.unused})
        if end.end == "timed_out":
            return TimedOut(output, action.timeout_s, self._keep(room, scan), () if scan.violations else scan.removed)
        return Completed(
            ActionResult(
                exit_code=end.exit_code,
                written=self._keep(room, scan),
                removed=scan.removed,
                output=output,
                report=None if report is None else self._keep_report(room, report),
                violations=(*scan.violations, *_survivors(end), *_excess(end)),
                duration_s=end.duration_s,
                touched=read_only.touched,
            )
        )

    def _scan(self, room: SandboxDir, action: Action, end: ProcessOutcome) -> TreeChanges:
        """Look at what is in the room; not while one of its processes still may change it under our eyes."""
        return (
            TreeChanges({}, (), ())
            if end.survivors or end.lost
            else self._rooms.scan(room, action.inputs, action.scratch)
        )

    def _keep(self, room: SandboxDir, scan: TreeChanges) -> dict[str, FileEntry]:
        """Put what was written into the store; nothing of a tree that no result may be."""
        if scan.violations or not scan.written:
            return {}
        kept = {}
        with self._rooms.opened(room) as open_one:
            for path, executable in scan.written.items():
                descriptor = open_one(path)
                try:
                    kept[path] = FileEntry(self._contents.adopt(descriptor, path.rpartition("/")[2]), executable)
                finally:
                    os.close(descriptor)
        return kept

    def _keep_report(self, room: SandboxDir, report: bytes) -> Digest:
        """Store a report without secrets, with one name for every room."""
        text = report.replace(str(room.root).encode(), SHOWN_SANDBOX_PATH.encode()).decode("utf-8", "surrogateescape")
        return self._contents.put(self._redact(text).encode("utf-8", "surrogateescape"))

    def _output(self, room: SandboxDir, end: ProcessOutcome) -> Output:
        """Return what was printed, with one name for every room."""
        path = str(room.root).encode()
        name = SHOWN_SANDBOX_PATH.encode()
        if end.log is None:
            return Output(_text((end.head + end.tail).replace(path, name)), end.size_bytes)
        left_out = end.size_bytes - len(end.head) - len(end.tail)
        text = "\n".join(
            (
                _text(end.head.replace(path, name)),
                f"... {left_out} bytes are left out here; the log has them ...",
                _text(end.tail.replace(path, name)),
            )
        )
        if end.end == "flooded":
            text += f"\nkilled: it printed more than {self._caps.log_bytes} bytes\n"
        log = self._contents.put(end.log.read_bytes().replace(path, name))
        return Output(text, end.size_bytes, log)


@contextlib.contextmanager
def _lines(room: SandboxDir, hear: LineListener | None) -> Iterator[Callable[[bytes], None] | None]:
    """Give who takes what a process prints and tells the lines, with one name for every room."""
    if hear is None:
        yield None
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    path = str(room.root)

    def named(line: str, *, cut: bool = False) -> None:
        hear(line.replace(path, SHOWN_SANDBOX_PATH), cut=cut)

    lines = LineSplitter(named)
    yield lambda data: lines.feed(decoder.decode(data))
    lines.flush()


def _refusal(action: Action) -> str | None:
    """Return why an action is not started at all, or None."""
    names = refused_variables(action.env) + (refused_pytest_variables(action.env) if action.reports else ())
    if names:
        return f"the environment of a step may not hold {', '.join(names)}; take them out of `env`"
    if not action.argv or any("\0" in part for part in action.argv):
        return "the command is empty or holds a NUL character"
    if _SCRIPT in action.tools:
        return f"no tool of an action may be named {_SCRIPT}"
    return None


def _with_script(room: SandboxDir, seen: SandboxDir, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command; a text that is too long for an argument is put beside the tree, and bash reads it there."""
    *shell, text = argv
    data = text.encode("utf-8", "surrogateescape")
    if tuple(shell) != SHELL_COMMAND or len(data) < _ARGUMENT_BYTES:
        return argv
    room.tools.mkdir(mode=0o700, parents=True, exist_ok=True)
    (room.tools / _SCRIPT).write_bytes(data)
    # Not by `source`: the shell's messages would name the file, which has another path each time.
    path = shlex.quote(str(seen.tools / _SCRIPT))
    return (*SHELL_COMMAND, f'orch23=$(<{path}); eval "unset orch23; $orch23"')


def _too_long(argv: tuple[str, ...]) -> str:
    sizes = [len(os.fsencode(one)) + 1 for one in argv]
    return (
        f"it has {sum(sizes):,} bytes, {max(sizes):,} in one argument; "
        f"the kernel takes {_ARGUMENT_BYTES:,} in one, and about {_COMMAND_BYTES:,} in all with the environment"
    )


def _not_started(action: Action, problem: OSError) -> ActionOutcome:
    """A program that is not there is the stage's failure, as in a shell; no memory or no processes is not."""
    if problem.errno in (errno.ENOENT, errno.ENOTDIR):
        return Completed(replace(_NOTHING, exit_code=_NOT_FOUND, output=Output(f"{action.argv[0]}: not found\n")))
    if problem.errno in (errno.EACCES, errno.ENOEXEC):
        return Completed(
            replace(_NOTHING, exit_code=_NOT_EXECUTABLE, output=Output(f"{action.argv[0]}: not executable\n"))
        )
    if problem.errno == errno.E2BIG:
        return EngineUnavailable(_too_long(action.argv), "length")
    return EngineUnavailable(f"{action.argv[0]} could not be started: {problem.strerror}")


_NOTHING = ActionResult(exit_code=0, written={})


def _survivors(end: ProcessOutcome) -> tuple[Diagnostic, ...]:
    if end.lost:
        message = "the process that ends all others of the step was killed, so that some may be left"
        return (Diagnostic("E619", message, hint="see with ps what is left, and end it by hand; then build again"),)
    if not end.survivors:
        return ()
    message = f"{len(end.survivors)} of its processes could not be killed"
    return (Diagnostic("E619", message, hint="see with ps what holds them, and end them by hand"),)


def _excess(end: ProcessOutcome) -> tuple[Diagnostic, ...]:
    if end.end != "overgrown":
        return ()
    return (
        Diagnostic(
            "E620",
            f"killed: {end.excess}",
            hint="use less, raise the limit in `limits` of the stage, or split the stage",
        ),
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")
