"""What earlier runs of a pipeline leave to the next one: what failed, what an interrupted run had done and spent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orch23.store.journal import JournalLine, interrupted_journals, newest_journal

_GREEN = ("built", "restored", "verified", "fresh")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`failed` maps a stage to the key it failed with when it last ran. The rest is of an interrupted run, if any.

    `unlocked` maps stages it finished to their keys: the lock file does not know of them yet, and is still the one that
    the run began with (after a switch of branches it is another, and they are not its). `reusable` are the
    fingerprints of the answers it got, `calls` counts those of them that a provider was asked for.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    unlocked: Mapping[str, str] = field(default_factory=dict)
    reusable: frozenset[str] = frozenset()
    calls: int = 0


def read_history(logs: Path, pipeline_file: str, lock: str = "") -> History:
    """Return what the runs of a pipeline leave to the next. `lock` is the digest of its lock file as it is now.

    Raises:
        CorruptStateError: the journal that matters is damaged.

    """
    failed: dict[str, str] = {}
    for line in newest_journal(logs, pipeline_file):
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
        calls=sum(_is_paid(line) for line in lines),
    )


def _fingerprints(lines: tuple[JournalLine, ...]) -> Iterator[str]:
    for line in lines:
        fingerprint = line.event.data.get("fingerprint")
        if line.event.type == "llm_response" and isinstance(fingerprint, str):
            yield fingerprint


def _lock(lines: tuple[JournalLine, ...]) -> str:
    return str(lines[0].event.data.get("lock", "")) if lines else ""


def _finished(lines: tuple[JournalLine, ...]) -> dict[str, str]:
    done = {}
    for line in lines:
        data = line.event.data
        if line.event.type == "stage_finished" and data.get("status") in _GREEN and isinstance(data.get("key"), str):
            done[line.event.role] = str(data["key"])
    return done


def _is_paid(line: JournalLine) -> bool:
    return line.event.type == "llm_response" and line.event.data.get("replayed") is False
