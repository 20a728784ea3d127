"""Write lists of runs, lines of a journal, and what runs paid for a stage."""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation

from msgspec import Struct, field

from orch23.model.digest import Json
from orch23.model.event import (
    ORCH23_ROLE,
    CallSettled,
    CostText,
    Event,
    FilesPromoted,
    FilesProposed,
    LlmResponse,
    StageDecided,
    StageFinished,
    StageRestored,
)
from orch23.report.diagnostics import visible
from orch23.report.values import format_counts, format_money, pluralize
from orch23.store.run_logs import RunSummary

_TIME = slice(11, 23)
_MOST_TEXT = 160


def runs_text(runs: Iterable[RunSummary]) -> str:
    """Return one line a run."""
    rows = [(*map(visible, (one.run_id, one.status, one.pipeline)), format_counts(one.counts)) for one in runs]
    if not rows:
        return "there are no runs\n"
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row in rows:
        shown = [f"{text:<{width}}" for text, width in zip(row, [*widths, 0], strict=True)]
        lines.append("  ".join(shown).rstrip() + "\n")
    return "".join(lines)


def log_line(moment: str, event: Event) -> str:
    """Return one line of a journal: time, who, what, and the facts that matter."""
    role = "" if event.role == ORCH23_ROLE else f"{visible(event.role)}: "
    warn = "" if event.level in ("debug", "info") else f"{event.level}: "
    text = visible(f"{event.message}{_facts(event)}").replace("\n", " ")
    text = text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."
    return f"{moment[_TIME]}  {event.type:<16}  {warn}{role}{text}\n"


def _facts(event: Event) -> str:
    match event.data:
        case StageFinished(status=status):
            return f" ({status})" if event.message != status else ""
        case StageDecided(reasons=reasons):
            return f": {', '.join(one.code for one in reasons)}" if reasons else ""
        case FilesPromoted(files=files, removed=removed) | StageRestored(files=files, removed=removed):
            return _paths((*files, *(f"-{path}" for path in removed)))
        case FilesProposed(files=files):
            return _paths(files)
        case LlmResponse(input_tokens=input_tokens, output_tokens=output_tokens, stop=stop):
            return f" ({input_tokens}+{output_tokens} tokens, {stop})"
        case _:
            return ""


def _paths(paths: tuple[str, ...]) -> str:
    return f": {' '.join(paths)}" if paths else ""


class RunCost(Struct, kw_only=True):
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
        facts = [pluralize(self.calls, "call")]
        facts += [f"{self.unanswered} of them without an answer, counted in full"] if self.unanswered else []
        facts += [pluralize(self.recorded, "recorded answer")]
        facts += [f"{self.input_tokens:,}+{self.output_tokens:,} tokens"]
        facts += ["paid: price unknown" if self.paid is None else f"paid {format_money(self.paid)}"]
        if self.recorded:
            facts += ["saved: price unknown" if self.saved is None else f"saved {format_money(self.saved)}"]
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


def stage_costs(runs: Iterable[tuple[str, Iterable[Event]]], stage: str) -> list[RunCost]:
    """Return what each run took for a stage, or for all items of a foreach; no run that has nothing to tell."""
    found = []
    for run, events in runs:
        cost = RunCost(run=run)
        for event in events:
            if stage in (event.role, event.role.partition("@")[0]):
                cost.add(event)
        if not cost.is_empty:
            found.append(cost)
    return found


def costs_text(stage: str, costs: Iterable[RunCost]) -> str:
    """Return the sums of each run, a line each, and by whose prices they are."""
    lines, prices = [], dict[str, None]()
    for cost in costs:
        lines.append(f"{stage} in {cost.run}: {cost.text()}\n")
        prices |= cost.prices
    return "".join([*lines, *(f"prices: {one}\n" for one in prices)])


def _plus(amount: Decimal | None, cost: CostText) -> Decimal | None:
    try:
        more = Decimal(cost) if cost is not None else None
    except InvalidOperation:
        more = None
    return None if amount is None or more is None else amount + more


def costs_json(stage: str, costs: Iterable[RunCost]) -> Mapping[str, Json]:
    """Return the sums of each run as plain values."""
    return {"stage": stage, "runs": [cost.facts() for cost in costs]}
