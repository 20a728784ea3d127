"""The budget that all builds of one `watch` share."""

from collections.abc import Iterable
from decimal import ROUND_UP, Decimal

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.text import format_money
from orch23.store.history import UsageTotals


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
