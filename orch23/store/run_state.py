"""Compute the state of a run from its events, and write it to `state.json`."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.digest import Json, canonical_json, digest_json
from orch23.model.event import (
    ORCH23_ROLE,
    AttemptFinished,
    AttemptStarted,
    CheckResult,
    Event,
    FilesProposed,
    RunFinished,
    RunStarted,
    StageDecided,
    StageFinished,
    StageStarted,
    StageWithheld,
)
from orch23.model.parsing import JsonObject, parse_stored, to_struct
from orch23.model.stage_status import StageStatus
from orch23.model.text import escape_hidden
from orch23.store.json_text import indented_json
from orch23.store.run_logs import INTERRUPTED, JournalLine, format_timestamp, read_journal
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, write_atomic

_NO_STAGES = '"stages": {}'


class WritesJson(Protocol):
    """A value that says of itself what is to be written."""

    def to_json(self) -> dict[str, Json]:
        """Return it."""


class _Block(Struct, frozen=True):
    """What is written of one stage: for people, and for the checksum."""

    stage: WritesJson
    shown: str
    canonical: bytes


class StateEncoder(Struct):
    """The texts of the states of one run, one after the other."""

    _blocks: dict[str, _Block] = field(default_factory=dict)

    def encode(self, head: Mapping[str, Json], stages: Mapping[str, WritesJson]) -> str:
        """Return the JSON of `head` and `stages`, in this order, with the checksum of its canonical form."""
        blocks = {name: self._block(name, stage) for name, stage in stages.items()}
        told = {name: b"%s:%s" % (canonical_json(name), canonical_json(value)) for name, value in head.items()}
        inner = b",".join(b"%s:%s" % (canonical_json(name), blocks[name].canonical) for name in sorted(blocks))
        told["stages"] = b'"stages":{%s}' % inner
        digest = hashlib.sha256(b"{%s}" % b",".join(told[name] for name in sorted(told))).hexdigest()
        whole = indented_json({**head, "stages": {}, "sum": digest})
        if not blocks:
            return whole
        shown = ",\n  ".join(f"{indented_json(name)}: {block.shown}" for name, block in blocks.items())
        before, _, after = whole.rpartition(_NO_STAGES)
        return f'{before}"stages": {{\n  {shown}\n }}{after}'

    def _block(self, name: str, stage: WritesJson) -> _Block:
        known = self._blocks.get(name)
        if known is None or known.stage is not stage:
            body = stage.to_json()
            known = _Block(stage, indented_json(body).replace("\n", "\n  "), canonical_json(body))
            self._blocks[name] = known
        return known


SeedState: TypeAlias = Literal["INIT", "GENERATING", "TESTING", "PATCHING", "SUCCESS", "FAILED"]
SeedPhase: TypeAlias = Literal["init", "generated", "tested", "complete", "failed"]

# Seed 001's table, and what orch23 has beyond it: a stage may be fresh or restored (INIT to SUCCESS), may only be
# verified (INIT to TESTING, and to GENERATING if that was red), may go on where an interrupted run stopped (INIT to
# PATCHING), an answer that cannot be used is asked for again untested (GENERATING or PATCHING to PATCHING), and a
# stage whose inputs somebody edited while it was prepared is decided anew (any but the last two to INIT).
LEGAL_TRANSITIONS: Mapping[SeedState, frozenset[SeedState]] = {
    "INIT": frozenset({"INIT", "GENERATING", "TESTING", "PATCHING", "SUCCESS", "FAILED"}),
    "GENERATING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED"}),
    "TESTING": frozenset({"INIT", "TESTING", "PATCHING", "GENERATING", "SUCCESS", "FAILED"}),
    "PATCHING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED"}),
    "SUCCESS": frozenset(),
    "FAILED": frozenset(),
}
_RESUMABLE = frozenset({INTERRUPTED, "cancelled", "limit", "edited", "decision"})
_TESTED = frozenset(
    {"verify_failed", "acceptance_failed"}
)  # all other failures may come before there is anything to test
_TRANSITIONS = (StageStarted, AttemptStarted, FilesProposed, CheckResult, AttemptFinished, StageWithheld, StageFinished)
_AT_LEAST_EVERY = timedelta(seconds=1)
_SHARE = 20
_ALWAYS_WRITTEN = 64  # so many stages: at 10,000 the file is megabytes, and 40,000 writes of it would take hours


class StageState(Struct, frozen=True, kw_only=True):
    """Where one stage stands. `state` is seed 001's, `phase` seed 000's; `attempt` counts from 1, 0 is none yet."""

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
        """Return what `state.json` says of a stage."""
        return {
            "status": self.status,
            "state": self.state,
            "phase": self.phase,
            "attempts": self.attempt,
            "max_attempts": self.max_attempts,
            "key": self.key,
            "test_passed": self.test_passed,
            "last_test_exit_code": self.exit_code,
            "last_error": self.error,
            "attempt_files": list(self.files),
        }


class RunState(Struct, frozen=True, kw_only=True):
    """Where a run stands: its stages, and the fields of seeds 000 and 001, told of the stage last worked on."""

    run_id: str = ""
    spec_file: str = ""
    spec_hash: str = ""
    created_at: str = ""
    updated_at: str = ""
    max_retries: int = 0
    focus: StageState = field(default_factory=StageState)
    finished: str | None = None
    error: str | None = None
    stages: Mapping[str, StageState] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return what `state.json` says."""
        return {**self.head(), "stages": {name: stage.to_json() for name, stage in self.stages.items()}}

    def head(self) -> dict[str, Json]:
        """Return the fields of `state.json` but `stages`, the last. As in the seeds, `attempt` counts from 0.

        `max_retries` is the most of any stage until one has begun.
        """
        retries = max(0, self.focus.attempt - 1)
        state, phase = _overall(self)
        return {
            "run_id": self.run_id,
            "spec_file": self.spec_file,
            "phase": phase,
            "state": state,
            "attempt": retries,
            "retry_count": retries,
            "max_retries": self.focus.max_attempts - 1 if self.focus.attempt else self.max_retries,
            "test_passed": self.focus.test_passed,
            "last_test_exit_code": self.focus.exit_code,
            "last_test_output": self.focus.output,
            "last_test_stderr": self.focus.output,
            "last_error": _last_error(self),
            "attempt_files": list(self.focus.files),
            "spec_hash": self.spec_hash,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        }


def fold_events(history: Iterable[JournalLine | Event]) -> RunState:
    """Return the state that a run's events add up to."""
    folding = RunStateFold()
    for one in history:
        if isinstance(one, Event):
            folding.add(one, "")
        else:
            folding.add(one.event, one.ts)
    return folding.state()


def with_state(stage: StageState, move: SeedState, name: str) -> StageState:
    """Return the stage in its next state; the one gate that every transition passes."""
    if move not in LEGAL_TRANSITIONS[stage.state]:
        message = f"BUG: stage {name} cannot go from {stage.state} to {move}"
        raise ValueError(message)
    return replace(stage, state=move)


class RunStateFold:
    """A fold that goes on: events in, state out at any time."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self._run = RunState()
        self._created = self._updated = ""
        self._focus = self._run.focus
        self._announced = 0
        self._stages: dict[str, StageState] = {}

    def add(self, event: Event, moment: str) -> None:
        """Add one event, which happened at `moment`."""
        self._created = self._created or moment
        self._updated = moment or self._updated
        if isinstance(event.data, RunStarted):
            self._start(event.data)
        elif isinstance(event.data, RunFinished):
            status = event.data.status
            wrong = status != "ok" and status not in _RESUMABLE
            self._run = replace(self._run, finished=status, error=event.message if wrong else None)
        elif event.role != ORCH23_ROLE:
            before = self._stages.get(event.role, StageState())
            after = _next(before, event)
            self._stages[event.role] = after
            if after.status == StageStatus.FAILED:  # the others still run: until the end it is told where it stood
                self._focus = replace(after, state=before.state, phase=before.phase)
            elif after.state not in ("INIT", "SUCCESS") and after.status != StageStatus.WITHHELD:  # nobody works on it
                self._focus = after

    def state(self) -> RunState:
        """Return the state as it is now."""
        return replace(
            self._run,
            created_at=self._created,
            updated_at=self._updated,
            focus=self._focus,
            stages=dict(self._stages),
        )

    def stage_count(self) -> int:
        """Return how many stages there are, as far as has been heard."""
        return max(len(self._stages), self._announced)

    def _start(self, began: RunStarted) -> None:
        self._announced = began.stages
        self._run = replace(
            self._run,
            run_id=began.run_id,
            spec_file=began.spec_file or began.pipeline,
            spec_hash=began.spec_hash,
            max_retries=began.max_retries,
        )


class StateFile:
    """An observer that keeps `state.json` in step with a run.

    It is a view: written without waiting for the disk. A run of up to 64 stages writes it after every transition, a
    bigger one so often that each stage is written out a few times in all, and at the first transition after a second
    (where writing it takes long, after twenty times that). What a crash leaves unwritten `rebuild` takes from the
    journal.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] | None = None) -> None:
        """Take the file, made with the first event, and the clock that the journal has too."""
        self._path = path
        self._clock = clock or (lambda: datetime.now(UTC))
        self._folding = RunStateFold()
        self._lock = threading.Lock()
        self._unwritten = 0
        self._due_again: datetime | None = None
        self._text = StateEncoder()

    def notice(self, event: Event) -> None:
        """Take one event, from any thread."""
        with self._lock:
            now = self._clock()
            self._folding.add(event, format_timestamp(now))
            self._unwritten += 1
            if self._is_due(event, now):
                self._write()
                after = self._clock()
                self._due_again = after + max(_AT_LEAST_EVERY, _SHARE * (after - now))

    def rebuild(self, journal_path: Path) -> RunState:
        """Write the file anew from the journal; a corrupt one is set aside as `state.json.corrupt`."""
        with self._lock:
            if self._path.exists() and read_state(self._path) is None:
                self._path.replace(self._path.with_name(f"{self._path.name}.corrupt"))
            self._folding = RunStateFold()
            for line in read_journal(journal_path):
                self._folding.add(line.event, line.ts)
            self._write()
            return self._folding.state()

    def _is_due(self, event: Event, now: datetime) -> bool:
        if isinstance(event.data, RunStarted | RunFinished):
            return True
        if not isinstance(event.data, _TRANSITIONS):
            return False
        late = self._due_again is not None and now >= self._due_again
        return late or self._unwritten > 2 * (self._folding.stage_count() - _ALWAYS_WRITTEN)

    def _write(self) -> None:
        state = self._folding.state()
        data = escape_hidden(self._text.encode(state.head(), state.stages)).encode()
        # The temporary file is created in logs/, where the next build deletes it if this process is killed.
        scratch = self._path.parent.parent
        write_atomic(self._path, data + b"\n", mode=PRIVATE_FILE_MODE, scratch=scratch, durable=False)
        self._unwritten = 0


def read_state(path: Path) -> Mapping[str, Json] | None:
    """Return what a `state.json` says, or None if it is missing or not as it was written."""
    try:
        body = to_struct(parse_stored(read_regular(path) or b""), JsonObject)
    except (OSError, ValueError):
        return None
    return body if body.pop("sum", None) == digest_json(body) else None


def _overall(run: RunState) -> tuple[SeedState, SeedPhase]:
    """Return state and phase of the whole run: those of the stage last worked on, until the run has come to its end."""
    if run.finished == "ok":
        return "SUCCESS", "complete"
    if run.finished is not None and run.finished not in _RESUMABLE:
        return "FAILED", "failed"
    return run.focus.state, run.focus.phase


def _last_error(run: RunState) -> str | None:
    """Return what went wrong last: of the stage last worked on, else of one that failed, else the end of the run."""
    failed = (stage.error for stage in run.stages.values() if stage.state == "FAILED" and stage.error)
    return run.focus.error or next(failed, None) or run.error


def _next(stage: StageState, event: Event) -> StageState:  # noqa: PLR0911 - one a type of event
    name = event.role
    match event.data:
        case StageDecided(decision=decision):
            return replace(with_state(stage, "INIT", name), status=decision)
        case StageStarted(key=key):
            return replace(stage, status="running", key=key)
        case AttemptStarted():
            return _attempt(stage, event.data, name)
        case FilesProposed(files=files):
            return replace(with_state(stage, "TESTING", name), phase="generated", files=files)
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
    after = with_state(stage, "PATCHING" if again else "GENERATING", name)
    key = began.key or stage.key
    return replace(after, status="running", attempt=began.attempt, max_attempts=max(1, began.max_attempts), key=key)


def _checked(stage: StageState, result: CheckResult, message: str) -> StageState:
    """Return the stage after one step of verification. Only the end of the attempt says that all have passed."""
    if result.passed:
        return stage
    error, told = f"{result.step}: {message}", result.excerpt or message
    return replace(stage, test_passed=False, exit_code=result.exit_code, output=told, error=error)


def _tested(stage: StageState, ended: AttemptFinished, message: str, name: str) -> StageState:
    told = ended.excerpt or message
    if not ended.passed and stage.state != "TESTING" and ended.failure_kind not in _TESTED:
        return replace(stage, error=told)
    known = stage if stage.state == "TESTING" else with_state(stage, "TESTING", name)
    if ended.passed:
        return replace(known, phase="tested", test_passed=True, exit_code=0, output="", error=None)
    return replace(known, phase="tested", test_passed=False, exit_code=ended.exit_code, output=told, error=told)


def _finish(stage: StageState, ended: StageFinished, message: str, name: str) -> StageState:
    known = replace(stage, status=ended.status.value, key=ended.key or stage.key)
    if ended.status.has_result:
        return replace(with_state(known, "SUCCESS", name), phase="complete", error=None)
    if ended.status is StageStatus.FAILED:
        return replace(with_state(known, "FAILED", name), phase="failed", error=known.error or message)
    return known  # blocked, edited, cancelled, held: it stands where it stood
