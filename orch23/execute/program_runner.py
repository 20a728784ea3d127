"""Run programs that respond in place of a model, and detect files that they changed."""

import contextlib
import errno
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from orch23.execute import process_tree
from orch23.execute.launch import Launch, Launcher, LaunchRefusedError, PlainLauncher, process_environment
from orch23.execute.process import OutputLimits, ProcessOutcome, run_process
from orch23.execute.resource_limits import ResourceMonitor, apply_limits
from orch23.execute.sandbox.restricted import LandlockLauncher
from orch23.execute.sandbox_dir import SandboxDir, SandboxDirs
from orch23.model.action import DEFAULT_LIMITS, InputsChanged, StepLimits
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, SafetyError
from orch23.providers.adapter import ProgramCall, ProgramResult
from orch23.store.safe_files import is_temp

_OWN = frozenset({".orch23", "logs"})
_OF_GIT = frozenset({"hooks", "config"})
"""What of `.git` is compared: git itself writes to the rest whenever it is asked."""


class ProjectStamp(NamedTuple):
    """What changes with a file: its identity and size, its mode, its times in ns."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    mode: int
    ctime_ns: int


ProjectStamps: TypeAlias = Mapping[str, ProjectStamp]


def stamp_project(root: Path, ignored: Collection[str] = ()) -> ProjectStamps:
    """Return path -> what changes with a file, for all files and links below a folder; links are not followed."""
    found: dict[str, ProjectStamp] = {}
    pending = [""]
    while pending:
        folder = pending.pop()
        with contextlib.suppress(OSError), os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if is_temp(entry.name) or path in ignored or (not folder and entry.name in _OWN):
                    continue
                if folder == ".git/" and entry.name not in _OF_GIT:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/")
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found[path] = ProjectStamp(
                        *(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns),
                        *(status.st_mode, status.st_ctime_ns),
                    )
    return found


def changed_paths(before: ProjectStamps, after: ProjectStamps, *, modes_alone: bool = False) -> list[str]:
    """Return the paths that were added, removed or changed, sorted; or those of which only the mode changed."""
    if modes_alone:
        both = before.keys() & after.keys()
        return sorted(path for path in both if _is_other_mode(before[path], after[path]))
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _is_other_mode(before: ProjectStamp, after: ProjectStamp) -> bool:
    return before[:4] == after[:4] and before.mode != after.mode


_STDERR_KEPT = 64_000
_CLOSE_WITHIN_S = 10.0
_MOST_NAMED = 5
_PYTHON = re.compile(r"python[0-9.]*")
_NO_INTERPRETER = Path("/usr/bin/env")
"""For a program that is no Python: an interpreter that lies in the system, and so opens nothing else."""

_FAULTS: Mapping[str, str] = {"timed_out": "time", "flooded": "output", "overgrown": "limit", "cancelled": "cancelled"}


class LocalProgramRunner(Struct, kw_only=True):
    """The programs that are answering now; closed, it kills them, and starts no more.

    What a program leaves behind is removed before the next one starts, and at the end: an answer is to be recorded at
    once, since a build that is killed before that asks again.

    `written` gives the paths that this build writes in the project itself, `ignored` the folders in which it keeps
    recordings: files there are not watched.
    """

    root: Path
    rooms: SandboxDirs
    launcher: Launcher
    no_sandbox: Callable[[], Diagnostic | None]
    written: Callable[[], Collection[str]]
    ignored: tuple[str, ...] = ()
    limits: StepLimits = DEFAULT_LIMITS
    _stop: threading.Event = field(default_factory=threading.Event)
    _idle: threading.Condition = field(default_factory=threading.Condition)
    _running: int = 0
    _used: list[SandboxDir] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Become the one to whom lost children return."""
        process_tree.become_subreaper()

    def missing(self) -> Diagnostic | None:
        """Return why no program can be run on this machine; None where they can."""
        return self.no_sandbox()

    def run(self, call: ProgramCall) -> ProgramResult:
        """Run a program to its end, its time, its cap or the end of the build; then kill all that it started.

        Raises:
            OSError: it cannot be started, its files changed meanwhile, or the build has ended.
            ConfigurationError: there is no sandbox to run it in.
            SafetyError: a file of the project changed meanwhile, and it may have been the program.

        """
        with self._idle:
            if self._stop.is_set():
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            self._running += 1
        try:
            self._clear()
            return self._run(call)
        except LaunchRefusedError as refused:
            raise ConfigurationError(refused.diagnostic) from None
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def close(self) -> None:
        """End all that run, and start no more."""
        self._stop.set()
        with self._idle:
            self._idle.wait_for(lambda: self._running == 0, _CLOSE_WITHIN_S)
        self._clear()

    def _clear(self) -> None:
        while self._used:
            with contextlib.suppress(IndexError):  # another thread was quicker
                self.rooms.discard(self._used.pop())

    def _run(self, call: ProgramCall) -> ProgramResult:
        room = self.rooms.lay(call.files)
        if isinstance(room, InputsChanged):
            raise OSError(errno.EBUSY, f"{', '.join(room.paths)} changed meanwhile")
        try:
            with self._watched(call), _file_of(call.stdin) as stdin:
                end = self._start(room, call, stdin)
        finally:
            self._used.append(room)
            if self._stop.is_set():
                self._clear()
        return ProgramResult(
            exit_code=end.exit_code,
            stdout=end.head,
            stderr=end.errors,
            fault=_FAULTS.get(end.end, ""),  # type: ignore[arg-type] # the values of this very mapping
            excess=end.excess,
        )

    def _start(self, room: SandboxDir, call: ProgramCall, stdin: int) -> ProcessOutcome:
        seen = self.launcher.seen(room)
        program = call.program if call.program is not None else _NO_INTERPRETER
        wanted = Launch(
            argv=call.argv,
            env=process_environment(seen, program, call.env),
            cwd=room.work,
            room=room,
            interpreter=_interpreter(program),
            network=call.network,
            limits=self.limits,
            reads=(*_links(program), *call.reads),
            stdin=stdin,
        )
        with self.launcher.prepare(wanted) as launch:
            end = run_process(
                launch.argv,
                cwd=launch.cwd,
                env=launch.env,
                timeout_s=call.timeout_s,
                cancel=self._stop,
                log=room.log,
                caps=OutputLimits(head_bytes=2 * call.stdout_bytes, tail_bytes=0, log_bytes=call.stdout_bytes),
                errors=OutputLimits(head_bytes=0, tail_bytes=_STDERR_KEPT, log_bytes=call.stderr_bytes),
                on_output=call.on_output,
                marker=room.marker,
                pass_fds=launch.pass_fds,
                stdin=launch.stdin,
                confinement=launch.confinement,
                gate=launch.gate or (lambda family: apply_limits(family.leader, self.limits)),
                fault=ResourceMonitor(room.root, self.limits).fault,
            )
            return end if launch.judge is None else launch.judge(end)

    @contextlib.contextmanager
    def _watched(self, call: ProgramCall) -> Iterator[None]:
        """Compare the project before and after a call, as far as the tier lets a program change files.

        Raises:
            SafetyError: files changed that this build did not write.

        """
        tier = self.launcher.tier
        if tier not in (PlainLauncher.tier, LandlockLauncher.tier):
            yield
            return
        before = stamp_project(self.root, self.ignored)
        try:
            yield
        finally:
            after, written = stamp_project(self.root, self.ignored), self.written()
            found = changed_paths(before, after, modes_alone=tier == LandlockLauncher.tier)
            strange = [path for path in found if path not in written]
            if strange:
                program = call.argv[0] if call.program is None else call.program.name
                raise SafetyError(_violation(program, tier, strange))


def _violation(program: str, tier: str, paths: list[str]) -> Diagnostic:
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    message = f"{', '.join(paths[:_MOST_NAMED])}{more} changed while `{program}` ran (sandbox: {tier})"
    hint = "look at the change, and undo it; with bubblewrap (`orch23 doctor`) a program can change no file"
    return Diagnostic("E486", message, hint=hint)


@contextlib.contextmanager
def _file_of(data: bytes) -> Iterator[int]:
    """Give a descriptor of a file in memory from which the data can be read."""
    descriptor = os.memfd_create("orch23-request")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _interpreter(program: Path) -> Path:
    """Return the Python whose packages a program needs: it is one, or is installed in a virtual environment."""
    for one in (program, program.resolve()):
        if (one.parent.parent / "pyvenv.cfg").is_file():
            return one.parent / "python"
    return program if _PYTHON.fullmatch(program.name) else _NO_INTERPRETER


def _links(program: Path) -> tuple[Path, ...]:
    """Return the path of a program, and where each link on the way to its file points."""
    found = [program]
    while found[-1].is_symlink():
        target = Path(os.path.normpath(found[-1].parent / found[-1].readlink()))
        if target in found:
            break
        found.append(target)
    return (*found, program.resolve())
