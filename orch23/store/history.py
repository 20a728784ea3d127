"""Read what earlier runs leave to the next: failed stages, interrupted work, calls already paid for."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path

from msgspec import Struct, field

from orch23.model.event import (
    CallReserved,
    CallSettled,
    CallSubmitted,
    CostText,
    LlmRequest,
    LlmResponse,
    RunFinished,
    RunStarted,
    StageFinished,
)
from orch23.model.stage_status import StageStatus
from orch23.store.run_logs import JournalLine, interrupted_journals, newest_journal


class UsageTotals(Struct, frozen=True):
    """What requests took: how many they were, their tokens of input and output together, US dollars."""

    calls: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def plus(self, other: "UsageTotals") -> "UsageTotals":
        """Return both together."""
        return UsageTotals(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)

    def minus(self, other: "UsageTotals") -> "UsageTotals":
        """Return what is left without the other."""
        return UsageTotals(self.calls - other.calls, self.tokens - other.tokens, self.cost - other.cost)


class RunHistory(Struct, frozen=True, kw_only=True):
    """`failed` maps a stage to the key it failed with when it last ran. The rest is of an interrupted run, if any.

    `unlocked` maps stages it finished to their keys: the lock file does not know of them yet, and is still the one that
    the run began with (after a switch of branches it is another, and they are not its). `reusable` are the
    fingerprints that it asked for anew, in place of what was recorded; `spent` says what each of its
    stages took, never too little: a request of which nobody knows what became of it counts for all that it could take.
    `submitted` maps fingerprints to ids of answers that a provider took on and that never came: also where the newest
    run was not interrupted, but could not collect them.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    unlocked: Mapping[str, str] = field(default_factory=dict)
    reusable: frozenset[str] = frozenset()
    spent: Mapping[str, UsageTotals] = field(default_factory=dict)
    submitted: Mapping[str, str] = field(default_factory=dict)


def read_history(logs: Path, pipeline_file: str, lock: str = "") -> RunHistory:
    """Return what the runs of a pipeline leave to the next. `lock` is the digest of its lock file as it is now.

    Raises:
        CorruptStateError: the journal that matters is damaged.

    """
    failed: dict[str, str] = {}
    newest = newest_journal(logs, pipeline_file)
    for line in newest:
        ended = line.event.data
        if isinstance(ended, StageFinished):
            failed.pop(line.event.role, None)
            if ended.status is StageStatus.FAILED:
                failed[line.event.role] = ended.key
    cut_off = interrupted_journals(logs, pipeline_file)
    lines = tuple(line for _, run in reversed(cut_off) for line in run)
    return RunHistory(
        failed=failed,
        unlocked=_finished(tuple(line for _, run in reversed(cut_off) if _lock(run) == lock for line in run)),
        reusable=frozenset(_fingerprints(lines)),
        spent=_spent(run for _, run in cut_off),
        submitted=_submitted(lines or newest),
    )


def _fingerprints(lines: tuple[JournalLine, ...]) -> Iterator[str]:
    """Give what was asked for anew: also where the run ended before it told of the answer, which may be on disk."""
    for line in lines:
        told = line.event.data
        if isinstance(told, LlmRequest | LlmResponse) and told.mode == "record":
            yield told.fingerprint


def _submitted(lines: tuple[JournalLine, ...]) -> dict[str, str]:
    """Return the id of each call that was submitted and neither answered nor settled since; none of a green run."""
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
    """Return what each stage took in some runs."""
    spent: dict[str, UsageTotals] = {}
    for run in runs:
        reserves = any(isinstance(line.event.data, CallReserved) for line in run)
        for stage, tally in _reserved(run) if reserves else _answered(run):
            spent[stage] = spent.get(stage, UsageTotals()).plus(tally)
    return spent


def _reserved(run: tuple[JournalLine, ...]) -> Iterator[tuple[str, UsageTotals]]:
    """Give what was settled as settled, and in full what was reserved and never settled: it may have been charged.

    A stage has one request under way at most.
    """
    unsettled: dict[str, UsageTotals] = {}
    for line in run:
        stage = line.event.role
        match line.event.data:
            case CallReserved() as reserved:
                if stage in unsettled:
                    yield stage, unsettled[stage]
                unsettled[stage] = _tally(reserved)
            case CallSettled() as settled:
                unsettled.pop(stage, None)
                yield stage, _tally(settled)
            case _:
                pass
    yield from unsettled.items()


def _answered(run: tuple[JournalLine, ...]) -> Iterator[tuple[str, UsageTotals]]:
    """Give what answers took in a run of a version that did not reserve."""
    for line in run:
        told = line.event.data
        if isinstance(told, LlmResponse) and told.replayed is False:
            yield line.event.role, UsageTotals(1, told.input_tokens + told.output_tokens, _amount(told.cost))


def _tally(told: CallReserved | CallSettled) -> UsageTotals:
    return UsageTotals(told.calls, told.tokens, _amount(told.cost))


def _amount(cost: CostText) -> Decimal:
    """Return an amount as the journal writes it; what had no price is counted as nothing: nobody knows better."""
    return Decimal(cost) if cost is not None else Decimal(0)
