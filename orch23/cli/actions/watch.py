"""Run `watch`: build what an edit reaches, again and again, in one process."""

import contextlib
import fcntl
import gc
import os
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, field

from orch23.cli.console import Console
from orch23.cli.error_report import report_error
from orch23.cli.file_events import FolderEvents
from orch23.cli.opening import parse_budget, settings_of
from orch23.cli.parameters import BUILD_ACTION, PipelineArguments, load_action, run_action
from orch23.cli.watched_build import WatchedBuild
from orch23.cli.watched_files import Change, FileTree, WatchedFiles, path_in
from orch23.model.errors import ExitCode
from orch23.model.event import RunFinished, StageFinished
from orch23.model.paths import LOGS_FOLDER
from orch23.model.pipeline import Pipeline
from orch23.model.stage_status import StageStatus
from orch23.report.diagnostics import visible
from orch23.report.values import money_text, pluralize
from orch23.snapshot.fast_path import LOCK_FILE
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.history import read_history, run_totals
from orch23.store.run_logs import read_journal

# All files are compared so often, even without an event: an event may be lost.
_INTERVAL_S = 5.0
_LOCK_INTERVAL_S = 0.2
# Git holds its lock while it changes the files of a checkout.
_GIT_LOCK = Path(".git/index.lock")
_GIT_WAIT_S = 5.0
# A build whose files changed while it ran is repeated: at most so often if no event says what changes them.
_MAX_AGAIN = 3
_BUILDS_A_COLLECTION = 10
_SHOWN_PATHS = 3
_STOPPING = (ExitCode.SIGHUP, ExitCode.SIGINT, ExitCode.SIGTERM)


def watch_project(
    console: Console,
    *,
    args: PipelineArguments,
    llm: bool,
    jobs: int | None,
    keep_going: bool,
    budget: str | None,
    allow_unsandboxed: bool,
) -> int:
    """Build what edits reach until a signal."""
    settings = settings_of(console, args)
    argv = _build_words(args, jobs=jobs, keep_going=keep_going, allow_unsandboxed=allow_unsandboxed)
    # The snapshot of a command line is found from the working directory.
    with contextlib.chdir(console.here):
        parameters = _parameters(argv)
        watch = Watch(
            console=console,
            argv=argv,
            parameters=parameters,
            root=settings.root,
            files=WatchedFiles(settings.root, argv),
            llm=llm,
            limit=parse_budget(budget),
        )
        with contextlib.closing(watch.events):
            return watch.run()


def _build_words(
    args: PipelineArguments, *, jobs: int | None, keep_going: bool, allow_unsandboxed: bool
) -> tuple[str, ...]:
    """Return the command line of `build` with the same options: both share a snapshot."""
    words = ["build", *args.arguments]
    words += [word for one in args.sets for word in ("--set", one)]
    named = {"--vars": args.vars_file, "--provider": args.provider, "--model": args.model}
    words += [word for option, value in named.items() if value is not None for word in (option, value)]
    words += [] if jobs is None else ["--jobs", str(jobs)]
    words += ["--keep-going"] if keep_going else []
    return (*words, "--allow-unsandboxed") if allow_unsandboxed else tuple(words)


def _parameters(argv: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters of a command line of `build`, also those of the environment."""
    from orch23.cli.group import PROGRAM_NAME, orch23  # noqa: PLC0415 - click is loaded by now

    with click.Context(orch23, info_name=PROGRAM_NAME, auto_envvar_prefix=PROGRAM_NAME.upper()) as above:
        command = orch23.get_command(above, argv[0])
        if command is None:
            raise LookupError(argv[0])
        with command.make_context(argv[0], [*argv[1:]], parent=above) as context:
            return dict(context.params)


class _Ended(Struct, frozen=True):
    """The end of a build: its pipeline, the id of its run, and what it has read if it left no snapshot."""

    pipeline: Pipeline
    run_id: str
    read: StatSnapshot | None


class Watch(Struct, kw_only=True):
    """Builds of one command line, one after the other. `limit` is in US dollars, for all of them together."""

    console: Console
    argv: tuple[str, ...]
    parameters: Mapping[str, Any]
    root: Path
    files: WatchedFiles
    llm: bool
    limit: Decimal | None
    events: FolderEvents = field(default_factory=FolderEvents)
    _spent: Decimal = Decimal(0)
    _is_paused: bool = False
    _is_idle: bool = False
    _repeats: int = 0
    _builds: int = 0
    _pipeline: str = ""
    _signals: list[int] = field(default_factory=list)
    _ended: list[_Ended] = field(default_factory=list)

    def run(self) -> int:
        """Build and wait until a signal; return the exit code."""
        while True:
            if not self._wait_for_lock():
                return ExitCode.SIGINT
            change = self.files.change()
            if change is not None:
                code = self._build(change)
                self._builds += 1
                # A signal may come too late to stop the build that runs.
                if self._signals or code in _STOPPING:
                    return 128 + self._signals[0] if self._signals else code
                continue
            # Folders that were not watched may have changed before they were.
            if self.events.follow(self.files.folders()):
                continue
            self._show_idle()
            self._free_memory()
            delivery = self.events.wait(_INTERVAL_S)
            if delivery.interrupted:
                return ExitCode.SIGINT
            if delivery.changed:
                self._repeats = 0
                self._wait_for_git()

    def _free_memory(self) -> None:
        """Free what ended builds left: `collector_paused` exempts it from the garbage collector."""
        if self._builds >= _BUILDS_A_COLLECTION:
            self._builds = 0
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def _show_idle(self) -> None:
        if self._is_idle:
            return
        self._is_idle = True
        if self.events.problem:
            self.console.write_err(
                f"note: the files are compared every second, since they cannot be watched: {self.events.problem}\n"
            )
        count = pluralize(self.files.count, "file")
        self.console.write_err(f"watching {count}; press Ctrl-C to stop\n")

    def _wait_for_lock(self) -> bool:
        """Wait until no other build of the project runs; return False if a signal came."""
        is_shown = False
        while _is_locked(self.root / LOCK_FILE):
            if not is_shown:
                is_shown, self._is_idle = True, False
                self.console.write_err("another build runs in this project: waiting until it ends\n")
            if self.events.wait(_LOCK_INTERVAL_S).interrupted:
                return False
        return True

    def _wait_for_git(self) -> None:
        until = time.monotonic() + _GIT_WAIT_S
        while (self.root / _GIT_LOCK).exists() and time.monotonic() < until:
            time.sleep(0.02)

    def _build(self, change: Change) -> int:
        """Build once, and note what to compare from now on."""
        self._is_idle = False
        if change.paths:
            self.console.write_err(f"\n{_changed_text(tuple(path_in(self.root, one) for one in change.paths))}\n")
        began_ns = time.time_ns()
        holds = not self.llm or self._is_paused
        self._ended.clear()
        code = self._run(change, holds=holds)
        self.files.forget()
        if not self._ended:  # it did not start: its pipeline has errors, or consent is missing
            self.files.read = FileTree.of(self.root, began_ns)
            return code
        ended = self._ended[-1]
        self.files.read = ended.read
        if ended.read is None and code != ExitCode.OK:
            # Something changed during the build: it is repeated.
            self._repeats += 1
            if self._repeats > _MAX_AGAIN:
                self.files.read = FileTree.of(self.root, 0)
        self._account(ended, holds=holds)
        return code

    def _run(self, change: Change, *, holds: bool) -> int:
        watched = WatchedBuild(
            holds=holds,
            budget=None if holds else self._budget(),
            on_end=lambda *ended: self._ended.append(_Ended(*ended)),
            on_signal=self._signals.append,
        )
        console = Console(
            here=self.console.here,
            color=self.console.color,
            environ=self.console.environ,
            argv=self.argv,
            watched=watched,
            stale_snapshot=change.snapshot,
            parameters=dict(self.parameters),
        )
        try:
            with console.resources:
                return int(run_action(load_action(BUILD_ACTION), console, console.parameters))
        except KeyboardInterrupt:
            return ExitCode.SIGINT
        except Exception as error:  # noqa: BLE001 - a bug is reported, and the next edit is built
            code = report_error(error, console)
            return ExitCode.BUG if code is None else int(code)

    # ---- the budget -----------------------------------------------------------------------

    def _budget(self) -> Decimal | None:
        """Return what the next build may spend: the rest, and what the run that it continues has spent."""
        if self.limit is None or not self._pipeline:
            return self.limit
        history = read_history(self.root / LOGS_FOLDER, self._pipeline)
        continued = sum((one.most_cost for one in history.spent.values()), Decimal(0))
        return self.limit - self._spent + continued

    def _account(self, ended: _Ended, *, holds: bool) -> None:
        """Add what a run has spent, by its journal, and report the stages that wait."""
        self._pipeline = ended.pipeline.file
        if self.limit is None:
            self.limit = ended.pipeline.stop.max_cost_usd
        lines = read_journal(self.root / LOGS_FOLDER / f"{ended.run_id}.jsonl")
        self._spent += run_totals(lines).most_cost
        waiting = [
            line.event.role
            for line in lines
            if isinstance(line.event.data, StageFinished) and line.event.data.status is StageStatus.AWAITING
        ]
        last = lines[-1].event.data if lines else None
        is_over = isinstance(last, RunFinished) and last.status == "limit"
        if not holds and self.limit is not None and (self._spent >= self.limit or is_over):
            self._is_paused = True
            spent, limit = money_text(self._spent, Decimal(0)), money_text(self.limit, Decimal(0))
            self.console.write_err(
                f"the budget of this watch is used up ({spent} of {limit}): stages that would call a model wait; "
                "other stages go on\n"
            )
            # What the limit stopped is built as far as it needs no model.
            self.files.read = None
        elif holds and waiting:
            names = ", ".join(map(visible, waiting[:_SHOWN_PATHS]))
            more = f" and {len(waiting) - _SHOWN_PATHS} more" if len(waiting) > _SHOWN_PATHS else ""
            verb = "waits, since it" if len(waiting) == 1 else "wait, since they"
            way = "start `orch23 watch` again with a higher --budget" if self.llm else "start `orch23 watch --llm`"
            self.console.write_err(
                f"{pluralize(len(waiting), 'stage')} {verb} would call a model: {names}{more}\n"
                f"  to call it, run `orch23 build` in another terminal, or {way}\n"
            )


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # there was no build yet, or the build reports it
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _changed_text(paths: tuple[str, ...]) -> str:
    names = [visible(one) for one in sorted(paths)]
    if len(names) <= _SHOWN_PATHS:
        return f"{', '.join(names)} changed"
    return f"{names[0]} and {len(names) - 1} more changed"
