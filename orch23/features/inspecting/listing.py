"""List the runs of a project by their journals."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.errors import CorruptStateError
from orch23.model.event import CallReserved, RunFinished, StageFinished
from orch23.model.text import format_duration, parse_amount, visible
from orch23.report.values import aligned, format_counts, money_text, pluralize, started_text
from orch23.store.history import run_totals, uncollected_amounts
from orch23.store.run_logs import INTERRUPTED, JournalLine, journal_ends, journal_paths, parse_journal, run_pipeline
from orch23.store.safe_files import read_regular


class RunSummary(Struct, frozen=True, kw_only=True, rename={"run_id": "run", "counts": "stages"}):
    """The summary of a run. `status` comes from `run_finished`, else it is `interrupted`, or `damaged` if unreadable.

    `duration_s` is the time from the first event to the last. `cost` in US dollars is known, `possible_cost` may have
    been charged besides, `unpriced` counts the calls without a known price. A call whose response a later run collected
    is a call of that run.
    """

    run_id: str
    status: str = INTERRUPTED
    pipeline: str = ""
    started: str = ""
    finished: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    duration_s: float | None = None
    calls: int = 0
    cost: str = "0"
    possible_cost: str = "0"
    unpriced: int = 0


def list_runs(logs: Path) -> tuple[RunSummary, ...]:
    """Return all runs with a journal, newest first; a run with an unreadable journal has the status `damaged`."""
    found = []
    # The requests of earlier runs that the runs so far have collected, by pipeline.
    collected: defaultdict[str, set[str]] = defaultdict(set)
    for path in journal_paths(logs):
        try:
            lines = _ends(path) or parse_journal(read_regular(path) or b"", str(path))
        except CorruptStateError:
            found.append(RunSummary(run_id=path.stem, status="damaged"))
        else:
            if lines:
                later = collected[run_pipeline(lines[0])]
                found.append(_without_collected(_summary(path.stem, lines), later, lines))
                reserved = (line.event.data for line in lines)
                later.update(one.fingerprint for one in reserved if isinstance(one, CallReserved) and one.collects)
    return tuple(found)


def _ends(path: Path) -> tuple[JournalLine, ...]:
    """Return the first and the last line of a run whose last line says all; none of another."""
    first, last = journal_ends(path)
    if first is None or last is None or not isinstance(ended := last.event.data, RunFinished):
        return ()
    # Calls need the lines between: a later run may have collected their responses.
    return (first, last) if ended.stages and not ended.calls and ended.possible_cost == "0" else ()


def _summary(run_id: str, lines: tuple[JournalLine, ...]) -> RunSummary:
    first, last = lines[0], lines[-1]
    statuses = (line.event.data.status.value for line in lines if isinstance(line.event.data, StageFinished))
    ended = last.event.data if isinstance(last.event.data, RunFinished) else None
    found = RunSummary(
        run_id=run_id,
        pipeline=run_pipeline(first),
        started=first.ts,
        finished=last.ts if ended else None,
        status=ended.status if ended else INTERRUPTED,
        # A run with nothing to do has them in its last event only.
        counts=Counter(statuses) or (ended.stages if ended else {}),
        duration_s=_seconds_between(first.ts, last.ts),
    )
    if ended is not None:
        cost, possible = ended.cost or "0", ended.possible_cost
        return replace(found, calls=ended.calls, cost=cost, possible_cost=possible, unpriced=ended.unpriced)
    # A killed run has no totals: its reservations and settlements are the account.
    spent = run_totals(lines)
    return replace(found, calls=spent.calls, cost=str(spent.cost), possible_cost=str(spent.possible_cost))


def _without_collected(run: RunSummary, later: set[str], lines: tuple[JournalLine, ...]) -> RunSummary:
    """Return the summary without the calls that later runs collected; they are removed from `later`."""
    if not later or not run.calls:
        return run
    amounts = uncollected_amounts(lines)
    found = [amounts[name] for name in amounts.keys() & later]
    later -= amounts.keys()
    possible = Decimal(run.possible_cost) - sum((one.possible_cost for one in found), Decimal(0))
    calls = run.calls - sum(one.calls for one in found)
    return replace(run, calls=calls, possible_cost=f"{possible.normalize():f}")


def _seconds_between(first: str, last: str) -> float | None:
    try:
        return round((datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds(), 3)
    except ValueError:
        return None


def runs_text(runs: Iterable[RunSummary]) -> str:
    """Return a line for each run: its id, start, status, pipeline, duration, and what its stages and calls were."""
    rows = [
        (
            visible(one.run_id),
            started_text(one.started),
            *map(visible, (one.status, one.pipeline)),
            "" if one.duration_s is None else format_duration(one.duration_s),
            ", ".join(_run_facts(one)),
        )
        for one in runs
    ]
    return aligned(rows) or "there are no runs\n"


def _run_facts(run: RunSummary) -> list[str]:
    facts = [format_counts(run.counts)] if run.counts else []
    facts += [pluralize(run.calls, "call")] if run.calls else []
    cost, possible = parse_amount(run.cost) or Decimal(0), parse_amount(run.possible_cost) or Decimal(0)
    facts += [money_text(cost, possible)] if cost or possible else []
    facts += [f"price of {pluralize(run.unpriced, 'call')} unknown"] if run.unpriced else []
    return facts
