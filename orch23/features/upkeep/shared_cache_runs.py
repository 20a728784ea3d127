"""What runs did with a shared cache, from their journals: rows, and a total."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from orch23.model.digest import Json
from orch23.model.event import RunStarted, SharedCacheUsed
from orch23.model.text import parse_amount, visible
from orch23.report.shared_cache import shared_cache_clauses
from orch23.report.values import aligned, started_text
from orch23.store.run_logs import past_events, run_pipeline


class SharedCacheRun(Struct, frozen=True):
    """What one run did with a shared cache. `started` is the time of its first event."""

    run_id: str
    pipeline: str
    started: str
    used: SharedCacheUsed


def shared_cache_run(path: Path) -> SharedCacheRun | None:
    """Return what the run of a journal did with a shared cache; None if it used none, or if that line is damaged."""
    found = [*past_events(path, RunStarted, SharedCacheUsed)]
    uses = (data for _, data in found if isinstance(data, SharedCacheUsed))
    return next((SharedCacheRun(path.stem, run_pipeline(found[0][0]), found[0][0].ts, used) for used in uses), None)


def shared_cache_rows(runs: Sequence[SharedCacheRun]) -> str:
    """Return a line for each run, and one with their total if there are several."""
    rows = [(visible(one.run_id), started_text(one.started), visible(one.pipeline), _row(one.used)) for one in runs]
    if len(runs) > 1:
        rows.append((f"total of {len(runs):,} runs", "", "", _row(total_use(one.used for one in runs))))
    return aligned(rows)


def _row(used: SharedCacheUsed) -> str:
    return ", ".join(shared_cache_clauses(used))


def total_use(uses: Iterable[SharedCacheUsed]) -> SharedCacheUsed:
    """Return the sums of what several runs did."""
    every = [asdict(one) for one in uses]
    amounts = (parse_amount(one.pop("saved")) or Decimal(0) for one in every)
    saved = f"{sum(amounts, Decimal(0)):f}"
    total = convert({name: sum(one[name] for one in every) for name in every[0]} if every else {}, SharedCacheUsed)
    # Sums of binary fractions have more digits than their terms.
    return replace(total, waited_s=round(total.waited_s, 3), saved_s=round(total.saved_s, 3), saved=saved)


def shared_cache_json(runs: Sequence[SharedCacheRun]) -> dict[str, Json]:
    """Return the counts of each run, and their total, as plain values."""
    rows: list[Json] = [
        {"run": one.run_id, "pipeline": one.pipeline, "started": one.started, **asdict(one.used)} for one in runs
    ]
    return {"runs": rows, "total": asdict(total_use(one.used for one in runs))}
