"""Read what earlier runs leave to the next: failed stages, interrupted work, paid calls, and statistics."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import reduce
from itertools import islice
from pathlib import Path

from msgspec import UNSET, Struct

from orch23.model.event import (
    BATCH_MARK,
    AttemptFinished,
    CallReserved,
    CallSettled,
    CallSubmitted,
    LlmRequest,
    LlmResponse,
    RunFinished,
    RunStarted,
    StageFinished,
    StagesAdded,
)
from orch23.model.event_data import StageStatus, UsageTotals
from orch23.model.pipeline import family_of
from orch23.model.plan import Resample, RunHistory, resample_of
from orch23.store.run_logs import JournalLine, is_interrupted, latest_runs, past_events, pipeline_journals, stage_mark

_NOTHING = UsageTotals()


def read_history(logs: Path, pipeline_file: str, lock: str = "") -> RunHistory:
    """Return what the runs of a pipeline leave to the next. `lock` is the digest of its lock file today.

    Raises:
        CorruptStateError: a journal that is needed is damaged.
    """
    runs = latest_runs(logs, pipeline_file)
    newest = runs[0][1] if runs else ()
    cut_off = [run for _, run in reversed(runs) if is_interrupted(run[-1])]
    attempts = {line.event.role: data for line in newest if isinstance(data := line.event.data, AttemptFinished)}
    ends = {line.event.role: data for line in newest if isinstance(data := line.event.data, StageFinished)}
    failed = {name: end.key for name, end in ends.items() if end.status is StageStatus.FAILED}
    lines = tuple(line for run in cut_off for line in run)
    spent, unsettled = _spent(cut_off)
    submitted = _submitted(lines or newest)
    resample = _resample(newest)
    promised = (fingerprint for known in resample.values() for fingerprint in known or ())
    return RunHistory(
        failed=failed,
        failures={name: attempts[name] for name in failed if name in attempts},
        withheld={name: end.key for name, end in ends.items() if end.status is StageStatus.WITHHELD},
        unlocked={
            line.event.role: end.key
            for run in cut_off
            if lock == (began.lock if isinstance(began := run[0].event.data, RunStarted) else "")
            for line in run
            if isinstance(end := line.event.data, StageFinished) and end.status.has_result
        },
        # Also without a response event: the response may be on the disk.
        reusable=frozenset(
            data.fingerprint
            for line in lines
            if isinstance(data := line.event.data, LlmRequest | LlmResponse) and data.mode == "record"
        ).union(promised),
        resample=resample,
        spent=spent,
        submitted=submitted,
        uncollected={name: amount for name, amount in unsettled.items() if name in submitted},
    )


def _resample(run: tuple[JournalLine, ...]) -> Resample:
    """Return which stages a run has left whose models were to be called again, also one that was not interrupted."""
    began = run[0].event.data if run else None
    if not isinstance(began, RunStarted) or began.resample is UNSET:
        return {}
    found, called = dict(began.resample), set[str]()
    added: dict[str, tuple[str, ...]] = {}
    for line in run:
        role, known = line.event.role, resample_of(found, line.event.role)
        match line.event.data:
            case LlmRequest(mode="record", fingerprint=fingerprint) if known is not None:
                found[role] = (*known, fingerprint)
                called.add(role)
            case StageFinished(status=StageStatus.BUILT | StageStatus.WITHHELD | StageStatus.FAILED) if role in called:
                found[role] = None
            case StagesAdded(items=items):
                added[role] = items
    for family, items in added.items():
        if all(item in found and found[item] is None for item in items):
            found.pop(family, None)
        found = {name: known for name, known in found.items() if family_of(name) != family or name in (family, *items)}
    return {name: known for name, known in found.items() if known is not None or found.get(family_of(name)) is not None}


def run_totals(run: tuple[JournalLine, ...]) -> UsageTotals:
    """Return what the model calls of one run used."""
    return reduce(UsageTotals.plus, _spent([run])[0].values(), _NOTHING)


def uncollected_amounts(run: tuple[JournalLine, ...]) -> dict[str, UsageTotals]:
    """Return what may have been charged for each request that one run submitted and did not collect, by fingerprint."""
    submitted = _submitted(run)
    return {name: amount for name, amount in _spent([run])[1].items() if name in submitted}


def _submitted(lines: tuple[JournalLine, ...]) -> dict[str, str]:
    """Return the id of each submitted call without a response or settlement since; none after a successful run."""
    if lines and isinstance(end := lines[-1].event.data, RunFinished) and end.exit_code == 0:
        return {}
    open_ids: dict[str, str] = {}
    batches: dict[str, str] = {}
    for line in lines:
        match line.event.data:
            case CallSubmitted(fingerprint=fingerprint, response_id=response_id):
                open_ids[fingerprint] = response_id
                if response_id.startswith(BATCH_MARK):
                    batches[fingerprint] = response_id
            # A stage takes the result of another one, whose equal request was in the batch.
            case CallReserved(fingerprint=fingerprint) if fingerprint in batches:
                open_ids[fingerprint] = batches[fingerprint]
            case LlmResponse(fingerprint=fingerprint) | CallSettled(fingerprint=fingerprint, forfeited=False):
                open_ids.pop(fingerprint, None)
    return open_ids


def _spent(runs: Iterable[tuple[JournalLine, ...]]) -> tuple[dict[str, UsageTotals], dict[str, UsageTotals]]:
    """Return what each stage used in some runs, oldest first, and the possible part of it by fingerprint.

    A later run that collects a submitted response settles the reservation of the run that submitted it.
    """
    spent: dict[str, UsageTotals] = {}
    unsettled: dict[str, UsageTotals] = {}
    for run in runs:
        # The amount of a reservation that was taken over is part of the run that took it over.
        for stage, call in ((line.event.role, line.event.data) for line in run):
            if isinstance(call, CallReserved) and call.collects:
                spent[stage] = spent.get(stage, _NOTHING).minus(unsettled.pop(call.fingerprint, _NOTHING))
        for stage, fingerprint, tally in _reserved(run):
            spent[stage] = spent.get(stage, _NOTHING).plus(tally)
            if tally.most_tokens > tally.tokens:
                unsettled[fingerprint] = tally
    return spent, unsettled


def _reserved(run: tuple[JournalLine, ...]) -> Iterator[tuple[str, str, UsageTotals]]:
    """Yield stage, fingerprint and amount: as settled, or as possible what was reserved and never settled.

    A stage has at most one request in progress.
    """
    # The journal is the only account: the reservation was on disk before the request was sent (ADR 8).
    unsettled: dict[str, CallReserved] = {}
    for line in run:
        stage = line.event.role
        match line.event.data:
            case CallReserved() as reserved:
                if stage in unsettled:
                    yield stage, unsettled[stage].fingerprint, _totals(unsettled[stage]).as_possible()
                unsettled[stage] = reserved
            case CallSettled() as settled:
                unsettled.pop(stage, None)
                totals = _totals(settled)
                yield stage, settled.fingerprint, totals.as_possible() if settled.forfeited else totals
    for stage, reserved in unsettled.items():
        yield stage, reserved.fingerprint, _totals(reserved).as_possible()


def _totals(call: CallReserved | CallSettled) -> UsageTotals:
    return UsageTotals(call.calls, call.tokens, Decimal(call.cost or 0))


_MAX_RUNS = 5
# With more names than this, it is faster to parse all lines than to search each line for all names.
_MAX_NAMES = 64
# Only the first bytes of a journal are read: `plan` must not wait for the journals of very long runs.
_MAX_JOURNAL_BYTES = 8_000_000


class StageStatistics(Struct, frozen=True, kw_only=True):
    """The seconds of each build of a stage, and the (input, output) tokens of each response; newest run first."""

    durations_s: tuple[float, ...] = ()
    tokens: tuple[tuple[int, int], ...] = ()


def read_statistics(
    logs: Path, pipeline_file: str, stages: Collection[str], models: Mapping[str, Collection[str]]
) -> Mapping[str, StageStatistics]:
    """Return the statistics of these stages in a pipeline's 5 newest runs; those of a foreach cover all of its items.

    `models` has the models of a stage, by its name without the item, as `provider model`: its calls of others do not
    count, since they say nothing about these. A stage that is not among them calls any. A damaged line is skipped:
    estimates can do without it.
    """
    durations_s: defaultdict[str, list[float]] = defaultdict(list)
    tokens: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    marks = {stage_mark(family_of(name)) for name in stages}
    marks = marks if len(marks) < _MAX_NAMES else set()
    kinds = (StageFinished, LlmResponse, LlmRequest)
    for path in islice(pipeline_journals(logs, pipeline_file), _MAX_RUNS):
        others = set[str]()  # stages that have called another model in this run
        for line, data in past_events(path, *kinds, marks=marks, max_bytes=_MAX_JOURNAL_BYTES):
            role, family = line.event.role, family_of(line.event.role)
            if isinstance(data, LlmRequest):
                model = f"{data.provider} {data.model}"
                if model not in models.get(family, (model,)):
                    others.add(role)
            for name in {role, family} if role not in others else ():
                match data:
                    case LlmResponse(input_tokens=given, output_tokens=written) if given or written:
                        tokens[name].append((given, written))
                    # Recorded responses are quick: their duration says nothing about a build that calls a model.
                    case StageFinished(status=StageStatus.BUILT, recorded=0, duration_s=float() as seconds):
                        durations_s[name].append(seconds)
    return {
        name: StageStatistics(durations_s=tuple(durations_s[name]), tokens=tuple(tokens[name]))
        for name in durations_s.keys() | tokens.keys()
    }


def statistics_of(past: Mapping[str, StageStatistics], stage: str) -> StageStatistics:
    """Return the statistics of a stage; if it never ran, those of the other items of its foreach."""
    return past.get(stage) or past.get(family_of(stage)) or StageStatistics()
