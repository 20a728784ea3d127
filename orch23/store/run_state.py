"""Compute the state of a run from its events, and write it to `state.json`."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.event import (
    AttemptFinished,
    AttemptStarted,
    CheckResult,
    Event,
    FilesProposed,
    Planned,
    RunFinished,
    RunStarted,
    StageDecided,
    StageFinished,
    StageStarted,
    StageWithheld,
)
from orch23.model.event_data import StageStatus
from orch23.model.parsing import from_struct, refuse
from orch23.model.text import escape_hidden
from orch23.store.json_text import indented_json, with_sum
from orch23.store.run_logs import INTERRUPTED, JournalLine, format_timestamp
from orch23.store.safe_files import PRIVATE_FILE_MODE, write_atomic

SeedState: TypeAlias = Literal["INIT", "GENERATING", "TESTING", "PATCHING", "SUCCESS", "FAILED"]
SeedPhase: TypeAlias = Literal["init", "generated", "tested", "complete", "failed"]

# The table of seed 001, with the transitions that orch23 adds:
# - INIT to SUCCESS: the stage is fresh or restored.
# - INIT to TESTING, and then to GENERATING: only the verification runs, and it fails.
# - INIT to PATCHING: the stage continues where an interrupted run stopped.
# - GENERATING or PATCHING to PATCHING: a response that cannot be used is requested again without a test.
# - any state but the last two to INIT: inputs were edited while the stage was prepared, so it is decided again; or a
#   request of it was in a batch, and it starts again with the response.
LEGAL_TRANSITIONS: Mapping[SeedState, frozenset[SeedState]] = {
    "INIT": frozenset({"INIT", "GENERATING", "TESTING", "PATCHING", "SUCCESS", "FAILED"}),
    "GENERATING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED"}),
    "TESTING": frozenset({"INIT", "TESTING", "PATCHING", "GENERATING", "SUCCESS", "FAILED"}),
    "PATCHING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED"}),
    "SUCCESS": frozenset(),
    "FAILED": frozenset(),
}
_RESUMABLE = frozenset({INTERRUPTED, "cancelled", "limit", "edited", "decision", "waiting", "awaiting", "approval"})
# All other failures can come before there is anything to test.
_TESTED = frozenset({"verify_failed", "acceptance_failed"})
_TRANSITIONS = (StageStarted, AttemptStarted, FilesProposed, CheckResult, AttemptFinished, StageWithheld, StageFinished)
_AT_LEAST_EVERY = timedelta(seconds=1)
_SHARE = 200
# Up to this number of stages the file is written after each transition. With 10,000 stages it has megabytes, and 40,000
# writes of it would take hours.
_ALWAYS_WRITTEN = 64


_NAMES = {"attempt": "attempts", "exit_code": "last_test_exit_code", "error": "last_error", "files": "attempt_files"}


class StageState(Struct, frozen=True, kw_only=True, rename=_NAMES):
    """The state of one stage. `state` is as in seed 001, `phase` as in seed 000; the first `attempt` is 1."""

    status: str = "waiting"
    state: SeedState = "INIT"
    phase: SeedPhase = "init"
    attempt: int = 0
    max_attempts: int = 1
    key: str = ""
    test_passed: bool | None = None
    exit_code: int | None = None
    output: str = ""
    error: str | None = None
    files: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the entry of a stage in `state.json`."""
        facts = from_struct(self)
        del facts["output"]
        return {**facts, "attempt_files": list(self.files)}


class RunState(Struct, frozen=True, kw_only=True):
    """The state of a run: its stages, and the fields of seeds 000 and 001, which describe `focus`: its loop."""

    began: RunStarted = RunStarted()
    created_at: str = ""
    updated_at: str = ""
    focus: StageState = field(default_factory=StageState)
    finished: str | None = None
    error: str | None = None
    stages: Mapping[str, StageState] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return the content of `state.json`. As in the seeds, `attempt` counts from 0.

        Until a stage with a model has begun, `max_retries` comes from the last one of the pipeline.
        """
        retries = max(0, self.focus.attempt - 1)
        state, phase = _overall(self)
        failed = (stage.error for stage in self.stages.values() if stage.state == "FAILED" and stage.error)
        return {
            "run_id": self.began.run_id,
            "spec_file": self.began.spec_file or self.began.pipeline,
            "phase": phase,
            "state": state,
            "attempt": retries,
            "retry_count": retries,
            "max_retries": self.focus.max_attempts - 1 if self.focus.attempt else self.began.max_retries,
            "test_passed": self.focus.test_passed,
            "last_test_exit_code": self.focus.exit_code,
            "last_test_output": self.focus.output,
            "last_test_stderr": self.focus.output,
            "last_error": self.focus.error or next(failed, None) or self.error,
            "attempt_files": list(self.focus.files),
            "spec_hash": self.began.spec_hash,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "stages": {name: stage.to_json() for name, stage in self.stages.items()},
        }


def fold_events(lines: Sequence[JournalLine]) -> RunState:
    """Return the state of a run after these lines of its journal."""
    folding = RunStateFold()
    for line in lines:
        folding.add(line.event)
    state = folding.state()
    return replace(state, created_at=lines[0].ts, updated_at=lines[-1].ts) if lines else state


def with_state(stage: StageState, move: SeedState, name: str, **changes: Any) -> StageState:
    """Return the stage in its next state, with further changes. Every transition is checked here."""
    if move not in LEGAL_TRANSITIONS[stage.state]:
        refuse(f"BUG: stage {name} cannot go from {stage.state} to {move}")
    return replace(stage, state=move, **changes)


class RunStateFold:
    """Computes the state of a run, event by event."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self._run = RunState()
        self._focus = self._run.focus
        self._loops: set[str] | None = None
        self._stages: dict[str, StageState] = {}

    def add(self, event: Event) -> None:
        """Add one event."""
        if isinstance(began := event.data, RunStarted):
            self._loops = set() if began.model else None
            self._run = replace(self._run, began=began)
        elif isinstance(event.data, RunFinished):
            # An error that stops a run ends it, though the next one continues it.
            status = "failed" if event.level == "error" else event.data.status
            wrong = status != "ok" and status not in _RESUMABLE
            if status == "ok" and not self._focus.attempt:
                # There was no attempt in this run: the verdict is the recorded one.
                known = (one for name, one in self._stages.items() if one.test_passed and self._is_loop(name))
                self._focus = next(reversed([self._focus, *known]))
            self._run = replace(self._run, finished=status, error=event.message if wrong else None)
        elif isinstance(event.data, Planned) and self._loops is not None:
            self._loops = {name for name, kind in event.data.stages.items() if kind == "llm"}
        elif event.role in self._stages or isinstance(event.data, (StageDecided, *_TRANSITIONS)):
            before = self._stages.get(event.role, StageState())
            after = _next(before, event)
            self._stages[event.role] = after
            if after.status == StageStatus.FAILED:
                # Other stages still run. Until the run ends, the seeds show the last state before the failure.
                self._focus = replace(after, state=before.state, phase=before.phase)
            elif after.state not in ("INIT", "SUCCESS") and after.status != StageStatus.WITHHELD:
                self._focus = after if self._is_loop(event.role) else self._focus

    def _is_loop(self, name: str) -> bool:
        # Without models, any stage is.
        return self._loops is None or name.partition("@")[0] in self._loops

    def state(self) -> RunState:
        """Return the state as it is now, without times."""
        return replace(self._run, focus=self._focus, stages=dict(self._stages))

    def stage_count(self) -> int:
        """Return the number of stages, as far as it is known."""
        return max(len(self._stages), self._run.began.stages)


class StateFile:
    """An observer that writes `state.json` during a run.

    The file only shows the journal, so it is not made durable. A run writes it at its start and its end. A run of up to
    64 stages also writes it after every transition. A larger run writes it at the first transition after one second, or
    after 200 times the duration of a write if that is longer, or after two events for each stage above 64.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        """Write nothing before the first event. The clock should be the same as for the journal."""
        self._path = path
        self._clock = clock
        self._folding = RunStateFold()
        self._lock = threading.Lock()
        self._created = ""
        self._unwritten = 0
        self._due_again: datetime | None = None

    def notice(self, event: Event) -> None:
        """Add one event; may be called from any thread."""
        with self._lock:
            now = self._clock()
            self._folding.add(event)
            self._created = self._created or format_timestamp(now)
            self._unwritten += 1
            if self._is_due(event, now):
                self._write(now)
                after = self._clock()
                self._due_again = after + max(_AT_LEAST_EVERY, _SHARE * (after - now))

    def _is_due(self, event: Event, now: datetime) -> bool:
        if not isinstance(event.data, _TRANSITIONS):
            return isinstance(event.data, RunStarted | RunFinished)
        late = self._due_again is not None and now >= self._due_again
        return late or self._unwritten > 2 * (self._folding.stage_count() - _ALWAYS_WRITTEN)

    def _write(self, now: datetime) -> None:
        state = replace(self._folding.state(), created_at=self._created, updated_at=format_timestamp(now))
        data = escape_hidden(indented_json(with_sum(state.to_json()))).encode()
        # The temporary file is created in logs/, where the next build deletes it if this process is killed.
        scratch = self._path.parent.parent
        write_atomic(self._path, data + b"\n", mode=PRIVATE_FILE_MODE, scratch=scratch, durable=False)
        self._unwritten = 0


def _overall(run: RunState) -> tuple[SeedState, SeedPhase]:
    """Return state and phase of the whole run: those of the stage last worked on, until the run has come to its end."""
    if run.finished == "ok":
        return "SUCCESS", "complete"
    if run.finished is not None and run.finished not in _RESUMABLE:
        return "FAILED", "failed"
    return run.focus.state, run.focus.phase


def _next(stage: StageState, event: Event) -> StageState:  # noqa: PLR0911 - one a type of event
    name = event.role
    match event.data:
        case StageDecided(decision=decision):
            return with_state(stage, "INIT", name, status=decision)
        case StageStarted(key=key):
            return with_state(stage, "INIT", name, status="running", key=key)
        case AttemptStarted():
            return _attempt(stage, event.data, name)
        case FilesProposed(files=files):
            return with_state(stage, "TESTING", name, phase="generated", files=files)
        case CheckResult():
            return _checked(with_state(stage, "TESTING", name), event.data, event.message)
        case AttemptFinished():
            return _tested(stage, event.data, event.message, name)
        case StageWithheld(key=key):
            return replace(stage, status=StageStatus.WITHHELD.value, key=key or stage.key, error=None)
        case StageFinished():
            return _finish(stage, event.data, event.message, name)
        case _:
            return stage


def _attempt(stage: StageState, began: AttemptStarted, name: str) -> StageState:
    again = began.attempt > 1 or stage.state == "GENERATING"
    changes = {"attempt": began.attempt, "max_attempts": max(1, began.max_attempts), "key": began.key or stage.key}
    return with_state(stage, "PATCHING" if again else "GENERATING", name, status="running", **changes)


def _checked(stage: StageState, result: CheckResult, message: str) -> StageState:
    # A passed check changes nothing: only the end of the attempt shows that all checks have passed.
    if result.passed:
        return stage
    error, output = f"{result.step}: {message}", result.excerpt or message
    return replace(stage, test_passed=False, exit_code=result.exit_code, output=output, error=error)


def _tested(stage: StageState, ended: AttemptFinished, message: str, name: str) -> StageState:
    output = ended.excerpt or message
    if not ended.passed and stage.state != "TESTING" and ended.failure_kind not in _TESTED:
        return replace(stage, error=output)
    known = stage if stage.state == "TESTING" else with_state(stage, "TESTING", name)
    if ended.passed:
        return replace(known, phase="tested", test_passed=True, exit_code=0, output="", error=None)
    return replace(known, phase="tested", test_passed=False, exit_code=ended.exit_code, output=output, error=output)


def _finish(stage: StageState, ended: StageFinished, message: str, name: str) -> StageState:
    known = replace(stage, status=ended.status.value, key=ended.key or stage.key)
    if ended.status.has_result:
        return with_state(known, "SUCCESS", name, phase="complete", error=None, test_passed=True, exit_code=0)
    if ended.status is StageStatus.FAILED:
        return with_state(known, "FAILED", name, phase="failed", error=known.error or message)
    # Blocked, edited, cancelled or withheld: its state does not change.
    return known
