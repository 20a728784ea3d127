"""Read what earlier runs leave to the next: failed stages, interrupted work, calls already paid for."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path

from msgspec import Struct, field

from orch23.model.event import (
    CallReserved,
    CallSettled,
    CallSubmitted,
    LlmRequest,
    LlmResponse,
    RunFinished,
    RunStarted,
    StageFinished,
)
from orch23.model.event_data import CostText
from orch23.model.stage_status import StageStatus
from orch23.store.run_logs import JournalLine, interrupted_journals, newest_journal


class UsageTotals(Struct, frozen=True):
    """The number of calls, their input and output tokens together, and their cost in US dollars."""

    calls: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def plus(self, other: "UsageTotals") -> "UsageTotals":
        """Return the sum of both."""
        return UsageTotals(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)

    def minus(self, other: "UsageTotals") -> "UsageTotals":
        """Return the difference of both."""
        return UsageTotals(self.calls - other.calls, self.tokens - other.tokens, self.cost - other.cost)


class RunHistory(Struct, frozen=True, kw_only=True):
    """What earlier runs leave to the next. All fields but `failed` are about an interrupted run, if there is one.

    - `failed`: for each stage that failed when it last ran, the key that it failed with.
    - `unlocked`: for each stage that the run finished, its key: the lock file does not have it yet. It is empty if the
      lock file is not the one that the run began with, as after a switch of branches.
    - `reusable`: the fingerprints of responses that the run requested in place of recorded ones.
    - `spent`: what each stage used, never too little: a request without a known outcome counts in full.
    - `submitted`: for each fingerprint, the id of a response that a provider accepted and that was not received; also
      of a newest run that was not interrupted, but could not collect them.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    unlocked: Mapping[str, str] = field(default_factory=dict)
    reusable: frozenset[str] = frozenset()
    spent: Mapping[str, UsageTotals] = field(default_factory=dict)
    submitted: Mapping[str, str] = field(default_factory=dict)


def read_history(logs: Path, pipeline_file: str, lock: str = "") -> RunHistory:
    """Return what the runs of a pipeline leave to the next. `lock` is the digest of its lock file today.

    Raises:
        CorruptStateError: a journal that is needed is damaged.

    """
    cut_off = interrupted_journals(logs, pipeline_file)
    # The newest run is the first that was interrupted, if any was: then it is not read again.
    newest = cut_off[0][1] if cut_off else newest_journal(logs, pipeline_file)
    failed: dict[str, str] = {}
    for line in newest:
        ended = line.event.data
        if isinstance(ended, StageFinished):
            failed.pop(line.event.role, None)
            if ended.status is StageStatus.FAILED:
                failed[line.event.role] = ended.key
    lines = tuple(line for _, run in reversed(cut_off) for line in run)
    return RunHistory(
        failed=failed,
        unlocked=_finished(tuple(line for _, run in reversed(cut_off) if _lock(run) == lock for line in run)),
        reusable=frozenset(_fingerprints(lines)),
        spent=_spent(run for _, run in cut_off),
        submitted=_submitted(lines or newest),
    )


def _fingerprints(lines: tuple[JournalLine, ...]) -> Iterator[str]:
    """Yield the fingerprints of new calls, also without a response event: the response may be on the disk."""
    for line in lines:
        data = line.event.data
        if isinstance(data, LlmRequest | LlmResponse) and data.mode == "record":
            yield data.fingerprint


def _submitted(lines: tuple[JournalLine, ...]) -> dict[str, str]:
    """Return the id of each submitted call without a response or settlement since; none after a successful run."""
    if lines and isinstance(end := lines[-1].event.data, RunFinished) and end.exit_code == 0:
        return {}
    open_ids: dict[str, str] = {}
    for line in lines:
        match line.event.data:
            case CallSubmitted(fingerprint=fingerprint, response_id=response_id):
                open_ids[fingerprint] = response_id
            case LlmResponse(fingerprint=fingerprint) | CallSettled(fingerprint=fingerprint, forfeited=False):
                open_ids.pop(fingerprint, None)
            case _:
                pass
    return open_ids


def _lock(lines: tuple[JournalLine, ...]) -> str:
    return began.lock if lines and isinstance(began := lines[0].event.data, RunStarted) else ""


def _finished(lines: tuple[JournalLine, ...]) -> dict[str, str]:
    ends = ((line.event.role, line.event.data) for line in lines)
    return {role: end.key for role, end in ends if isinstance(end, StageFinished) and end.status.has_result}


def _spent(runs: Iterable[tuple[JournalLine, ...]]) -> dict[str, UsageTotals]:
    """Return what each stage used in some runs."""
    spent: dict[str, UsageTotals] = {}
    for run in runs:
        reserves = any(isinstance(line.event.data, CallReserved) for line in run)
        for stage, tally in _reserved(run) if reserves else _answered(run):
            spent[stage] = spent.get(stage, UsageTotals()).plus(tally)
    return spent


def _reserved(run: tuple[JournalLine, ...]) -> Iterator[tuple[str, UsageTotals]]:
    """Yield settled amounts, and in full the reserved amounts that were never settled: they may have been charged.

    A stage has at most one request in progress.
    """
    # The journal is the only account: the reservation was on disk before the request was sent (ADR 8).
    unsettled: dict[str, UsageTotals] = {}
    for line in run:
        stage = line.event.role
        match line.event.data:
            case CallReserved() as reserved:
                if stage in unsettled:
                    yield stage, unsettled[stage]
                unsettled[stage] = _totals(reserved)
            case CallSettled() as settled:
                unsettled.pop(stage, None)
                yield stage, _totals(settled)
            case _:
                pass
    yield from unsettled.items()


def _answered(run: tuple[JournalLine, ...]) -> Iterator[tuple[str, UsageTotals]]:
    """Yield the amounts of responses in a run of a version that did not reserve."""
    for line in run:
        data = line.event.data
        if isinstance(data, LlmResponse) and data.replayed is False:
            yield line.event.role, UsageTotals(1, data.input_tokens + data.output_tokens, _amount(data.cost))


def _totals(call: CallReserved | CallSettled) -> UsageTotals:
    return UsageTotals(call.calls, call.tokens, _amount(call.cost))


def _amount(cost: CostText) -> Decimal:
    """Return an amount of the journal; without a price it is 0."""
    return Decimal(cost) if cost is not None else Decimal(0)
