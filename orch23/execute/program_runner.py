"""Run programs that respond in place of a model, and detect files that they changed."""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from orch23.execute import process_tree
from orch23.execute.launch import Launch, Launcher, LaunchRefusedError, PlainLauncher, process_environment, run_launch
from orch23.execute.process import EndReason, OutputLimits, ProcessOutcome, open_in_memory
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import SandboxDir
from orch23.model.action import DEFAULT_LIMITS, LANDLOCK_TIER, InputsChanged, StepLimits
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, SafetyError
from orch23.model.patterns import lazy_pattern
from orch23.model.text import join_first
from orch23.providers.adapter import ProgramCall, ProgramResult
from orch23.store.safe_files import FileStamp, is_temp, stamp_of, walk_tree

_OWN_FOLDERS = frozenset({".orch23", "logs"})
# Only these files of `.git` are compared: git itself writes the others at any command.
_GIT_NAMES = frozenset({"hooks", "config"})


_STDERR_TAIL_BYTES = 64_000
_CLOSE_WITHIN_S = 10.0
_MAX_NAMED = 5
_PYTHON = lazy_pattern(r"python[0-9.]*")
# The interpreter of a program that is not Python. It is in a system folder, so it makes no other path readable.
_NO_INTERPRETER = Path("/usr/bin/env")

_FAULTS: Mapping[EndReason, Literal["time", "output", "limit", "cancelled"]] = {
    "timed_out": "time",
    "flooded": "output",
    "overgrown": "limit",
    "cancelled": "cancelled",
}


def _stamp_project(root: Path, ignored: Collection[str]) -> dict[str, FileStamp]:
    """Return the stamps of all files and links below a folder, by path; links are not followed."""

    def is_skipped(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if folder == ".git":
            return name not in _GIT_NAMES
        return is_temp(name) or path in ignored or path in _OWN_FOLDERS

    found: dict[str, FileStamp] = {}
    for path, entry in walk_tree(root, is_skipped=is_skipped, ignored=(OSError,)):
        if not entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):
                found[path] = stamp_of(entry.stat(follow_symlinks=False))
    return found


def _is_new_mode(old: FileStamp | None, new: FileStamp | None) -> bool:
    """Return whether only the mode changed, and with it the time of the inode: a write would change the mtime too."""
    return old is not None and new is not None and old.mode != new.mode and old[:4] == new[:4]


class LocalProgramRunner(Struct, kw_only=True):
    """Run programs in place of a model. `close` kills those that run and starts no more.

    The sandbox directory of a call is removed before the next call and at the end, not at once: a response is to be
    recorded first, since a build that is killed before that has to make the call again.

    `written` returns the paths that this build writes in the project itself. Files in the folders `ignored`, in which
    the build stores recordings, are not watched.
    """

    root: Path
    sandbox_dirs: SandboxDirs
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
        """Become the subreaper of the programs."""
        process_tree.become_subreaper()

    def missing(self) -> Diagnostic | None:
        """Return why no program can run on this machine, or None."""
        return self.no_sandbox()

    def run(self, call: ProgramCall) -> ProgramResult:
        """Run a program until it exits, exceeds a limit, or the build ends; then kill all that it started.

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
            self._discard_used()
            return self._run(call)
        except LaunchRefusedError as refused:
            raise ConfigurationError(refused.diagnostic) from None
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def close(self) -> None:
        """Kill the programs that run, and start no more."""
        self._stop.set()
        with self._idle:
            self._idle.wait_for(lambda: self._running == 0, _CLOSE_WITHIN_S)
        self._discard_used()

    def _discard_used(self) -> None:
        # Another thread may take the last one in between.
        with contextlib.suppress(IndexError):
            while True:
                self.sandbox_dirs.discard(self._used.pop())

    def _run(self, call: ProgramCall) -> ProgramResult:
        sandbox_dir = self.sandbox_dirs.stage(call.files)
        if isinstance(sandbox_dir, InputsChanged):
            raise OSError(errno.EBUSY, f"{', '.join(sandbox_dir.paths)} changed meanwhile")
        try:
            # In memory: bubblewrap's start uses stdin (ADR 25).
            with self._watched(call), open_in_memory(call.stdin) as stdin:
                end = self._start(sandbox_dir, call, stdin)
        finally:
            self._used.append(sandbox_dir)
            if self._stop.is_set():
                self._discard_used()
        return ProgramResult(
            exit_code=end.exit_code,
            stdout=end.head,
            stderr=end.errors,
            fault=_FAULTS.get(end.reason, ""),
            excess=end.excess,
        )

    def _start(self, sandbox_dir: SandboxDir, call: ProgramCall, stdin: int) -> ProcessOutcome:
        from orch23.execute.sandbox.visible_paths import link_chain  # noqa: PLC0415 - only for programs

        seen = sandbox_dir.seen_from_inside(self.launcher.tier)
        program = call.program if call.program is not None else _NO_INTERPRETER
        wanted = Launch(
            argv=call.argv,
            env=process_environment(seen, program, call.env),
            cwd=sandbox_dir.work,
            marker=sandbox_dir.marker,
            sandbox_dir=sandbox_dir,
            interpreter=_interpreter(program),
            network=call.network,
            limits=self.limits,
            reads=(*link_chain(program), *call.reads),
            stdin=stdin,
            output=OutputLimits(head_bytes=2 * call.stdout_bytes, tail_bytes=0, log_bytes=call.stdout_bytes),
            errors=OutputLimits(head_bytes=0, tail_bytes=_STDERR_TAIL_BYTES, log_bytes=call.stderr_bytes),
            on_output=call.on_output,
        )
        with self.launcher.prepare(wanted) as launch:
            return run_launch(launch, timeout_s=call.timeout_s, cancel=self._stop)

    @contextlib.contextmanager
    def _watched(self, call: ProgramCall) -> Iterator[None]:
        """Compare the project before and after a call, if the tier lets a program change files or their modes."""
        tier = self.launcher.tier
        if tier not in (PlainLauncher.tier, LANDLOCK_TIER):
            yield
            return
        before = _stamp_project(self.root, self.ignored)
        try:
            yield
        finally:
            after, written = _stamp_project(self.root, self.ignored), self.written()
            pairs = {path: (before.get(path), after.get(path)) for path in sorted(before.keys() | after.keys())}
            found = (path for path, (old, new) in pairs.items() if old != new)
            if tier == LANDLOCK_TIER:
                found = (path for path in found if _is_new_mode(*pairs[path]))
            if foreign := [path for path in found if path not in written]:
                program = call.argv[0] if call.program is None else call.program.name
                raise SafetyError(_violation(program, tier, foreign))


def _violation(program: str, tier: str, paths: list[str]) -> Diagnostic:
    message = f"{join_first(paths, _MAX_NAMED)} changed while `{program}` ran (sandbox: {tier})"
    hint = "undo the change if the program made it; with bubblewrap (`orch23 doctor`) a program cannot change files"
    return Diagnostic("E486", message, hint=hint)


def _interpreter(program: Path) -> Path:
    """Return the Python whose packages a program needs, if it is a Python or in a virtual environment."""
    for one in (program, program.resolve()):
        if (one.parent.parent / "pyvenv.cfg").is_file():
            return one.parent / "python"
    return program if _PYTHON.fullmatch(program.name) else _NO_INTERPRETER
