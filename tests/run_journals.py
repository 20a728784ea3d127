"""Journals of runs that never happened, as large as a test needs them, written as a build writes them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct, field

from orch23.model.event import (
    AttemptFinished,
    AttemptStarted,
    CheckResult,
    Event,
    FilesPromoted,
    LlmRequest,
    LlmResponse,
    Planned,
    RunFinished,
    RunStarted,
    StageDecided,
    StageFinished,
    StageStarted,
)
from orch23.model.event_data import EventData, EventReason, FailureName, RunLimits, SentFile, StageStatus
from orch23.store.run_logs import AttemptFiles, Journal

BEGAN = datetime(2026, 11, 26, 12, 0, 0, tzinfo=UTC)
RUN = "20261126T120000Z-00000001"
TEXT = 'a line of a prompt, with <tags> & "quotes"\n'


class RunWriter(Struct, kw_only=True):
    """Writes one run. `now` is the time of the next event."""

    logs: Path
    run: str = RUN
    now: datetime = BEGAN
    _journal: list[Journal] = field(default_factory=list)

    def write(self, data: EventData, message: str = "", role: str = "orch23", after_s: float = 0.1) -> None:
        """Write an event, `after_s` seconds after the one before."""
        if not self._journal:
            self._journal.append(Journal(self.logs, self.run, lambda: self.now))
        self.now += timedelta(seconds=after_s)
        self._journal[0].notice(Event(data, message or data.kind, role))

    def keep(self, stage: str, attempt: int, name: str, text: str) -> None:
        """Keep a file of an attempt."""
        AttemptFiles(self.logs / self.run).keep(stage, attempt, name, text)

    def close(self) -> str:
        """End the journal, and return the id of the run."""
        self._journal[0].close()
        return self.run


def layered_needs(number: int, width: int = 10) -> dict[str, tuple[str, ...]]:
    """Return the dependencies of so many stages in layers: each needs two of the layer before."""
    return {
        f"stage{at:04}": tuple(f"stage{one:04}" for one in {at - width, at - width + (at * 7) % 5 - 2} if 0 <= one < at)
        for at in range(number)
    }


def write_run(logs: Path, number: int, *, characters: int = 20_000, run: str = RUN) -> str:
    """Write a run of so many llm stages, each with two attempts, and long prompts and responses; return its id."""
    needs = layered_needs(number)
    writer = RunWriter(logs=logs, run=run)
    limits = RunLimits(max_cost_usd="10.00")
    head = RunStarted(pipeline="pipeline.yaml", name="many", run_id=run, stages=number, jobs=4, limits=limits)
    writer.write(head)
    writer.write(Planned(stages=dict.fromkeys(needs, "llm"), needs={name: of for name, of in needs.items() if of}))
    text = TEXT * (characters // len(TEXT))
    for name in needs:
        for role, data in _stage(name):
            writer.write(data, "", role, 0.01)
        for attempt in (1, 2):
            writer.keep(name, attempt, "prompt.txt", text)
            writer.keep(name, attempt, "response.txt", f"{name} {attempt}\n{text}")
    stages = {"built": number}
    writer.write(RunFinished(status="ok", stages=stages, calls=2 * number, tokens=400 * number, cost="0.02"))
    return writer.close()


def _stage(name: str) -> Iterator[tuple[str, EventData]]:
    key = f"{int(name[5:]):064x}"
    path = f"out/{name}.py"
    yield name, StageDecided(decision="run", key=key, reasons=(EventReason("input_changed", "spec.md"),))
    yield name, StageStarted(key=key)
    for attempt in (1, 2):
        mark = f"{name}-{attempt}".encode().hex()
        sent = SentFile(path="spec.md", slice="", sha256="0" * 64, bytes=20)
        yield name, AttemptStarted(attempt=attempt, max_attempts=2, key=key)
        yield name, LlmRequest(fingerprint=mark, model="m", provider="p", attempt=attempt, files=(sent,), bytes=20)
        yield name, LlmResponse(fingerprint=mark, attempt=attempt, input_tokens=150, output_tokens=50, cost="0.0001")
        yield name, CheckResult(step="pytest", passed=attempt > 1, exit_code=int(attempt == 1), attempt=attempt)
        if attempt == 1:
            failing = ("test_a.py::test_it",)
            kind: FailureName = "verify_failed"
            yield name, AttemptFinished(failing=failing, excerpt="assert 1 == 2", failure_kind=kind, exit_code=1)
        else:
            yield name, AttemptFinished(attempt=attempt, passed=True, exit_code=0)
    yield name, FilesPromoted(files=(path,))
    yield (
        name,
        StageFinished(
            status=StageStatus.BUILT,
            key=key,
            duration_s=0.1,
            attempts=2,
            calls=2,
            input_tokens=300,
            output_tokens=100,
            cost="0.0002",
            outputs=(path,),
        ),
    )
