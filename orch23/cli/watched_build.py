"""One build of `watch`: what it may do, and how it has ended."""

from collections.abc import Callable
from decimal import Decimal

from msgspec import Struct

from orch23.cli.shared_budget import SharedBudget
from orch23.snapshot.stat_snapshot import StatSnapshot


class WatchedBuild(Struct, kw_only=True):
    """One build of `watch`. Without `llm`, and once `budget` is used up, it `holds` the stages that would call a model.

    `on_signal` gets the number of a signal that the build has received. When it has ended, `run_id` is that of its run
    (empty if it did not start), and `read` the states of the files that it used: None if the build wrote a snapshot, or
    is `outdated`, since one of them changed after it was read. With `is_whole`, it has loaded the whole pipeline. With
    `is_due_again`, the next build can do more without a change of any file.
    """

    llm: bool
    budget: SharedBudget
    on_signal: Callable[[int], None]
    holds: bool = True
    run_id: str = ""
    read: StatSnapshot | None = None
    outdated: bool = False
    is_whole: bool = True
    is_due_again: bool = False

    def begin(self, max_cost_usd: Decimal | None) -> bool:
        """Note the limit of the pipeline, which the user may have changed; return whether it may call models."""
        self.holds = not (self.llm and self.budget.begin(max_cost_usd))
        return not self.holds

    def end(self, run_id: str, read: StatSnapshot | None, *, has_snapshot: bool, is_whole: bool) -> None:
        """Note how it has ended. The caller holds the build lock."""
        self.run_id, self.read, self.is_whole = run_id, read, is_whole
        self.outdated = read is None and not has_snapshot
