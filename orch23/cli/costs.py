"""Sum up from the journals what each run paid for a stage, and what its recorded answers saved."""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation

from msgspec import Struct, field

from orch23.model.digest import Json
from orch23.model.event import Amount, CallSettled, Event, LlmResponse
from orch23.report.figures import count
from orch23.report.money import money


class Cost(Struct, kw_only=True):
    """What one run took for a stage. An amount is None as soon as one of its answers has no known price."""

    run: str
    calls: int = 0
    recorded: int = 0
    unanswered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    paid: Decimal | None = Decimal(0)
    saved: Decimal | None = Decimal(0)
    prices: dict[str, None] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Count one event of the journal, if it is about money."""
        match event.data:
            case LlmResponse(replayed=True) as told:
                self.recorded += 1
                self.saved = _plus(self.saved, told.cost)
            case LlmResponse() as told:
                self.calls += 1
                self.paid = _plus(self.paid, told.cost)
            case CallSettled(forfeited=True, cost=cost):
                self.calls += 1
                self.unanswered += 1
                self.paid = _plus(self.paid, cost)
                return
            case _:
                return
        self.input_tokens += told.input_tokens
        self.output_tokens += told.output_tokens
        if told.prices:
            self.prices[told.prices] = None

    @property
    def is_empty(self) -> bool:
        """Say whether nobody was asked, and nothing answered from recordings."""
        return not self.calls and not self.recorded

    def text(self) -> str:
        """Return the sums in a line."""
        facts = [count(self.calls, "call")]
        facts += [f"{self.unanswered} of them without an answer, counted in full"] if self.unanswered else []
        facts += [count(self.recorded, "recorded answer")]
        facts += [f"{self.input_tokens:,}+{self.output_tokens:,} tokens"]
        facts += ["paid: price unknown" if self.paid is None else f"paid {money(self.paid)}"]
        if self.recorded:
            facts += ["saved: price unknown" if self.saved is None else f"saved {money(self.saved)}"]
        return ", ".join(facts)

    def facts(self) -> dict[str, Json]:
        """Return the sums as plain values: amounts as decimal strings, null where a price is unknown."""
        return {
            "run": self.run,
            "calls": self.calls,
            "unanswered": self.unanswered,
            "recorded_answers": self.recorded,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "paid": None if self.paid is None else str(self.paid),
            "saved": None if self.saved is None else str(self.saved),
            "prices": list(self.prices),
        }


def costs_of(runs: Iterable[tuple[str, Iterable[Event]]], stage: str) -> list[Cost]:
    """Return what each run took for a stage, or for all items of a foreach; no run that has nothing to tell."""
    found = []
    for run, events in runs:
        cost = Cost(run=run)
        for event in events:
            if stage in (event.role, event.role.partition("@")[0]):
                cost.add(event)
        if not cost.is_empty:
            found.append(cost)
    return found


def costs_text(stage: str, costs: Iterable[Cost]) -> str:
    """Return the sums of each run, a line each, and by whose prices they are."""
    lines, prices = [], dict[str, None]()
    for cost in costs:
        lines.append(f"{stage} in {cost.run}: {cost.text()}\n")
        prices |= cost.prices
    return "".join([*lines, *(f"prices: {one}\n" for one in prices)])


def _plus(amount: Decimal | None, cost: Amount) -> Decimal | None:
    try:
        more = Decimal(cost) if cost is not None else None
    except InvalidOperation:
        more = None
    return None if amount is None or more is None else amount + more


def facts_of(stage: str, costs: Iterable[Cost]) -> Mapping[str, Json]:
    """Return the sums of each run as plain values."""
    return {"stage": stage, "runs": [cost.facts() for cost in costs]}
