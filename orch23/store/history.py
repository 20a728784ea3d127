"""What earlier runs of a pipeline leave to the next one: what failed, what an interrupted run had done and spent."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path

from msgspec import Struct, field

from orch23.model.digest import Json
from orch23.store.journal import JournalLine, interrupted_journals, newest_journal

_GREEN = ("built", "restored", "verified", "fresh")


class Tally(Struct, frozen=True):
    """What requests took: how many they were, their tokens of input and output together, US dollars."""

    calls: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def plus(self, other: "Tally") -> "Tally":
        """Return both together."""
        return Tally(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)

    def minus(self, other: "Tally") -> "Tally":
        """Return what is left without the other."""
        return Tally(self.calls - other.calls, self.tokens - other.tokens, self.cost - other.cost)


class History(Struct, frozen=True, kw_only=True):
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
    spent: Mapping[str, Tally] = field(default_factory=dict)
    submitted: Mapping[str, str] = field(default_factory=dict)


def read_history(logs: Path, pipeline_file: str, lock: str = "") -> History:
    """Return what the runs of a pipeline leave to the next. `lock` is the digest of its lock file as it is now.

    Raises:
        CorruptStateError: the journal that matters is damaged.

    """
    failed: dict[str, str] = {}
    newest = newest_journal(logs, pipeline_file)
    for line in newest:
        status, key = line.event.data.get("status"), line.event.data.get("key")
        if line.event.type == "stage_finished" and isinstance(key, str):
            failed.pop(line.event.role, None)
            if status == "failed":
                failed[line.event.role] = key
    cut_off = interrupted_journals(logs, pipeline_file)
    lines = tuple(line for _, run in reversed(cut_off) for line in run)
    return History(
        failed=failed,
        unlocked=_finished(tuple(line for _, run in reversed(cut_off) if _lock(run) == lock for line in run)),
        reusable=frozenset(_fingerprints(lines)),
        spent=_spent(run for _, run in cut_off),
        submitted=_submitted(lines or newest),
    )


def _fingerprints(lines: tuple[JournalLine, ...]) -> Iterator[str]:
    """Give what was asked for anew: also where the run ended before it told of the answer, which may be on disk."""
    for line in lines:
        fingerprint = line.event.data.get("fingerprint")
        asked = line.event.type in ("llm_request", "llm_response") and line.event.data.get("mode") == "record"
        if asked and isinstance(fingerprint, str):
            yield fingerprint


def _submitted(lines: tuple[JournalLine, ...]) -> dict[str, str]:
    """Return the id of each call that was submitted and neither answered nor settled since; none of a green run."""
    if lines and lines[-1].event.type == "run_finished" and lines[-1].event.data.get("exit_code") == 0:
        return {}
    open_ids: dict[str, str] = {}
    for line in lines:
        fingerprint, response_id = line.event.data.get("fingerprint"), line.event.data.get("response_id")
        if not isinstance(fingerprint, str):
            continue
        if line.event.type == "call_submitted" and isinstance(response_id, str):
            open_ids[fingerprint] = response_id
        elif line.event.type in ("llm_response", "call_settled") and not line.event.data.get("forfeited"):
            open_ids.pop(fingerprint, None)
    return open_ids


def _lock(lines: tuple[JournalLine, ...]) -> str:
    return str(lines[0].event.data.get("lock", "")) if lines else ""


def _finished(lines: tuple[JournalLine, ...]) -> dict[str, str]:
    done = {}
    for line in lines:
        data = line.event.data
        if line.event.type == "stage_finished" and data.get("status") in _GREEN and isinstance(data.get("key"), str):
            done[line.event.role] = str(data["key"])
    return done


def _spent(runs: Iterable[tuple[JournalLine, ...]]) -> dict[str, Tally]:
    """Return what each stage took in some runs."""
    spent: dict[str, Tally] = {}
    for run in runs:
        reserves = any(line.event.type == "call_reserved" for line in run)
        for stage, tally in _reserved(run) if reserves else _answered(run):
            spent[stage] = spent.get(stage, Tally()).plus(tally)
    return spent


def _reserved(run: tuple[JournalLine, ...]) -> Iterator[tuple[str, Tally]]:
    """Give what was settled as settled, and in full what was reserved and never settled: it may have been charged.

    A stage has one request under way at most.
    """
    unsettled: dict[str, Tally] = {}
    for line in run:
        stage = line.event.role
        if line.event.type == "call_reserved":
            if stage in unsettled:
                yield stage, unsettled[stage]
            unsettled[stage] = _tally(line.event.data)
        elif line.event.type == "call_settled":
            unsettled.pop(stage, None)
            yield stage, _tally(line.event.data)
    yield from unsettled.items()


def _answered(run: tuple[JournalLine, ...]) -> Iterator[tuple[str, Tally]]:
    """Give what answers took in a run of a version that did not reserve."""
    for line in run:
        data = line.event.data
        if line.event.type == "llm_response" and data.get("replayed") is False:
            tokens = _whole(data.get("input_tokens")) + _whole(data.get("output_tokens"))
            yield line.event.role, Tally(1, tokens, _amount(data.get("cost")))


def _tally(data: Mapping[str, Json]) -> Tally:
    return Tally(_whole(data.get("calls")), _whole(data.get("tokens")), _amount(data.get("cost")))


def _whole(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _amount(value: Json) -> Decimal:
    """Return an amount as the journal writes it; what had no price is counted as nothing: nobody knows better."""
    return Decimal(value) if isinstance(value, str) else Decimal(0)
