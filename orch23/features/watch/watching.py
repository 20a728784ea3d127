"""Run `watch`: build what an edit reaches, again and again, in one process and with one budget."""

import contextlib
import gc
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from orch23.cli.console import Console
from orch23.cli.error_report import report_error
from orch23.cli.opening import parse_budget, settings_of
from orch23.cli.parameters import PipelineArguments, run_build
from orch23.cli.watched_build import SharedBudget, WatchedBuild
from orch23.features.watch.lock_wait import is_locked
from orch23.features.watch.watched_files import Change, FolderEvents, StopSignals, WatchedFiles, WatchedTree, path_in
from orch23.model.event import RunFinished, StageFinished
from orch23.model.event_data import StageStatus
from orch23.model.paths import LOGS_FOLDER
from orch23.model.text import join_first, visible
from orch23.report.values import money_text, pluralize
from orch23.snapshot.fast_path import LOCK_FILE, StaleSnapshot
from orch23.store.history import run_totals
from orch23.store.run_logs import read_journal

_SHOWN_STAGES = 3


class BuildSeries(Struct, kw_only=True):
    """Runs builds of one command line, with one budget for all of them."""

    console: Console
    argv: tuple[str, ...]
    parameters: Mapping[str, Any]
    root: Path
    llm: bool
    budget: SharedBudget
    stop: StopSignals

    def build(self, snapshot: StaleSnapshot | None) -> WatchedBuild:
        """Build once, and report the stages that wait."""
        watched = WatchedBuild(llm=self.llm, budget=self.budget, on_signal=self.stop.received.append)
        console = Console(
            here=self.console.here,
            color=self.console.color,
            environ=self.console.environ,
            argv=self.argv,
            watched=watched,
            stale_snapshot=snapshot,
            parameters=dict(self.parameters),
        )
        self.stop.is_building = True
        try:
            run_build(console)
        except KeyboardInterrupt:  # `stop` has the signal
            pass
        except Exception as error:  # noqa: BLE001 - a bug is reported, and the next edit is built
            report_error(error, console)
        finally:
            self.stop.is_building = False
        _free_memory(is_whole=watched.is_whole)
        if watched.run_id:
            self._account(watched)
        return watched

    def _account(self, watched: WatchedBuild) -> None:
        """Add what a run has spent, by its journal; report that the budget is used up, or which stages wait."""
        lines = read_journal(self.root / LOGS_FOLDER / f"{watched.run_id}.jsonl")
        last = lines[-1].event.data if lines else None
        was_refused = isinstance(last, RunFinished) and last.status == "limit"
        is_used_up = self.budget.end(run_totals(lines), was_refused=was_refused and not watched.holds)
        if watched.holds:
            ends = ((line.event.role, line.event.data) for line in lines)
            awaiting = StageStatus.AWAITING
            waiting = [name for name, data in ends if isinstance(data, StageFinished) and data.status is awaiting]
            if waiting:
                self._report_waiting(waiting)
        elif is_used_up:
            self.console.write_err(
                f"the budget of this watch is used up ({self.spent_text}): stages that would call a model wait; "
                "other stages go on\n"
            )
            watched.is_due_again, watched.read = True, None

    def _report_waiting(self, stages: list[str]) -> None:
        names = join_first([*map(visible, stages)], _SHOWN_STAGES)
        verb = "waits, since it" if len(stages) == 1 else "wait, since they"
        way = self.budget.way_to_raise if self.llm else "start `orch23 watch --llm`"
        self.console.write_err(
            f"{pluralize(len(stages), 'stage')} {verb} would call a model: {names}\n"
            f"  to call it, run `orch23 build` in another terminal, or {way}\n"
        )

    @property
    def spent_text(self) -> str:
        """What was spent of the budget; empty if nothing was."""
        limit = self.budget.limit
        of_limit = f" of {money_text(limit, Decimal(0))}" if limit is not None else ""
        return f"{money_text(self.budget.spent, Decimal(0))}{of_limit}" if self.budget.spent else ""


def _free_memory(*, is_whole: bool) -> None:
    """Free what an ended build has left, now rather than during an edit.

    What a whole pipeline was loaded into is exempt from the collector (`collector_paused`): of 10,000 stages, it takes
    a second to free. All that is left is exempted, so that the collection after the build of a part takes a few
    milliseconds.
    """
    if is_whole:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


# All files are compared so often, even without an event: an event may be lost.
_INTERVAL_S = 5.0
_LOCK_INTERVAL_S = 0.2
# Git holds its lock while it changes the files of a checkout.
_GIT_LOCK = Path(".git/index.lock")
_GIT_WAIT_S = 5.0
# A build whose files changed while it ran is repeated. It may change them itself: after some times there is a pause.
_MAX_AGAIN = 3
_LONGEST_PAUSE_S = 8.0
_LOOK_S = 0.5
_SHOWN_PATHS = 3


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
        stop = StopSignals()
        builds = BuildSeries(
            console=console,
            argv=argv,
            parameters=_parameters(argv),
            root=settings.root,
            llm=llm,
            budget=SharedBudget(parse_budget(budget)),
            stop=stop,
        )
        files, events = WatchedFiles(settings.root, argv), FolderEvents(stop)
        stop.handle_signals()
        with contextlib.closing(events):
            return Watch(builds=builds, files=files, events=events).run()


def _build_words(
    args: PipelineArguments, *, jobs: int | None, keep_going: bool, allow_unsandboxed: bool
) -> tuple[str, ...]:
    """Return the command line of `build` with the same options: both share a snapshot."""
    named = [*(("--set", one) for one in args.sets), ("--vars", args.vars_file), ("--provider", args.provider)]
    named += [("--model", args.model), ("--cache", args.cache), ("--executor", args.executor)]
    named += [("--scheduler", args.scheduler or None), ("--jobs", None if jobs is None else str(jobs))]
    flags = {
        "--keep-going": keep_going,
        "--cache-write": args.cache_write,
        "--allow-unsandboxed": allow_unsandboxed,
    }
    values = (word for option, value in named if value is not None for word in (option, value))
    return ("build", *args.arguments, *values, *(flag for flag, is_given in flags.items() if is_given))


def _parameters(argv: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters of a command line of `build`, also those of the environment."""
    from orch23.cli.group import PROGRAM_NAME, orch23  # noqa: PLC0415 - click is loaded by now

    with click.Context(orch23, info_name=PROGRAM_NAME, auto_envvar_prefix=PROGRAM_NAME.upper()) as above:
        command = orch23.get_command(above, argv[0])
        if command is None:
            raise LookupError(argv[0])
        with command.make_context(argv[0], [*argv[1:]], parent=above) as context:
            return dict(context.params)


class Watch(Struct, kw_only=True):
    """Builds what has changed since the last build, and waits for the next change."""

    builds: BuildSeries
    files: WatchedFiles
    events: FolderEvents
    _is_idle: bool = False
    _was_silent: bool = False
    _repeats: int = 0
    _ended: WatchedBuild | None = None

    def run(self) -> int:
        """Build and wait until a signal; return the exit code."""
        while self._wait_for_lock():
            change = self.files.change()
            if change is not None:
                self._build(change)
                continue
            self._was_silent = False
            # Folders that were not watched may have changed before they were.
            if self.events.follow(self.files.folders()):
                continue
            self._show_idle()
            self._was_silent = not self.events.wait(_INTERVAL_S)
            if not self._was_silent:
                self._wait_for_git()
        return self.builds.stop.exit_code

    def _wait_for_git(self) -> None:
        until = time.monotonic() + _GIT_WAIT_S
        while (self.files.root / _GIT_LOCK).exists() and time.monotonic() < until and not self.builds.stop.is_set():
            time.sleep(0.02)

    def _write(self, text: str) -> None:
        self._is_idle = False
        self.builds.console.write_err(text)

    def _show_idle(self) -> None:
        if self._is_idle:
            return
        if self.events.problem:
            self._write(
                f"note: the files are compared every second, since they cannot be watched: {self.events.problem}\n"
            )
        spent = f"{self.builds.spent_text} spent; " if self.builds.spent_text else ""
        count = self.files.count
        files = "all files of the project" if count is None else pluralize(count, "file")
        self._write(f"watching {files}; {spent}press Ctrl-C to stop\n")
        self._is_idle = True

    def _wait_for_lock(self) -> bool:
        """Wait until no other build of the project runs; return False if a signal came."""
        is_shown = False
        while not self.builds.stop.is_set() and is_locked(self.files.root / LOCK_FILE):
            if not is_shown:
                self._write("another build runs in this project: waiting until it ends\n")
            is_shown = True
            self.events.wait(_LOCK_INTERVAL_S)
        return not self.builds.stop.is_set()

    def _build(self, change: Change) -> None:
        """Build once, and note what to compare from now on."""
        if self._was_silent:
            # No event has come for it: the queue of the kernel overflowed, or a folder was replaced without an event.
            self.events.close()
            self._was_silent = False
        self._write(self._reason(change))
        began_ns = time.time_ns()
        self._ended = ended = self.builds.build(change.snapshot)
        self.files.forget()
        self.files.read = ended.read if ended.run_id else WatchedTree.of(self.files.root, began_ns)
        self._repeats = self._repeats + 1 if ended.run_id and ended.outdated else 0
        if (more := self._repeats - _MAX_AGAIN) > 0:
            self._pause(min(_LONGEST_PAUSE_S, 2.0 ** (more - 1)))

    def _pause(self, longest_s: float) -> None:
        """Wait before a build whose files change again and again, or until they change while no build runs."""
        self._write(
            f"note: files change during each build; the next one starts in {longest_s:.0f} s, or at the next change\n"
        )
        files, until = WatchedTree.of(self.files.root), time.monotonic() + longest_s
        while not self.builds.stop.is_set() and (left_s := until - time.monotonic()) > 0:
            self.events.pause(min(left_s, _LOOK_S))
            if files.changed():  # by the user, so the builds may not have changed them either
                self._repeats = 0
                return

    def _reason(self, change: Change) -> str:
        """Return the lines above a build: what has changed, if that is known."""
        if change.paths:
            return f"\n{_changed_text(tuple(path_in(self.files.root, one) for one in change.paths))}\n"
        if self._ended is None or self._ended.is_due_again:
            return ""
        return "\na file changed during the build\n" if self._ended.outdated else "\nfiles changed\n"


def _changed_text(paths: tuple[str, ...]) -> str:
    names = [visible(one) for one in sorted({*paths})]
    if len(names) <= _SHOWN_PATHS:
        return f"{', '.join(names)} changed"
    return f"{names[0]} and {len(names) - 1} more changed"
