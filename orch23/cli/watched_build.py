"""One build of `watch`: what it may do, what all builds may spend together, and how it has ended."""

from collections.abc import Callable, Iterable
from decimal import ROUND_UP, Decimal

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.event_data import UsageTotals
from orch23.model.text import format_money
from orch23.snapshot.stat_snapshot import StatSnapshot


class SharedBudget(Struct):
    """What the builds of one `watch` may spend together. All amounts are US dollars.

    `given` is --budget. Without it, `max_cost_usd` of the pipeline is the limit, as it is when a build starts.
    `spent` is the maximum of what the ended builds may have spent.
    """

    given: Decimal | None = None
    spent: Decimal = Decimal(0)
    _limit: Decimal | None = None
    _too_low: Decimal | None = None

    @property
    def limit(self) -> Decimal | None:
        """The limit of the last build; None if there is none."""
        return self._limit

    @property
    def way_to_raise(self) -> str:
        """How the user can raise the limit."""
        if self.given is None:
            return "raise stop_conditions.max_cost_usd of the pipeline"
        return "start `orch23 watch` again with a higher --budget"

    def begin(self, max_cost_usd: Decimal | None) -> bool:
        """Note the limit of the next build, whose pipeline has this one; return whether it may call a model.

        A limit that has not sufficed is used up, even if a part of it is left: all further calls were too expensive.
        """
        limit = self._limit = max_cost_usd if self.given is None else self.given
        return limit is None or (self.spent < limit and (self._too_low is None or self._too_low < limit))

    def of_build(self, continued: Iterable[UsageTotals]) -> Decimal | None:
        """Return the limit of a build that continues runs which have spent so much: they count for it as well."""
        if self._limit is None:
            return None
        return self._limit - self.spent + sum((one.most_cost for one in continued), Decimal(0))

    def end(self, used: UsageTotals, *, was_refused: bool) -> bool:
        """Add what a build has used; return whether the budget is used up. A request may have been refused by it."""
        self.spent += used.most_cost
        if self._limit is None or not (was_refused or self.spent >= self._limit):
            return False
        self._too_low = self._limit
        return True

    def refusal(self, own: UsageTotals, cost: Decimal) -> Diagnostic:
        """Return the error for a request that may cost too much, in a build that has used `own` so far."""
        limit, spent = self._limit or Decimal(0), self.spent + own.cost
        more = f", at most {format_money(own.possible_cost)} more" if own.possible_cost else ""
        message = (
            f"the builds of this `watch` may spend {format_money(limit)} together, {format_money(spent)} is spent"
            f"{more}, and the next request could cost {format_money(cost)}"
        )
        way = self.way_to_raise
        if cost > limit:
            way += (
                f" (at least {format_money(cost, ROUND_UP)}), or lower llm.max_tokens: this request alone is too much"
            )
        return Diagnostic("E502", message, hint=way)


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
