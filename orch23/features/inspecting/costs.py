"""What the runs of a pipeline paid for a stage."""

from collections.abc import Iterable

from orch23.model.event import Event
from orch23.model.pipeline import family_of
from orch23.model.run_facts import RunCost
from orch23.model.text import format_money
from orch23.report.values import pluralize


def stage_costs(runs: Iterable[tuple[str, Iterable[Event]]], stage: str) -> list[RunCost]:
    """Return the calls of a stage, or of all items of a foreach, in each run that has any."""
    found = []
    for run, events in runs:
        cost = RunCost(run=run)
        for event in events:
            if stage in (event.role, family_of(event.role)):
                cost.add(event)
        if cost.calls or cost.recorded:
            found.append(cost)
    return found


def costs_text(stage: str, costs: Iterable[RunCost]) -> str:
    """Return a line with the sums of each run, and one for each price table that they come from."""
    runs = list(costs)
    prices = dict.fromkeys(table for cost in runs for table in cost.prices)
    lines = [f"{stage} in {cost.run}: {_cost_text(cost)}\n" for cost in runs]
    return "".join([*lines, *(f"prices: {table}\n" for table in prices)])


def _cost_text(cost: RunCost) -> str:
    facts = [pluralize(cost.calls, "call")]
    facts += [f"{cost.unanswered} of them without a response"] if cost.unanswered else []
    facts += [f"{cost.unusable} of them without a usable response"] if cost.unusable else []
    facts += [pluralize(cost.recorded, "recorded response")]
    facts += [tokens_text(cost.input_tokens, cost.output_tokens)]
    facts += ["paid: price unknown" if cost.paid is None else f"paid {format_money(cost.paid)}"]
    facts += [f"at most {format_money(cost.possible)} more"] if cost.possible else []
    if cost.recorded:
        facts += ["saved: price unknown" if cost.saved is None else f"saved {format_money(cost.saved)}"]
    if cost.cache_read_tokens or cost.cache_write_tokens:
        cached = f"{cost.cache_read_tokens:,} read from and {cost.cache_write_tokens:,} written to the prompt cache"
        effect = "saved" if cost.cache_saved >= 0 else "cost"
        facts += [f"{cached}, which {effect} {format_money(abs(cost.cache_saved))}"]
    return ", ".join(facts)


def tokens_text(read: int, written: int) -> str:
    """Return numbers of tokens; a provider that states none does not count them."""
    return f"{read:,}+{written:,} tokens" if read or written else "tokens unknown"
