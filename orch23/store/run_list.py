"""List the runs of a project by their journals."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.errors import CorruptStateError
from orch23.model.event import EVENT_KINDS, EVENT_VERSION, CallReserved, RunFinished, StageFinished
from orch23.model.stage_status import StageStatus
from orch23.store.history import run_totals, uncollected_amounts
from orch23.store.run_logs import (
    INTERRUPTED,
    JournalLine,
    has_checksum,
    journal_paths,
    parse_journal,
    read_journal,
    run_pipeline,
    whole_line,
)
from orch23.store.safe_files import open_stream, read_regular

_RECORDED = (StageStatus.BUILT, StageStatus.VERIFIED)


class RunSummary(Struct, frozen=True, kw_only=True):
    """The summary of a run. `status` is that of `run_finished`, else `interrupted`, or `damaged` if unreadable.

    `duration_s` is the time from the first event to the last. `cost` in US dollars is known, `possible_cost` may have
    been charged besides, `unpriced` counts the calls without a known price. A call whose response a later run collected
    is a call of that run.
    """

    run_id: str
    pipeline: str = ""
    started: str = ""
    finished: str | None = None
    status: str = INTERRUPTED
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
    collected: dict[str, set[str]] = {}
    for path in journal_paths(logs):
        data = read_regular(path) or b""
        try:
            sketch = _sketch(data) or _sketch_of(parse_journal(data, str(path)))
        except CorruptStateError:
            found.append(RunSummary(run_id=path.stem, status="damaged"))
        else:
            if sketch is not None:
                summary = _summary(path.stem, sketch, data)
                later = collected.setdefault(summary.pipeline, set())
                is_open = bool(later) and summary.calls > 0
                found.append(_without_collected(summary, later, data) if is_open else summary)
                later.update(sketch.collects)
    return tuple(found)


def run_of_result(logs: Path, stage: str, key: str) -> str:
    """Return the id of the newest run that recorded a result of a stage with this key; an empty text if none is known.

    A run that restored the result, or found it fresh, does not count. Unreadable journals are ignored.
    """
    for path in journal_paths(logs):
        data = read_regular(path) or b""
        if key.encode() not in data:
            continue
        with suppress(CorruptStateError):
            events = (line.event for line in parse_journal(data, str(path)) if line.event.role == stage)
            ends = (event.data for event in events if isinstance(event.data, StageFinished))
            if any(end.key == key and end.status in _RECORDED for end in ends):
                return path.stem
    return ""


def run_ids(logs: Path) -> list[str]:
    """Return the ids of the runs of `list_runs`, newest first, by the first line of each journal."""
    return [path.stem for path in journal_paths(logs) if _has_lines(path)]


def _has_lines(path: Path) -> bool:
    with open_stream(path) as stream:
        if whole_line(stream.readline()) is not None:
            return True
    try:
        return bool(read_journal(path))
    except CorruptStateError:
        return True


class _ReservedData(Struct, frozen=True):
    fingerprint: str
    collects: bool = False


class _ReservedCall(Struct, frozen=True):
    """The part of a line about a reservation that shows whether it replaces that of an earlier run."""

    data: _ReservedData


class _FinishedData(Struct, frozen=True):
    status: StageStatus


class _FinishedStage(Struct, frozen=True):
    """The part of a line about a finished stage that a list of runs shows."""

    data: _FinishedData


_FINISHED = StageFinished.kind.encode()
_RESERVED = CallReserved.kind.encode()
_RESERVED_CALL = msgspec.json.Decoder(_ReservedCall)
_FINISHED_STAGE = msgspec.json.Decoder(_FinishedStage)
# The beginning of a line of this version: its number, and the type of its event.
_BEGINNING = re.compile(rb'\{"v":%d,"seq":(\d+),"ts":"[^"]*","level":"[a-z]*","type":"([a-z_]+)",' % EVENT_VERSION)


class _Sketch(NamedTuple):
    """What the summary of a run needs of its journal.

    `statuses` are those of the finished stages, `collects` the requests whose reservations are of earlier runs.
    """

    first: JournalLine
    last: JournalLine
    statuses: Sequence[str]
    collects: Sequence[str]


def _sketch_of(lines: Sequence[JournalLine]) -> _Sketch | None:
    statuses = [one.event.data.status.value for one in lines if isinstance(one.event.data, StageFinished)]
    reserved = [one.event.data for one in lines if isinstance(one.event.data, CallReserved)]
    collects = [one.fingerprint for one in reserved if one.collects]
    return _Sketch(lines[0], lines[-1], statuses, collects) if lines else None


def _sketch(data: bytes) -> _Sketch | None:
    """Return the sketch of a journal without damage; None if `parse_journal` has to decide.

    The checksum of each line is compared, but of most lines only the beginning is parsed: a line with the right
    checksum has the form that orch23 wrote.
    """
    lines = data.splitlines(keepends=True)
    statuses: list[str] = []
    collects: list[str] = []
    for number, line in enumerate(lines, 1):
        found = _BEGINNING.match(line)
        if found is None or int(found[1]) != number or found[2].decode() not in EVENT_KINDS or not has_checksum(line):
            return None
        try:
            if found[2] == _FINISHED:
                statuses.append(_FINISHED_STAGE.decode(line).data.status.value)
            elif found[2] == _RESERVED and (call := _RESERVED_CALL.decode(line).data).collects:
                collects.append(call.fingerprint)
        except ValueError:
            return None
    first, last = (whole_line(lines[0]), whole_line(lines[-1])) if lines else (None, None)
    return _Sketch(first, last, statuses, collects) if first is not None and last is not None else None


def _summary(run_id: str, sketch: _Sketch, data: bytes) -> RunSummary:
    last = sketch.last
    ended = last.event.data if isinstance(last.event.data, RunFinished) else None
    found = RunSummary(
        run_id=run_id,
        pipeline=run_pipeline(sketch.first),
        started=sketch.first.ts,
        finished=last.ts if ended else None,
        status=ended.status if ended else INTERRUPTED,
        # A run with nothing to do has them in its last event only.
        counts=Counter(sketch.statuses) or (ended.stages if ended else {}),
        duration_s=_seconds_between(sketch.first.ts, last.ts),
    )
    if ended is not None:
        calls, cost, possible_cost = ended.calls, ended.cost or "0", ended.possible_cost
        return replace(found, calls=calls, cost=cost, possible_cost=possible_cost, unpriced=ended.unpriced)
    # A killed run has no totals: its reservations and settlements are the account.
    spent = run_totals(parse_journal(data, run_id))
    return replace(found, calls=spent.calls, cost=str(spent.cost), possible_cost=str(spent.possible_cost))


def _without_collected(run: RunSummary, later: set[str], data: bytes) -> RunSummary:
    """Return the summary without the calls that later runs collected; they are removed from `later`."""
    amounts = uncollected_amounts(parse_journal(data, run.run_id))
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
