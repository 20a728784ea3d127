"""The builds of one `watch`: they run one after the other in this process."""

import gc
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import Struct

from orch23.cli.console import Console
from orch23.cli.error_report import report_error
from orch23.cli.parameters import run_build
from orch23.cli.watched_build import SharedBudget, WatchedBuild
from orch23.features.watch.file_events import StopSignals
from orch23.model.event import RunFinished, StageFinished
from orch23.model.event_data import StageStatus
from orch23.model.paths import LOGS_FOLDER
from orch23.model.text import visible
from orch23.report.values import money_text, pluralize
from orch23.snapshot.fast_path import StaleSnapshot
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
