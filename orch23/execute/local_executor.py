"""Run actions on this machine, each in a sandbox directory, with a maximum number at a time."""

import codecs
import contextlib
import errno
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from orch23.execute import process_tree, supervisor
from orch23.execute.cleanup import BackgroundCleaner
from orch23.execute.interpreters import SYSTEM_PATH
from orch23.execute.launch import (
    NO_SANDBOX,
    Launch,
    Launcher,
    LaunchRefusedError,
    PlainLauncher,
    cache_variables,
    process_environment,
    refused_pytest_variables,
    refused_variables,
    run_launch,
    weak_sandbox_error,
)
from orch23.execute.process import DEFAULT_OUTPUT, NOT_EXECUTABLE, NOT_FOUND, OutputLimits, ProcessOutcome
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import (
    INSIDE_PATH,
    LEAST_SHARED_FILES,
    MOUNT_KINDS,
    REPLACED_TREE,
    MountKind,
    OpenTree,
    SandboxDir,
    TreeChanges,
    make_pytest_cache,
    make_writable_files,
    open_tree,
    read_inputs,
    stamp_tree,
    touched_paths,
    unused_files,
)
from orch23.model.action import (
    LANDLOCK_TIER,
    MAX_RESULTS_BYTES,
    MAX_RESULTS_FILES,
    PYTHON,
    TMPDIR_PLACE,
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
    required_folders,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import ConfigurationError, MissingBytesError
from orch23.model.text import LineListener, LineSplitter
from orch23.resolve.commands import SHELL_COMMAND
from orch23.store.input_files import new_file
from orch23.store.safe_files import closing, open_directory, read_and_close

if TYPE_CHECKING:
    from orch23.execute.pytest_report import ReportChannel
    from orch23.model.ports import FileContentStore
    from orch23.model.tool import FoundTool

_SCRIPT = "command.sh"
# The limits of Linux: MAX_ARG_STRLEN with pages of 4 KiB, and a quarter of a stack of 8 MiB.
_ARGUMENT_BYTES, _COMMAND_BYTES = 131_072, 2_097_152
_NOT_STARTED: Final = {
    errno.ENOENT: (NOT_FOUND, "not found"),
    errno.ENOTDIR: (NOT_FOUND, "not found"),
    errno.EACCES: (NOT_EXECUTABLE, "not executable"),
    errno.ENOEXEC: (NOT_EXECUTABLE, "not executable"),
}


class LocalExecutor(Struct, kw_only=True, eq=False):
    """Run at most `workers` actions at a time in the threads of the callers.

    When an action has an outcome, none of its processes is running. `interpreters` finds what an action needs on this
    machine; it may raise ConfigurationError. `tools` finds the programs of an action that are outside of the system
    directories. `unconfined` starts the actions that need no sandbox. `redact` removes secrets from reports before they
    are stored. `has_started`: some process was started.
    """

    sandbox_dirs: SandboxDirs
    contents: "FileContentStore"
    workers: int
    interpreters: Callable[[Interpreter], Path] = lambda _wanted: Path(sys.executable)
    tools: "Callable[[Action, Path], Sequence[FoundTool]]" = lambda _action, _interpreter: ()
    launcher: Launcher = NO_SANDBOX
    unconfined: Launcher = NO_SANDBOX
    output_limits: OutputLimits = DEFAULT_OUTPUT
    redact: Callable[[str], str] = str
    has_started: bool = False
    _can_mount: bool = True
    _stop: threading.Event = field(default_factory=threading.Event)
    _cleaner: BackgroundCleaner = field(default_factory=BackgroundCleaner)
    _slots: threading.Semaphore = field(default_factory=threading.Semaphore)

    def __post_init__(self) -> None:
        """Become the subreaper of the processes."""
        self._slots = threading.Semaphore(self.workers)
        process_tree.become_subreaper()
        process_tree.deny_memory_access()

    @property
    def sandbox(self) -> str:
        """The tier of the sandbox that processes run in."""
        return self.launcher.tier

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called: it starts nothing more."""
        return self._stop.is_set()

    def run(self, action: Action, hear: LineListener | None = None) -> ActionOutcome:
        """Run an action when a worker is free, and return its outcome. `hear` gets each line that it prints."""
        with self._slots:
            return self._run(action, hear or None)

    def cancel(self) -> None:
        """Kill all running actions and start no more: their outcome is Cancelled."""
        self._stop.set()

    def close(self) -> None:
        """Cancel all actions, and wait for their end."""
        self.cancel()
        for _ in range(self.workers):
            self._slots.acquire()
        # Callers that still wait for a slot get one, see the stop signal and return.
        self._slots.release(self.workers)
        process_tree.kill_strays()
        supervisor.close_idle_supervisors()
        try:
            self._cleaner.close()
        finally:
            self.sandbox_dirs.close()

    def _run(self, action: Action, on_line: LineListener | None) -> ActionOutcome:
        if self._stop.is_set():
            return Cancelled()
        if (refusal := _refusal(action)) is not None:
            return EngineUnavailable(refusal)
        if action.sandbox and action.min_tier != LANDLOCK_TIER and (weak := weak_sandbox_error(self.launcher.tier)):
            return EngineUnavailable(weak.message, "sandbox", weak)
        try:
            interpreter = self.interpreters(action.python)
        except ConfigurationError as missing:
            return EngineUnavailable(missing.diagnostics[0].message, diagnostic=missing.diagnostics[0])
        kind = self._mount_kind(action)
        outcome = self._run_staged(action, interpreter, on_line, kind)
        if outcome == InputsChanged(()):  # the copy of a folder had changed before the step had it
            outcome = self._run_staged(action, interpreter, on_line, None)
        has_mounts = kind in ("layer", "read-only") or action.tool_caches
        match outcome:
            case EngineUnavailable(diagnostic=Diagnostic(code="E485")) if has_mounts:
                # Nothing was started. Not all file systems can have a layer, and not all kernels let a user mount one.
                self._can_mount = False
                return self._run_staged(action, interpreter, on_line, kind and "moved")
        return outcome

    def _mount_kind(self, action: Action) -> MountKind | None:
        """Return how the step gets large folders of inputs, or None if there are none."""
        kind: MountKind = "layer" if action.writable is None else "read-only"
        # Folders that steps share do not show what one of them has read.
        if len(action.inputs) < LEAST_SHARED_FILES or action.reads:
            return None
        return kind if self._can_mount and kind in MOUNT_KINDS.get(self._launcher_of(action).tier, ()) else "moved"

    def _run_staged(
        self, action: Action, interpreter: Path, on_line: LineListener | None, kind: MountKind | None
    ) -> ActionOutcome:
        try:
            folders = (*action.output_folders, *required_folders(action.writable or ()))
            sandbox_dir = self.sandbox_dirs.stage(action.inputs, action.working_directory, folders, kind)
        except OSError as problem:
            return _no_sandbox_dir(problem)
        if isinstance(sandbox_dir, InputsChanged):
            return sandbox_dir
        outcome: ActionOutcome | None = None
        try:
            outcome = self._run_in(sandbox_dir, action, interpreter, on_line)
            return outcome
        finally:
            self.sandbox_dirs.release(sandbox_dir)
            # With one worker, each process that is left was started by this step. A step that needs a sandbox is not
            # trusted: it may have manipulated the folders.
            is_trusted = self.workers == 1 and not action.sandbox
            is_clean = is_trusted and isinstance(outcome, Completed) and not outcome.result.violations
            # Here and not in the background: two threads that make system calls by turns wait for each other.
            if not is_clean or not self.sandbox_dirs.recycle(sandbox_dir):
                self._cleaner.submit(partial(self.sandbox_dirs.discard, sandbox_dir))

    def _launcher_of(self, action: Action) -> Launcher:
        return self.launcher if action.sandbox else self.unconfined

    def _run_in(
        self, sandbox_dir: SandboxDir, action: Action, interpreter: Path, on_line: LineListener | None
    ) -> ActionOutcome:
        try:
            if lost := self._copy_tools(sandbox_dir, action):
                return InputsChanged(lost)
            created = make_writable_files(sandbox_dir, action.writable or ())
            if action.writable is not None and not action.reports:
                make_pytest_cache(sandbox_dir)
            # Without a sandbox, a step can change a read-only tree: it is compared afterwards.
            is_open = action.writable is not None and self._launcher_of(action).tier == PlainLauncher.tier
            before = stamp_tree(sandbox_dir, action.writable or ()) if is_open else None
        except OSError as problem:
            return _no_sandbox_dir(problem)
        channel = report = None
        if action.reports:
            from orch23.execute.pytest_report import ReportChannel  # noqa: PLC0415 - loads sockets; for pytest steps

            channel = ReportChannel()
        try:
            try:
                with _decoded_lines(sandbox_dir, on_line) as heard, self._with_caches(sandbox_dir, action) as opened:
                    end = self._start(opened, action, interpreter, channel, heard)
            finally:
                report = channel.finish() if channel is not None else None
        except LaunchRefusedError as refused:
            return EngineUnavailable(refused.diagnostic.message, "sandbox", refused.diagnostic)
        except OSError as problem:
            return Cancelled() if self._stop.is_set() else _not_started(action, problem)
        try:
            unused = unused_files(sandbox_dir, created)
            touched = () if before is None else touched_paths(sandbox_dir, before, action.writable or ())
            return self._outcome(sandbox_dir, action, end, report, unused, touched)
        except OSError as problem:
            return EngineUnavailable(f"the result could not be stored: {problem}", "room")

    def _with_caches(self, sandbox_dir: SandboxDir, action: Action) -> contextlib.AbstractContextManager[SandboxDir]:
        """Return the sandbox directory with the caches of the action's tools."""
        if not action.tool_caches:
            return contextlib.nullcontext(sandbox_dir)
        from orch23.model.features import TOOL_CACHES, load_feature  # noqa: PLC0415 - few actions have tool caches

        folder, tier = self.sandbox_dirs.tool_caches, self._launcher_of(action).tier
        opened: contextlib.AbstractContextManager[SandboxDir] = load_feature(
            TOOL_CACHES["open"], "`tool_caches` needs"
        )(folder, sandbox_dir, action, tier, can_layer=self._can_mount, stop=self._stop)
        return opened

    def _copy_tools(self, sandbox_dir: SandboxDir, action: Action) -> tuple[str, ...]:
        """Copy the tools beside the tree, where the process can read them. Return those whose bytes are missing."""
        lost = []
        # Outside of the tree: a step could replace the pytest plugin there by a link.
        if action.tools:
            sandbox_dir.tools.mkdir(mode=0o700, parents=True)
        for name, entry in action.tools.items():
            try:
                with new_file(f"{sandbox_dir.tools}/{name}", executable=entry.executable) as descriptor:
                    self.contents.copy_to(entry.digest, descriptor, name)
            except MissingBytesError:
                lost.append(name)
        return tuple(lost)

    def _start(
        self,
        sandbox_dir: SandboxDir,
        action: Action,
        interpreter: Path,
        channel: "ReportChannel | None",
        on_output: Callable[[bytes], None] | None,
    ) -> ProcessOutcome:
        launcher = self._launcher_of(action)
        seen = sandbox_dir.seen_from_inside(launcher.tier)
        env = process_environment(seen, interpreter, {**cache_variables(seen, action), **action.env})
        found = self.tools(action, interpreter) if action.programs else ()
        for tool in found:
            given = {**tool.variables, **({} if action.network else tool.offline)}
            env = {**given, **env, "PATH": _path(env["PATH"], tool)}
        argv = _with_script(sandbox_dir, seen, action.argv)
        if argv[0] == PYTHON:
            argv = (str(interpreter), *argv[1:])
        if action.tools:
            tools, cwd = str(seen.tools), str(seen.work / action.working_directory)
            argv = tuple(one.replace(TOOLS_FOLDER, tools).replace(WORKING_DIRECTORY, cwd) for one in argv)
        if channel is not None:
            env |= {**channel.start(), "PYTHONPATH": str(seen.tools)}
        wanted = Launch(
            argv=argv,
            env=env,
            cwd=sandbox_dir.work if action.working_directory == "." else sandbox_dir.work / action.working_directory,
            marker=sandbox_dir.marker,
            sandbox_dir=sandbox_dir,
            interpreter=interpreter,
            network=action.network,
            limits=action.limits,
            writable=action.writable,
            reads=tuple(Path(path) for tool in found for path in tool.shown),
            pass_fds=(channel.far_fd,) if channel is not None else (),
            output=self.output_limits,
            on_output=on_output,
            shows_stacks=action.reports,
        )
        with launcher.prepare(wanted) as launch:
            self.has_started = True
            return run_launch(launch, timeout_s=action.timeout_s, cancel=self._stop)

    def _outcome(
        self,
        sandbox_dir: SandboxDir,
        action: Action,
        end: ProcessOutcome,
        report: bytes | None,
        unused: tuple[str, ...],
        touched: tuple[str, ...],
    ) -> ActionOutcome:
        if end.reason == "cancelled":
            return Cancelled(end.duration_s)
        output = self._output(sandbox_dir, end)
        changes, written = TreeChanges({}, (), ()), dict[str, FileEntry]()
        # A process that is left could change the tree during the scan.
        if not end.survivors and not end.lost:
            changes, written = self._result(sandbox_dir, action, unused)
            if changes.is_older:
                return InputsChanged(())
        if end.reason == "timed_out":
            removed = () if changes.violations else changes.removed
            stored = None if report is None else self._stored(sandbox_dir, report)
            return TimedOut(output, action.timeout_s, written, removed, stored)
        return Completed(
            ActionResult(
                exit_code=end.exit_code,
                written=written,
                removed=changes.removed,
                output=output,
                report=None if report is None else self._stored(sandbox_dir, report),
                violations=(*changes.violations, *_process_violations(end)),
                duration_s=end.duration_s,
                touched=touched,
                tier=self._launcher_of(action).tier,
                results=self._reported(sandbox_dir, action, unused) if action.results else {},
                read=read_inputs(sandbox_dir, action.inputs) if action.reads else None,
            )
        )

    def _reported(self, sandbox_dir: SandboxDir, action: Action, unused: tuple[str, ...]) -> dict[str, Digest]:
        """Store the files with results that the process created, and return their digests by path."""
        known, found = {*action.inputs, *unused}, dict[str, Digest]()
        for pattern in action.results:
            place = TMPDIR_PLACE if pattern.startswith(TMPDIR_PLACE) else ""
            folder = sandbox_dir.tmp if place else sandbox_dir.work
            with contextlib.suppress(OSError), open_directory(sandbox_dir.root, (folder.name,)) as top:
                tree = OpenTree(top, sandbox_dir)
                paths = (path for path in tree.matching(pattern.removeprefix(place)) if place or path not in known)
                for path in islice(paths, MAX_RESULTS_FILES + 1):
                    with contextlib.suppress(OSError):  # a link, a pipe, or without the right to read it
                        data = read_and_close(tree.open_file(path), MAX_RESULTS_BYTES + 1)
                        found[f"{place}{path}"] = self._stored(sandbox_dir, data)
        return found

    def _stored(self, sandbox_dir: SandboxDir, data: bytes) -> Digest:
        text = self.redact(_with_shown_path(sandbox_dir, data).decode("utf-8", "surrogateescape"))
        return self.contents.put(text.encode("utf-8", "surrogateescape"))

    def _result(
        self, sandbox_dir: SandboxDir, action: Action, unused: tuple[str, ...]
    ) -> tuple[TreeChanges, dict[str, FileEntry]]:
        """Return the changes of the tree, and the written files, which are stored; none if it has violations."""
        stored, sandbox_dir = {}, self.sandbox_dirs.move_back(sandbox_dir)
        with contextlib.ExitStack() as stack:
            try:
                tree = stack.enter_context(open_tree(sandbox_dir))
            except OSError:
                return REPLACED_TREE, {}
            changes = self.sandbox_dirs.scan_open(tree, action.inputs, action.scratch)
            for path, executable in () if changes.violations else changes.written.items():
                if path not in unused:
                    with closing(tree.open_file(path)) as descriptor:
                        stored[path] = FileEntry(self.contents.adopt(descriptor, path.rpartition("/")[2]), executable)
        return changes, stored

    def _output(self, sandbox_dir: SandboxDir, end: ProcessOutcome) -> Output:
        """Return the output, without the path of the sandbox directory; if it is long, shortened and as a log."""
        if end.log is None:
            return Output(_text(_with_shown_path(sandbox_dir, end.head + end.tail)), end.size_bytes)
        left_out = end.size_bytes - len(end.head) - len(end.tail)
        head, tail = (_text(_with_shown_path(sandbox_dir, part)) for part in (end.head, end.tail))
        text = f"{head}\n... {left_out} bytes are left out here; the log has them ...\n{tail}"
        if end.reason == "flooded":
            text += f"\nkilled: it printed more than {self.output_limits.log_bytes} bytes\n"
        log = self.contents.put(_with_shown_path(sandbox_dir, end.log.read_bytes()))
        return Output(text, end.size_bytes, log)


def _with_shown_path(sandbox_dir: SandboxDir, data: bytes) -> bytes:
    return data.replace(os.fsencode(sandbox_dir.root), INSIDE_PATH.encode())


@contextlib.contextmanager
def _decoded_lines(sandbox_dir: SandboxDir, on_line: LineListener | None) -> Iterator[Callable[[bytes], None] | None]:
    """Yield a function that takes output bytes and reports their lines, without the path of the sandbox directory."""
    if on_line is None:
        yield None
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    path = str(sandbox_dir.root)

    def report_line(line: str, *, cut: bool = False) -> None:
        on_line(line.replace(path, INSIDE_PATH), cut=cut)

    lines = LineSplitter(report_line)
    yield lambda data: lines.feed(decoder.decode(data))
    lines.flush()


def _refusal(action: Action) -> str | None:
    names = refused_variables(action.env) + (refused_pytest_variables(action.env) if action.reports else ())
    if names:
        return f"the environment of a step may not hold {', '.join(names)}; remove them from `env`"
    if not action.argv or any("\0" in part for part in action.argv):
        return "the command is empty or holds a NUL character"
    return f"no tool of an action may be named {_SCRIPT}" if _SCRIPT in action.tools else None


def _with_script(sandbox_dir: SandboxDir, seen: SandboxDir, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command. A text that is too long for an argument is written beside the tree, and bash reads it."""
    *shell, text = argv
    data = text.encode("utf-8", "surrogateescape")
    if tuple(shell) != SHELL_COMMAND or len(data) < _ARGUMENT_BYTES:
        return argv
    sandbox_dir.tools.mkdir(mode=0o700, parents=True, exist_ok=True)
    (sandbox_dir.tools / _SCRIPT).write_bytes(data)
    # Not by `source`: messages of the shell would name the file, which has another path each time.
    path = shlex.quote(str(seen.tools / _SCRIPT))
    return (*SHELL_COMMAND, f'orch23=$(<{path}); eval "unset orch23; $orch23"')


def _path(path: str, tool: "FoundTool") -> str:
    """Return a search path with the folder of a tool: at the end, or in front of the system directories."""
    folders = path.split(":")
    is_chosen = tool.tool.path or tool.tool.version
    at = next((n for n, one in enumerate(folders) if is_chosen and one in SYSTEM_PATH), len(folders))
    return ":".join(dict.fromkeys((*folders[:at], os.path.dirname(tool.program), *folders[at:])))


def _no_sandbox_dir(problem: OSError) -> EngineUnavailable:
    return EngineUnavailable(f"the sandbox directory could not be created: {problem}", "room")


def _not_started(action: Action, problem: OSError) -> ActionOutcome:
    """A missing program is a failure of the stage, as in a shell; missing memory or too many processes are not."""
    if problem.errno in _NOT_STARTED:
        exit_code, why = _NOT_STARTED[problem.errno]
        return Completed(ActionResult(exit_code=exit_code, written={}, output=Output(f"{action.argv[0]}: {why}\n")))
    if problem.errno != errno.E2BIG:
        return EngineUnavailable(f"{action.argv[0]} could not be started: {problem.strerror}")
    sizes = [len(os.fsencode(one)) + 1 for one in action.argv]
    has = f"it has {sum(sizes):,} bytes, {max(sizes):,} in one argument"
    takes = f"the kernel takes {_ARGUMENT_BYTES:,} in one, and about {_COMMAND_BYTES:,} in all with the environment"
    return EngineUnavailable(f"{has}; {takes}", "length")


def _process_violations(end: ProcessOutcome) -> Iterator[Diagnostic]:
    if end.lost:
        message = "the supervisor of the step was killed, so processes of the step may be left"
        yield Diagnostic("E619", message, hint="find them with ps and kill them; then build again")
    elif end.survivors:
        message = f"{len(end.survivors)} of its processes could not be killed"
        yield Diagnostic("E619", message, hint="find out with ps what they wait for, and kill them")
    if end.excess:
        hint = "use less, raise the limit in `limits` of the stage, or split the stage"
        yield Diagnostic("E620", f"killed: {end.excess}" if end.reason == "overgrown" else end.excess, hint=hint)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")
