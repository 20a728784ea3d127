"""The builds of one `watch`: they run one after the other in this process."""

import gc
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from orch23.cli.console import Console
from orch23.cli.error_report import report_error
from orch23.cli.parameters import run_build
from orch23.cli.shared_budget import SharedBudget
from orch23.cli.watched_build import WatchedBuild
from orch23.features.watch.stop_signals import StopSignals
from orch23.model.event import RunFinished, StageFinished
from orch23.model.paths import LOGS_FOLDER
from orch23.model.stage_status import StageStatus
from orch23.report.diagnostics import visible
from orch23.report.values import money_text, pluralize
from orch23.snapshot.fast_path import StaleSnapshot
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.history import run_totals
from orch23.store.run_logs import read_journal

_SHOWN_STAGES = 3


class SeriesBuild(Struct, frozen=True):
    """The end of one build. `read` are the states of the files that it used, if it left no snapshot.

    `has_started` is false if its pipeline has errors, or consent is missing. `is_outdated` is true if a file changed
    after the build has read it, `is_due_again` if the next build can do more without a change of any file.
    """

    has_started: bool
    read: StatSnapshot | None = None
    is_outdated: bool = False
    is_due_again: bool = False


class BuildSeries(Struct, kw_only=True):
    """Runs builds of one command line, with one budget for all of them."""

    console: Console
    argv: tuple[str, ...]
    parameters: Mapping[str, Any]
    root: Path
    llm: bool
    budget: SharedBudget
    stop: StopSignals = field(default_factory=StopSignals)

    def build(self, snapshot: StaleSnapshot | None) -> SeriesBuild:
        """Build once, and report the stages that wait."""
        watched = WatchedBuild(llm=self.llm, budget=self.budget, on_signal=self.stop.received.append)
        self._run(watched, snapshot)
        _free_memory(is_whole=watched.is_whole)
        if not watched.run_id:
            return SeriesBuild(has_started=False)
        is_due_again = self._account(watched)
        read = None if is_due_again else watched.read
        return SeriesBuild(has_started=True, read=read, is_outdated=watched.outdated, is_due_again=is_due_again)

    def _run(self, watched: WatchedBuild, snapshot: StaleSnapshot | None) -> None:
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

    def _account(self, watched: WatchedBuild) -> bool:
        """Add what a run has spent, by its journal; return whether the budget was used up by it."""
        lines = read_journal(self.root / LOGS_FOLDER / f"{watched.run_id}.jsonl")
        last = lines[-1].event.data if lines else None
        was_refused = isinstance(last, RunFinished) and last.status == "limit"
        if self.budget.end(run_totals(lines), was_refused=was_refused and not watched.holds) and not watched.holds:
            self.console.write_err(
                f"the budget of this watch is used up ({self.spent_text}): stages that would call a model wait; "
                "other stages go on\n"
            )
            return True
        waiting = [
            line.event.role
            for line in lines
            if isinstance(line.event.data, StageFinished) and line.event.data.status is StageStatus.AWAITING
        ]
        if watched.holds and waiting:
            self._report_waiting(waiting)
        return False

    def _report_waiting(self, stages: list[str]) -> None:
        names = ", ".join(map(visible, stages[:_SHOWN_STAGES]))
        more = f" and {len(stages) - _SHOWN_STAGES} more" if len(stages) > _SHOWN_STAGES else ""
        verb = "waits, since it" if len(stages) == 1 else "wait, since they"
        way = self.budget.way_to_raise if self.llm else "start `orch23 watch --llm`"
        self.console.write_err(
            f"{pluralize(len(stages), 'stage')} {verb} would call a model: {names}{more}\n"
            f"  to call it, run `orch23 build` in another terminal, or {way}\n"
        )

    @property
    def spent_text(self) -> str:
        """What was spent of the budget; empty if nothing was."""
        if not self.budget.spent:
            return ""
        limit = self.budget.limit
        of_limit = f" of {money_text(limit, Decimal(0))}" if limit is not None else ""
        return f"{money_text(self.budget.spent, Decimal(0))}{of_limit}"


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
