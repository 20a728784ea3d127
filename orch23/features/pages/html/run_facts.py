"""What a run did, from the events of its journal: its stages, their attempts, and when each of them ran."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import ClassVar

from msgspec import Struct, field

from orch23.model.event import (
    ORCH23_ROLE,
    AttemptFinished,
    AttemptStarted,
    CheckResult,
    Event,
    FilesPromoted,
    HttpRetry,
    LlmRequest,
    LlmResponse,
    Notice,
    Planned,
    RunFinished,
    RunStarted,
    SharedCacheUsed,
    StageAwaiting,
    StageDecided,
    StageFinished,
    StageRestored,
    StagesAdded,
    StageStarted,
    StageWithheld,
)
from orch23.model.pipeline import family_of
from orch23.report.runs import RunCost
from orch23.store.run_logs import JournalLine

_MAX_NOTES = 200


class Span(Struct, kw_only=True):
    """A time within a run, in seconds from its first event. `end_s` is None while it lasts."""

    start_s: float
    end_s: float | None = None


class CallFacts(Struct, kw_only=True):
    """One request of an attempt and its response, as far as there is one."""

    request: LlmRequest
    span: Span
    response: LlmResponse | None = None


class AttemptFacts(Struct, kw_only=True):
    """One attempt of a stage. `ended` is None if it did not come to its end."""

    number: int
    span: Span
    calls: list[CallFacts] = field(default_factory=list)
    checks: list[CheckResult] = field(default_factory=list)
    ended: AttemptFinished | None = None
    message: str = ""


class StageFacts(Struct, kw_only=True):
    """One stage of a run. `spans` are the times when it ran: more than one if it had to wait for a batch.

    With `is_over` nothing more will be read about it.
    """

    name: str
    kind: str = ""
    needs: tuple[str, ...] = ()
    decided: StageDecided | None = None
    ended: StageFinished | None = None
    message: str = ""
    key: str = ""
    spans: list[Span] = field(default_factory=list)
    attempts: dict[int, AttemptFacts] = field(default_factory=dict)
    cost: RunCost = field(default_factory=lambda: RunCost(run=""))
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    retries: list[str] = field(default_factory=list)
    withheld_for: tuple[str, ...] = ()
    is_awaiting: bool = False
    is_over: bool = False

    @property
    def status(self) -> str:
        """Return how it ended; `running` or `waiting` if it has not, `unfinished` if its end is not known."""
        if self.ended is not None:
            return self.ended.status.value
        if self.withheld_for:
            return "held"
        if self.is_awaiting:
            return "awaiting"
        if not self.spans:
            return "waiting"
        return "unfinished" if self.is_over else "running"

    @property
    def family(self) -> str:
        """Return the foreach that it is an item of, else its own name."""
        return family_of(self.name)

    @property
    def has_run(self) -> bool:
        """Return whether its step or its verification ran."""
        return bool(self.attempts or self.spans)

    @property
    def duration_s(self) -> float | None:
        """Return how long it took; None if it did not run, or if the journal does not say."""
        if self.ended is not None:
            return self.ended.duration_s if self.has_run else None
        ends = [one.end_s - one.start_s for one in self.spans if one.end_s is not None]
        return sum(ends) if ends else None


class RunFacts(Struct, kw_only=True):
    """What a run did, up to the last event. `last_s` is the time of that event, in seconds from the first.

    With `is_over` nothing more will be read about it: a build that still runs, and one that was killed, look the same.
    """

    run_id: str
    began: RunStarted = field(default_factory=RunStarted)
    ended: RunFinished | None = None
    started_at: str = ""
    last_s: float = 0.0
    stages: dict[str, StageFacts] = field(default_factory=dict)
    cost: RunCost = field(default_factory=lambda: RunCost(run=""))
    added_at_rest: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    shared_cache: SharedCacheUsed | None = None
    is_over: bool = False

    @property
    def status(self) -> str:
        """Return the status of the run; without its last event `running` or, if it is over, `unfinished`."""
        if self.ended is not None:
            return self.ended.status
        return "unfinished" if self.is_over else "running"

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of stages by status, including those that no edit affects."""
        if not self.stages and self.ended is not None:
            return dict(self.ended.stages)  # nothing changed: only the last event has them
        counts = Counter(stage.status for stage in self.stages.values())
        counts.update(self.began.at_rest or {})
        counts.update(self.added_at_rest)
        return dict(counts)


class RunFactsFold:
    """Computes the facts of a run, event by event."""

    leaves_out: ClassVar[str] = (
        "released files_proposed command_ran step_output call_reserved call_settled call_submitted batch_submitted "
        "batch_waiting rate_limit_wait llm_text"
    )

    def __init__(self, run_id: str, redact: Callable[[Event], Event]) -> None:
        """Begin before the first event. `redact` removes secrets from an event."""
        self._redact = redact
        self.facts = RunFacts(run_id=run_id)
        self._needs: dict[str, tuple[str, ...]] = {}
        self._began: datetime | None = None

    def add(self, line: JournalLine) -> None:
        """Add the next line of the journal."""
        facts, event = self.facts, self._redact(line.event)
        now = self._seconds(line.ts)
        facts.started_at = facts.started_at or line.ts
        facts.last_s = max(facts.last_s, now)
        facts.cost.add(event)
        match event.data:
            case RunStarted() as began:
                facts.began = began
            case RunFinished() as ended:
                facts.ended = ended
                for stage in facts.stages.values():
                    _end_spans(stage, now)
            case Planned(stages=stages, needs=needs):
                self._needs.update(needs)
                for name, kind in stages.items():
                    self._stage(name).kind = kind
            case StagesAdded() as added:
                self._expand(event.role, added)
            case SharedCacheUsed() as used:
                facts.shared_cache = used
            case _ if event.role != ORCH23_ROLE:
                _add_to_stage(self._stage(event.role), event, now)
        if isinstance(event.data, Notice) and len(facts.notes) < _MAX_NOTES:
            role = "" if event.role == ORCH23_ROLE else f"{event.role}: "
            facts.notes.append(f"{role}{event.message}")

    def _seconds(self, timestamp: str) -> float:
        try:
            moment = datetime.fromisoformat(timestamp)
            self._began = self._began or moment
            return max(0.0, (moment - self._began).total_seconds())
        except (ValueError, TypeError):  # a forged time, or one without a zone beside one with a zone
            return self.facts.last_s

    def _stage(self, name: str) -> StageFacts:
        stage = self.facts.stages.get(name)
        if stage is None:
            needs = self._needs.get(name) or self._needs.get(family_of(name)) or ()
            stage = self.facts.stages[name] = StageFacts(name=name, needs=needs)
        return stage

    def _expand(self, foreach: str, added: StagesAdded) -> None:
        before = self.facts.stages.pop(foreach, None)
        kind = before.kind if before is not None else ""
        for name in added.items:
            stage = self._stage(name)
            stage.kind = stage.kind or kind
        self.facts.added_at_rest.update(added.at_rest or {})


def read_run(run_id: str, lines: Iterable[JournalLine], redact: Callable[[Event], Event]) -> RunFacts:
    """Return what the journal of a run says, without secrets. A run that was killed has no `ended`."""
    fold = RunFactsFold(run_id, redact)
    for line in lines:
        fold.add(line)
    facts = fold.facts
    facts.is_over = True
    for stage in facts.stages.values():
        stage.is_over = True
    return facts


def _add_to_stage(stage: StageFacts, event: Event, now: float) -> None:
    stage.cost.add(event)
    match event.data:
        case StageDecided() as decided:
            stage.decided, stage.key = decided, decided.key or stage.key
        case StageStarted(key=key):
            stage.key, stage.is_awaiting = key or stage.key, False
            stage.spans.append(Span(start_s=now))
        case StageWithheld(missing=missing):
            stage.withheld_for = missing
            _end_spans(stage, now)
        case StageAwaiting():
            stage.is_awaiting = True
            _end_spans(stage, now)
        case FilesPromoted(files=files, removed=removed) | StageRestored(files=files, removed=removed):
            stage.written, stage.removed = files, removed
        case StageFinished() as ended:
            stage.ended, stage.message, stage.key = ended, event.message, ended.key or stage.key
            _end_spans(stage, now)
        case _:
            _add_to_attempt(stage, event, now)


def _add_to_attempt(stage: StageFacts, event: Event, now: float) -> None:
    match event.data:
        case AttemptStarted(attempt=number):
            stage.attempts[number] = AttemptFacts(number=number, span=Span(start_s=now))
        case AttemptFinished() as ended:
            attempt = _attempt(stage, ended.attempt, now)
            attempt.ended, attempt.message, attempt.span.end_s = ended, event.message, now
        case CheckResult() as check:
            _attempt(stage, check.attempt or max(stage.attempts, default=1), now).checks.append(check)
        case LlmRequest() as request:
            _attempt(stage, request.attempt, now).calls.append(CallFacts(request=request, span=Span(start_s=now)))
        case LlmResponse() as response:
            _respond(_attempt(stage, response.attempt, now), response, now)
        case HttpRetry(status=status, code=code):
            stage.retries.append(str(status or code or "no response"))


def _attempt(stage: StageFacts, number: int, now: float) -> AttemptFacts:
    return stage.attempts.setdefault(number, AttemptFacts(number=number, span=Span(start_s=now)))


def _respond(attempt: AttemptFacts, response: LlmResponse, now: float) -> None:
    for call in reversed(attempt.calls):
        if call.response is None and call.request.fingerprint == response.fingerprint:
            call.response, call.span.end_s = response, now
            return


def _end_spans(stage: StageFacts, now: float) -> None:
    for span in stage.spans:
        span.end_s = now if span.end_s is None else span.end_s
