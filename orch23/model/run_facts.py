"""What a run did, and when: one fold of its events, which the documents about a run are made of.

Times are in seconds from the start of the run.
"""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from heapq import heappop, heappush
from typing import ClassVar

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.event import (
    ORCH23_ROLE,
    AttemptFinished,
    AttemptStarted,
    CallReserved,
    CallSettled,
    CheckResult,
    Event,
    FilesPromoted,
    FinishedStage,
    HttpRetry,
    LlmRequest,
    LlmResponse,
    Notice,
    Planned,
    RateLimitWait,
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
    Warned,
)
from orch23.model.event_data import EventProblem
from orch23.model.pipeline import family_of
from orch23.model.text import parse_amount

_MAX_NOTES = 200


class RunCost(Struct, kw_only=True):
    """The model calls of a stage in one run. An amount is None as soon as the price of one of its calls is unknown.

    `cache_saved` is what the calls had cost without the vendor's prompt cache, minus what was paid: less than 0 if more
    was written than read.
    """

    run: str = ""
    calls: int = 0
    unanswered: int = 0
    unusable: int = 0
    recorded: int = field(default=0, name="recorded_answers")
    input_tokens: int = 0
    output_tokens: int = 0
    paid: Decimal | None = Decimal(0)
    possible: Decimal | None = Decimal(0)
    saved: Decimal | None = Decimal(0)
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_saved: Decimal = Decimal(0)
    prices: dict[str, None] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Count an event of the journal, if it is a response or a call without one."""
        match event.data:
            case LlmResponse() as response:
                if response.replayed:
                    self.recorded += 1
                    self.saved = _plus(self.saved, response.cost)
                else:
                    self.calls += 1
                    self.paid = _plus(self.paid, response.cost)
                    self.cache_read_tokens += response.cache_read_tokens
                    self.cache_write_tokens += response.cache_write_tokens
                    uncached, cost = parse_amount(response.uncached_cost), parse_amount(response.cost)
                    if uncached is not None and cost is not None:  # journals of earlier versions do not have it
                        self.cache_saved += uncached - cost
                self.input_tokens += response.input_tokens
                self.output_tokens += response.output_tokens
                self.prices |= {response.prices: None} if response.prices else {}
            # Calls with a response are counted above. One of unknown usage may have been charged (ADR 8).
            case CallSettled(uncounted=True, cost=cost):
                self.possible = _plus(self.possible, cost)
            case CallSettled(forfeited=True, cost=cost):
                self.calls += 1
                self.unanswered += 1
                self.possible = _plus(self.possible, cost)
            case CallSettled(unusable=True, cost=cost):
                self.calls += 1
                self.unusable += 1
                self.paid = _plus(self.paid, cost)

    def facts(self) -> dict[str, Json]:
        """Return the sums as plain values: amounts as decimal strings, null if a price is unknown."""
        return {**to_builtins(self), "prices": list(self.prices)}


def _plus(amount: Decimal | None, cost: str | None) -> Decimal | None:
    more = parse_amount(cost)
    return None if amount is None or more is None else amount + more


class Span(Struct, kw_only=True):
    """A time within a run. `end_s` is None while it lasts, and if no event ends it."""

    start_s: float
    end_s: float | None = None


class CallFacts(Span, kw_only=True):
    """One request of an attempt and its response, as far as there is one. `limit` is the rate limit it waited for.

    `receivers` are the providers that it was sent to, or was about to be sent to; with fallbacks, several.
    """

    request: LlmRequest
    response: LlmResponse | None = None
    limit: str = ""
    receivers: list[str] = field(default_factory=list)


class AttemptFacts(Span, kw_only=True):
    """One attempt of a stage. `ended` is None if it did not come to its end."""

    number: int
    calls: list[CallFacts] = field(default_factory=list)
    checks: list[CheckResult] = field(default_factory=list)
    ended: AttemptFinished | None = None
    message: str = ""


class StageSpan(Span, kw_only=True):
    """A time when a stage ran, with the attempts that started in it. `waits` says what it waited for afterwards."""

    attempts: list[AttemptFacts] = field(default_factory=list)
    waits: str = ""
    ended: StageFinished | None = None


class StageFacts(Struct, kw_only=True):
    """One stage of a run. It has several `spans` if it waited for a batch, or if its inputs changed meanwhile.

    `attempts` has the last one of each number. With `is_over` nothing more will be read about it. `flaky` are the tests
    that failed and passed in another run, by name.
    """

    name: str
    kind: str = ""
    needs: tuple[str, ...] = ()
    decided: StageDecided | None = None
    ended: StageFinished | None = None
    message: str = ""
    key: str = ""
    spans: list[StageSpan] = field(default_factory=list)
    attempts: dict[int, AttemptFacts] = field(default_factory=dict)
    cost: RunCost = field(default_factory=RunCost)
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    retries: list[str] = field(default_factory=list)
    withheld_for: tuple[str, ...] = ()
    is_awaiting: bool = False
    is_over: bool = False
    flaky: dict[str, EventProblem] = field(default_factory=dict)

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

    def end_spans(self, now_s: float, waits: str = "", ended: StageFinished | None = None) -> None:
        """End what lasts."""
        for span in self.spans:
            if span.end_s is None:
                span.end_s, span.waits, span.ended = now_s, waits, ended

    def attempt(self, number: int, now_s: float) -> AttemptFacts:
        """Return the attempt with a number. Attempt 0, a verification, has no event at its start."""
        return self.attempts.setdefault(number, AttemptFacts(number=number, start_s=now_s))


class RunFacts(Struct, kw_only=True):
    """What a run did, up to the last event. `last_s` is the time of that event.

    `stages` are in the order of the plan. `restores` and `payments` have the times of `stage_restored`, with the stage,
    and of `call_settled`, with the cost. With `is_over` nothing more will be read about it: a build that still runs,
    and one that was killed, look the same.
    """

    run_id: str = ""
    began: RunStarted = field(default_factory=RunStarted)
    ended: RunFinished | None = None
    started_at: str = ""
    last_s: float = 0.0
    stages: dict[str, StageFacts] = field(default_factory=dict)
    restores: list[tuple[float, str]] = field(default_factory=list)
    payments: list[tuple[float, str | None]] = field(default_factory=list)
    cost: RunCost = field(default_factory=RunCost)
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
    def ends(self) -> tuple[FinishedStage, ...]:
        """Return how each stage that has ended did so last."""
        return tuple(FinishedStage(s.name, s.message, s.ended) for s in self.stages.values() if s.ended is not None)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of stages by status, including those that no edit affects."""
        if not self.stages and self.ended is not None:
            return dict(self.ended.stages)  # nothing changed: only the last event has them
        counts = Counter(stage.status for stage in self.stages.values())
        counts.update(self.began.at_rest or {})
        counts.update(self.added_at_rest)
        return dict(counts)

    def lanes(self, slack_s: float = 0.0) -> list[tuple[int, StageSpan, StageFacts]]:
        """Return when stages ran, each time with the first lane that is free then: no event names the workers.

        A lane is free from `slack_s` before the end of its last span.
        """
        spans = [(span, stage) for stage in self.stages.values() for span in stage.spans]
        found: list[tuple[int, StageSpan, StageFacts]] = []
        # Lanes that are free by the time of the next stage, and the times when the others become free.
        free: list[int] = []
        busy: list[tuple[float, int]] = []
        for span, stage in sorted(spans, key=lambda one: one[0].start_s):
            while busy and busy[0][0] <= span.start_s + slack_s:
                heappush(free, heappop(busy)[1])
            lane = heappop(free) if free else len(busy)
            heappush(busy, (self.last_s if span.end_s is None else span.end_s, lane))
            found.append((lane, span, stage))
        return found


class RunFold:
    """Computes the facts of a run, event by event."""

    leaves_out: ClassVar[str] = (
        "released files_proposed command_ran step_output call_submitted batch_submitted batch_waiting llm_text"
    )

    def __init__(self, run_id: str = "") -> None:
        """Begin before the first event."""
        self.facts = RunFacts(run_id=run_id)
        self._needs: dict[str, tuple[str, ...]] = {}

    def add(self, event: Event, now_s: float) -> None:
        """Add the next event."""
        facts = self.facts
        facts.last_s = max(facts.last_s, now_s)
        facts.cost.add(event)
        match event.data:
            case RunStarted() as began:
                facts.began, facts.run_id = began, facts.run_id or began.run_id
            case RunFinished() as ended:
                facts.ended = ended
                for stage in facts.stages.values():
                    stage.end_spans(now_s)
            case Planned(stages=stages, needs=needs):
                self._needs.update(needs)
                for name, kind in stages.items():
                    self._stage(name).kind = kind
            case StagesAdded() as added:
                names = added.put_into(facts.stages, event.role)
                facts.stages = {name: self._stage(name) for name in names}
                facts.added_at_rest.update(added.at_rest or {})
            case SharedCacheUsed() as used:
                facts.shared_cache = used
            case _ if event.role != ORCH23_ROLE:
                self._add_to_stage(self._stage(event.role), event, now_s)
        if isinstance(event.data, Notice) and len(facts.notes) < _MAX_NOTES:
            role = "" if event.role == ORCH23_ROLE else f"{event.role}: "
            facts.notes.append(f"{role}{event.message}")

    def _stage(self, name: str) -> StageFacts:
        stage = self.facts.stages.get(name)
        if stage is None:
            family = family_of(name)
            needs = self._needs.get(name) or self._needs.get(family) or ()
            kind = self.facts.stages[family].kind if family in self.facts.stages else ""
            stage = self.facts.stages[name] = StageFacts(name=name, kind=kind, needs=needs)
        return stage

    def _add_to_stage(self, stage: StageFacts, event: Event, now_s: float) -> None:
        stage.cost.add(event)
        match event.data:
            case StageDecided() as decided:
                stage.decided, stage.key = decided, decided.key or stage.key
            case StageStarted(key=key):
                stage.key, stage.is_awaiting = key or stage.key, False
                stage.end_spans(now_s)  # its inputs changed while it was prepared
                stage.spans.append(StageSpan(start_s=now_s))
            case StageWithheld(missing=missing):
                stage.withheld_for = missing
                stage.end_spans(now_s, event.message)
            case StageAwaiting():
                stage.is_awaiting = True
                stage.end_spans(now_s, event.message)
            case FilesPromoted(files=files, removed=removed):
                stage.written, stage.removed = files, removed
            case StageRestored(files=files, removed=removed):
                stage.written, stage.removed = files, removed
                self.facts.restores.append((now_s, stage.name))
            case StageFinished() as ended:
                stage.ended, stage.message, stage.key = ended, event.message, ended.key or stage.key
                stage.end_spans(now_s, ended=ended)
            case CallSettled(cost=cost):
                self.facts.payments.append((now_s, cost))
            case HttpRetry(status=status, code=code):
                stage.retries.append(str(status or code or "no response"))
            case _:
                _add_to_attempt(stage, event, now_s)


def _add_to_attempt(stage: StageFacts, event: Event, now_s: float) -> None:
    match event.data:
        case Warned(flaky=flaky):
            stage.flaky.update((str(one.subject), one) for one in flaky)
        case AttemptStarted(attempt=number):
            attempt = stage.attempts[number] = AttemptFacts(number=number, start_s=now_s)
            if stage.spans:
                stage.spans[-1].attempts.append(attempt)
        case AttemptFinished() as ended:
            attempt = stage.attempt(ended.attempt, now_s)
            if attempt.ended is not None:  # its group failed afterwards: how it ended in its span stays known
                attempt = stage.attempts[ended.attempt] = replace(attempt)
            attempt.ended, attempt.message, attempt.end_s = ended, event.message, now_s
        case CheckResult() as check:
            stage.attempt(check.attempt or max(stage.attempts, default=1), now_s).checks.append(check)
        case _:
            _add_to_call(stage, event, now_s)


def _add_to_call(stage: StageFacts, event: Event, now_s: float) -> None:
    match event.data:
        case LlmRequest() as request:
            stage.attempt(request.attempt, now_s).calls.append(CallFacts(request=request, start_s=now_s))
        case CallReserved(provider=provider):
            for call in [one for attempt in stage.attempts.values() for one in attempt.calls][-1:]:
                call.receivers.append(provider or call.request.provider)
        case RateLimitWait(limit=limit) if not stage.is_awaiting:  # of a batch it is no part of the call
            for call in [one for attempt in stage.attempts.values() for one in attempt.calls][-1:]:
                call.limit = limit
        case LlmResponse() as response:
            for call in reversed(stage.attempt(response.attempt, now_s).calls):
                if call.response is None and call.request.fingerprint == response.fingerprint:
                    call.response, call.end_s = response, now_s
                    break


class EndedRun(Struct, frozen=True, kw_only=True):
    """The facts of a run that has ended. `stages` are in the order of the plan; each has its last end."""

    run_id: str
    ended: RunFinished
    duration_s: float
    stages: Sequence[FinishedStage]
    facts: RunFacts

    @property
    def failures(self) -> list[FinishedStage]:
        """Return the ends of the stages that failed or were edited."""
        return [end for end in self.stages if end.status.is_failure]
