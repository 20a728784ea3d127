"""Count calls, tokens and cost of a run: reserve before a request, settle after it, enforce limits."""

from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_UP, Decimal
from functools import reduce
from threading import Condition
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.process_runner import CancelledBuildError
from orch23.attempt.stage_outcomes import NO_COST, StageCost
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, LimitError
from orch23.model.event import CallReserved, CallSettled, Event, RunFinished, Warned
from orch23.model.event_data import CostText, RequestTotals, RunLimits, UsageTotals
from orch23.model.pipeline import StopConditions
from orch23.model.text import decimal_text, format_duration, format_money

if TYPE_CHECKING:
    from orch23.model.llm import Pace, Request, Response, Usage
    from orch23.providers.prices import Prices, Tariff, WorstCase

_ONWARD = "the next build continues where this one stopped"
_NOTHING = UsageTotals()
OverBudget: TypeAlias = Callable[[UsageTotals, Decimal], Diagnostic]


class StageLimitError(LimitError):
    """A limit of one stage was reached: it fails, and the other stages continue as after any failure."""


class _Account(Struct):
    """The limits of the run or of one stage, what it has spent, and what is reserved for requests in progress.

    `own` is the part of `spent` of this run alone, `unpriced` counts the requests of `own` with an unknown price.
    `over_budget` makes the error for a request that would cost too much, by `own` and its cost, if the limit is not
    one of the pipeline.
    """

    owner: str
    limits: StopConditions
    spent: UsageTotals = _NOTHING
    held: UsageTotals = _NOTHING
    own: UsageTotals = _NOTHING
    unpriced: int = 0
    over_budget: OverBudget | None = None

    def misfit(self, worst: UsageTotals) -> Diagnostic | None:
        """Return the error of the first limit that a request could exceed, or None."""
        limits, taken = self.limits, self.spent.plus(self.held)
        if limits.max_llm_calls is not None and taken.calls + worst.calls > limits.max_llm_calls:
            message = f"max_llm_calls is {limits.max_llm_calls}, and {self.spent.calls} were made"
            return self._refusal("E501", "max_llm_calls", message)
        if limits.max_cost_usd is not None and taken.most_cost + worst.cost > limits.max_cost_usd:
            if self.over_budget is not None:
                return self.over_budget(self.own, worst.cost)
            more = f", at most {format_money(self.spent.possible_cost)} more" if self.spent.possible_cost else ""
            message = (
                f"max_cost_usd is ${decimal_text(limits.max_cost_usd)}, {format_money(self.spent.cost)} is spent{more}"
                f", and the next request could cost {format_money(worst.cost)}"
            )
            alone = worst.cost > limits.max_cost_usd
            return self._refusal("E502", "max_cost_usd", message, format_money(worst.cost, ROUND_UP) if alone else "")
        if limits.max_tokens is not None and taken.most_tokens + worst.tokens > limits.max_tokens:
            more = f", at most {self.spent.possible_tokens:,} more" if self.spent.possible_tokens else ""
            message = (
                f"max_tokens is {limits.max_tokens:,}, {self.spent.tokens:,} are spent{more}, "
                f"and the next request could take {worst.tokens:,}"
            )
            alone = worst.tokens > limits.max_tokens
            return self._refusal("E503", "max_tokens", message, f"{worst.tokens:,}" if alone else "")
        return None

    def _refusal(self, code: str, key: str, message: str, alone: str = "") -> Diagnostic:
        """Return the error of a limit. `alone` is the size of the request, if it alone exceeds the limit."""
        budget = " or --budget" if key == "max_cost_usd" and not self.owner else ""
        raised = f"raise stop_conditions.{key}{' of the stage' if self.owner else ''}{budget}"
        less = f" to {alone} at least, or lower llm.max_tokens: this request alone is too much" if alone else ""
        return Diagnostic(code, message, hint=f"{raised}{less or f'; {_ONWARD}'}", subject=self.owner or None)


_End: TypeAlias = Literal["counted", "uncounted", "unusable", "forfeited", "released"]
"""How a reservation ends: by the tokens of a response, by a response without them, by those of a request without a
usable response, as possibly charged in full, or as not charged."""


class _Reservation(Struct, frozen=True):
    """One request in progress: the most that it can take, and its tariff if that is known."""

    fingerprint: str
    worst: UsageTotals
    tariff: "Tariff | None"

    def cost(self, tally: UsageTotals) -> CostText:
        return None if self.tariff is None else decimal_text(tally.most_cost)


class Ledger(Struct, kw_only=True):
    """The counter of a run, used by all threads.

    `limits` are those of the run, `limits_of` gives those of a stage; `before` is what the interrupted runs that this
    one continues have spent, and `uncollected` the part of it that belongs to each response that is still to be
    collected, by fingerprint. `clock` is monotonic, in seconds. Events are emitted under the lock, in the order of what
    they report: a journal that ends at any event, as after a crash, never exceeds a limit. `sync` makes the events so
    far durable; it is called without the lock, so that calls in parallel share it. `over_budget` makes the error for a
    request that exceeds the cost of the run, if the pipeline does not set this limit.
    """

    limits: StopConditions
    limits_of: Callable[[str], StopConditions]
    prices: "Callable[[], Prices]"
    notice: Callable[[Event], None]
    sync: Callable[[], None]
    clock: Callable[[], float]
    before: Mapping[str, UsageTotals] = field(default_factory=dict)
    uncollected: Mapping[str, UsageTotals] = field(default_factory=dict)
    over_budget: OverBudget | None = None
    _collected: set[str] = field(default_factory=set)
    _sent: set[str] = field(default_factory=set)
    _run: _Account = field(default_factory=lambda: _Account("", StopConditions(), _NOTHING))
    _stages: dict[str, _Account] = field(default_factory=dict)
    _under_way: dict[str, _Reservation] = field(default_factory=dict)
    _parked: dict[str, tuple[str, _Reservation]] = field(default_factory=dict)
    _used_s: dict[str, float] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _closed: bool = False
    _changed: Condition = field(default_factory=Condition)  # reentrant

    def __post_init__(self) -> None:
        """Start with what interrupted runs spent."""
        spent = reduce(UsageTotals.plus, self.before.values(), _NOTHING)
        self._run = _Account("", self.limits, spent, over_budget=self.over_budget)

    def reserve(self, stage: str, request: "Request") -> None:
        """Reserve the maximum of one call; wait while it does not fit and other calls are in progress.

        Raises:
            LimitError: it does not fit, and no call in progress could make it fit.
            StageLimitError: it exceeds a limit of the stage, or the wall time of the stage is over.
            ConfigurationError: its price is not known, and there is a limit of cost.
            CancelledBuildError: the build stops.
        """
        tariff, worst = self._priced(request)
        limits = self.limits_of(stage)
        # Under a cost limit a model without a known price is not called: the limit could not hold (ADR 8).
        if worst.cost is None and not (self.limits.max_cost_usd is None and limits.max_cost_usd is None):
            raise ConfigurationError(self.prices().unknown_error(request.provider, request.model, stage))
        most = UsageTotals(1, worst.tokens, worst.cost or Decimal(0))
        with self._changed:
            own = self._stages.setdefault(stage, _Account(stage, limits, self.before.get(stage, _NOTHING)))
            if self._unpark(stage, request.fingerprint()):
                return
            reservation = _Reservation(request.fingerprint(), most, tariff)
            is_sent = reservation.fingerprint in self._sent
            collects = self._take_over(own, reservation, is_sent=is_sent) or is_sent
            self._sent.discard(reservation.fingerprint)
            # Calls in progress usually take less than reserved: a request that does not fit now may fit when one ends.
            while not collects and self._has_to_wait(own, most):
                self._changed.wait(self._left_s(stage))
            reserved = CallReserved(
                fingerprint=reservation.fingerprint,
                provider=request.provider,
                model=request.model,
                calls=most.calls,
                tokens=most.tokens,
                cost=reservation.cost(most),
                collects=collects,
            )
            self.notice(Event(reserved, f"up to {most.tokens:,} tokens", stage, "debug"))
            own.held, self._run.held = own.held.plus(most), self._run.held.plus(most)
            self._under_way[stage] = reservation
        # The reservation is in the journal before the request is sent: after a crash it counts in full.
        self.sync()

    def _priced(self, request: "Request", pace: "Pace | None" = None) -> "tuple[Tariff | None, WorstCase]":
        from orch23.providers.prices import worst_case  # noqa: PLC0415 - an edit without a model call does not need it

        tariff = self.prices().tariff_of(request.provider, request.model, pace or request.pace)
        return tariff, worst_case(request, tariff)

    def expect(self, fingerprints: Iterable[str]) -> None:
        """Note requests that earlier runs sent in batches: their responses are paid for, so they always fit.

        Their reservations may not be in `uncollected`: a run in between may have ended without the batch.
        """
        with self._changed:
            self._sent.update(fingerprints)

    def might_fit(self, stage: str, request: "Request") -> bool:
        """Return whether a request would fit into the limits now, without reserving anything."""
        _, worst = self._priced(request)
        most = UsageTotals(1, worst.tokens, worst.cost or Decimal(0))
        with self._changed:
            own = self._stages.get(stage) or _Account(stage, self.limits_of(stage), self.before.get(stage, _NOTHING))
            return own.misfit(most) is None and self._run.misfit(most) is None

    def with_cost(self, request: "Request", response: "Response") -> "Response":
        """Return a response with its known cost: none, if the provider does not report tokens."""
        tariff, worst = self._priced(request, response.pace)
        if tariff is None:
            return replace(response, cost=None, prices="")
        if _is_counted(response) or tariff.is_free:
            cost, uncached = decimal_text(tariff.cost(response.usage)), tariff.uncached_cost(response.usage)
            return replace(response, cost=cost, uncached_cost=decimal_text(uncached), prices=tariff.source)
        most = decimal_text(worst.cost or Decimal(0))
        source = f"{tariff.source}, at most ${most}: the provider counted no tokens"
        return replace(response, cost="0", prices=source)

    def settle(self, stage: str, response: "Response") -> None:
        """Replace a reservation by what the response took, also if that is more."""
        with self._changed:
            held = self._under_way[stage]
            if _is_counted(response) or (held.tariff is not None and held.tariff.is_free):
                cost = Decimal(response.cost) if response.cost is not None else Decimal(0)
                truth = UsageTotals(1, response.usage.total, cost)
                self._close(stage, "counted", truth, unpriced=response.cost is None)
            else:
                # A `command` provider reports no tokens: nothing is known but the most that it can have taken.
                truth = held.worst.as_possible()
                self._close(stage, "uncounted", truth, unpriced=response.cost is None)
        self.sync()
        # Use above the reservation counts as it is, with a warning (docs/budgets.md).
        if truth.tokens > held.worst.tokens or truth.cost > held.worst.cost:
            text = (
                f"the provider counted {truth.tokens:,} tokens, {format_money(truth.cost)}, where a request of this "
                f"size could take {held.worst.tokens:,}, {format_money(held.worst.cost)}; its count is used"
            )
            self.notice(Event(Warned(fingerprint=held.fingerprint), text, stage, "warning"))

    def settle_unusable(self, stage: str, usage: "Usage", *, is_final: bool = True) -> None:
        """Replace a reservation by the usage that the server reported; without `is_final`, the rest may be charged."""
        with self._changed:
            held = self._under_way[stage]
            cost = Decimal(0) if held.tariff is None else held.tariff.cost(usage)
            known, worst = UsageTotals(1, usage.total, cost), held.worst
            if not is_final:
                rest = max(0, worst.tokens - known.tokens), max(Decimal(0), worst.cost - cost)
                known = replace(known, possible_tokens=rest[0], possible_cost=rest[1])
            self._close(stage, "unusable", known, unpriced=held.tariff is None)
        self.sync()

    def release(self, stage: str) -> None:
        """Return a reservation: nothing was charged, and the call does not count."""
        with self._changed:
            self._close(stage, "released", _NOTHING)
        self.sync()

    def forfeit(self, stage: str) -> None:
        """Count a reservation as possible: it may have been charged in full. Do nothing if the stage has none."""
        with self._changed:
            held = self._under_way.get(stage)
            if held is None:
                return
            self._close(stage, "forfeited", held.worst.as_possible(), unpriced=held.tariff is None)
        self.sync()

    def park(self, stage: str) -> None:
        """Keep the reservation of a stage for a request in a batch. The stage's wall time stops meanwhile.

        No other request waits for it: it may take a day.
        """
        with self._changed:
            reservation = self._under_way.pop(stage)
            self._parked[reservation.fingerprint] = stage, reservation
            if stage in self._began:
                self._used_s[stage] = self.clock() - self._began.pop(stage)
            self._changed.notify_all()

    def release_parked(self, fingerprint: str, stage: str, request: "Request") -> None:
        """Return the reservation for a request in a batch that the vendor does not have, also of an earlier run."""
        with self._changed:
            known = self._parked.keys() | self._sent
            if fingerprint not in known and not self.is_uncollected(fingerprint):
                return
            self.reserve(stage, request)
            self.release(stage)

    def is_uncollected(self, fingerprint: str) -> bool:
        """Return whether an interrupted run reserved the cost of a request, and nothing has settled it."""
        return fingerprint in self.uncollected and fingerprint not in self._collected

    def close(self) -> None:
        """Refuse all further reservations, and wake the threads that wait for one."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def with_totals(self, ended: RunFinished) -> RunFinished:
        """Return the end of a run with its totals, those of the interrupted runs before it, and the limits."""
        with self._changed:
            own = self._run.own
            before = self._run.spent.minus(own)
            # Requests in batches may be charged: the next run settles them.
            for _, reservation in self._parked.values():
                own = own.plus(reservation.worst.as_possible())
            return replace(
                ended,
                calls=own.calls,
                tokens=own.tokens,
                cost=decimal_text(own.cost),
                possible_tokens=own.possible_tokens,
                possible_cost=decimal_text(own.possible_cost),
                unpriced=self._run.unpriced,
                before=RequestTotals(
                    before.calls,
                    before.tokens,
                    decimal_text(before.cost),
                    before.possible_tokens,
                    decimal_text(before.possible_cost),
                ),
                limits=run_limits(self.limits),
            )

    def cost_of(self, stage: str) -> StageCost:
        """Return what a stage cost in this run."""
        with self._changed:
            account = self._stages.get(stage)
            if account is None:
                return NO_COST
            own = account.own
            return StageCost(own.calls, None if account.unpriced else own.cost, own.possible_cost)

    def _unpark(self, stage: str, fingerprint: str) -> bool:
        """Continue with the reservation of a request in a batch, if there is one for the stage."""
        if fingerprint not in self._parked:
            return False
        owner, reservation = self._parked.pop(fingerprint)
        self._under_way[owner] = reservation
        if owner == stage:
            return True
        # Another stage makes the same request: it gets a reservation of its own.
        self._close(owner, "released", _NOTHING)
        return False

    def _take_over(self, own: _Account, reservation: _Reservation, *, is_sent: bool) -> bool:
        """Replace the reservation of an interrupted run by this one, if the request collects the response of that run.

        Its amount is in the accounts already, so it always fits. What `is_sent` in a batch also fits after the run has
        stopped.
        """
        former, worst = self.uncollected.get(reservation.fingerprint), reservation.worst
        if former is None or reservation.fingerprint in self._collected:
            return False
        # With other prices than those of that run, this reservation could be larger.
        if worst.calls > former.calls or worst.tokens > former.possible_tokens or worst.cost > former.possible_cost:
            return False
        if not is_sent:
            if self._closed:
                raise CancelledBuildError
            self._left_s(own.owner)
        self._collected.add(reservation.fingerprint)
        for account in (own, self._run):
            account.spent = account.spent.minus(former)
        return True

    def _has_to_wait(self, own: _Account, most: UsageTotals) -> bool:
        """Return whether a request must wait for others, which may take less than reserved. Raise if it cannot fit."""
        if self._closed:
            raise CancelledBuildError
        self._left_s(own.owner)
        # A stage has at most one request in progress, so waiting cannot make this one fit.
        if (refusal := own.misfit(most)) is not None:
            raise StageLimitError(refusal)
        refusal = self._run.misfit(most)
        # While other calls are in progress they may free budget; without any, the request can never fit.
        if refusal is not None and not self._under_way:
            raise LimitError(refusal)
        return refusal is not None

    def _close(self, stage: str, end: _End, truth: UsageTotals, *, unpriced: bool = False) -> None:
        """Replace a reservation by what the request took, and wake the threads that wait for the difference."""
        held, own = self._under_way.pop(stage), self._stages[stage]
        for account in (own, self._run):
            account.held, account.spent = account.held.minus(held.worst), account.spent.plus(truth)
            account.own, account.unpriced = account.own.plus(truth), account.unpriced + unpriced
        self._changed.notify_all()
        if truth.tokens and truth.possible_tokens:  # of a response that was cut: in the journal, its rest comes first
            rest = UsageTotals(0, truth.possible_tokens, truth.possible_cost)
            self._report(stage, held, rest, "uncounted")
            truth = replace(truth, possible_tokens=0, possible_cost=Decimal(0))
        self._report(stage, held, truth, end)

    def _report(self, stage: str, held: _Reservation, truth: UsageTotals, end: _End) -> None:
        settled = CallSettled(
            fingerprint=held.fingerprint,
            calls=truth.calls,
            tokens=truth.most_tokens,
            cost=held.cost(truth),
            forfeited=end in ("forfeited", "uncounted"),
            released=end == "released",
            unusable=end == "unusable",
            uncounted=end == "uncounted",
        )
        self.notice(Event(settled, f"{truth.most_tokens:,} tokens", stage, "debug"))

    def begin_attempt(self, stage: str) -> None:
        """Start an attempt of a stage; the stage's wall time begins with the first one.

        Raises:
            StageLimitError: its wall time is over.
        """
        with self._changed:
            self._left_s(stage)

    def deadline_s(self, stage: str, asked_s: float) -> float:
        """Return how long a request of a stage may take: as requested, or what is left of its wall time.

        Raises:
            StageLimitError: the wall time is over.
        """
        with self._changed:
            left_s = self._left_s(stage)
        return asked_s if left_s is None else min(asked_s, left_s)

    def _left_s(self, stage: str) -> float | None:
        limit = self.limits_of(stage).max_wall_s
        if limit is None:
            return None
        # The limit covers all attempts of the stage together, so its time runs from the first one.
        if stage not in self._began:
            self._began[stage] = self.clock() - self._used_s.pop(stage, 0.0)
        left_s = self._began[stage] + limit - self.clock()
        if left_s <= 0:
            raise StageLimitError(wall_time_error(limit, stage))
        return left_s


def run_limits(limits: StopConditions) -> RunLimits:
    """Return the limits of a run as its events report them."""
    return RunLimits(
        max_llm_calls=limits.max_llm_calls,
        max_tokens=limits.max_tokens,
        max_cost_usd=None if limits.max_cost_usd is None else decimal_text(limits.max_cost_usd),
        max_wall_s=limits.max_wall_s,
    )


def wall_time_error(limit_s: float, stage: str | None = None) -> Diagnostic:
    """Return the error that the wall time of the run, or of one stage, is over."""
    owner = "the stage" if stage else "the run"
    hint = f"raise stop_conditions.max_wall of {owner}; {_ONWARD}"
    return Diagnostic(
        "E504", f"{owner} exceeded max_wall, which is {format_duration(limit_s)}", hint=hint, subject=stage
    )


def _is_counted(response: "Response") -> bool:
    """Return whether the provider counted tokens: some count none of a response that has text."""
    return response.usage.input_tokens > 0 and (response.usage.output_tokens > 0 or not response.text)
