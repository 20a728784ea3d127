"""Make OpenTelemetry spans of a build from its events: the build, its stages, their attempts, requests to models."""

import json
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from orch23.features.otel import conventions as names
from orch23.model.event import (
    ORCH23_ROLE,
    AttemptFinished,
    AttemptStarted,
    CallReserved,
    CallSettled,
    CheckResult,
    Event,
    HttpRetry,
    LlmRequest,
    LlmResponse,
    Planned,
    RunFinished,
    RunStarted,
    StageAwaiting,
    StageDecided,
    StageFinished,
    StageRestored,
    StageStarted,
    StageWithheld,
)
from orch23.model.event_data import EventData, StageStatus
from orch23.model.pipeline import family_of
from orch23.model.sink import Sink
from orch23.model.text import parse_amount

Attributes: TypeAlias = Mapping[str, str | int | float | bool | list[str]]
ReadMessages: TypeAlias = Callable[[str, str, int], tuple[str, str]]
"""Return the prompt and the response of a run, a stage and an attempt, without secrets."""

_ENDS_WITH_ERROR = frozenset({StageStatus.FAILED, StageStatus.EDITED, StageStatus.CANCELLED})
_UNFINISHED = "unfinished"


class _Call(Struct, frozen=True):
    """A request that was sent. `settled` is its end, once it is known; `ended_ns` is the time of it."""

    span: Span
    fingerprint: str
    settled: CallSettled | None = None
    ended_ns: int = 0

    @property
    def has_failed(self) -> bool:
        """Whether it ended without a usable response."""
        end = self.settled
        return end is None or end.released or end.unusable or (end.forfeited and not end.uncounted)


class _Stage(Struct):
    """The open spans of a stage. `withheld_ns` is when it began to wait for its promotion group; 0 if it does not."""

    span: Span
    attempt: Span | None = None
    request: LlmRequest = field(default_factory=LlmRequest)
    call: _Call | None = None
    withheld_ns: int = 0


class BuildSpans(Struct, Sink, kw_only=True):
    """A sink that makes the spans of a build.

    `clock_ns` is the time in ns since 1970, which never goes back; `began_ns` is when the command started. `parent` has
    the span that the build belongs to, if any. Without `read_messages` no span has prompts or responses.

    Stages that were only found fresh or skipped have no span: the root span counts them. Not safe for several threads.
    """

    tracer: Tracer
    parent: Context
    clock_ns: Callable[[], int]
    began_ns: int
    read_messages: ReadMessages | None = None
    leaves_out: ClassVar[str] = (
        "notice shared_cache stages_added promoted released files_proposed command_ran step_output call_submitted "
        "batch_submitted batch_waiting rate_limit_wait llm_text"
    )
    _run_id: str = ""
    _root: Span | None = None
    _kinds: Mapping[str, str] = field(default_factory=dict)
    # With the time of each decision.
    _decided: dict[str, tuple[int, StageDecided]] = field(default_factory=dict)
    _stages: dict[str, _Stage] = field(default_factory=dict)
    _parked: dict[str, Span] = field(default_factory=dict)

    def notice(self, event: Event) -> None:
        """Handle one event."""
        now, data = self.clock_ns(), event.data
        match data:
            case RunStarted():
                self._start_root(data)
            case Planned(stages=kinds):
                self._kinds = kinds
            case RunFinished():
                self._end_root(data, now)
            case _ if event.role != ORCH23_ROLE and self._root is not None:
                self._follow(event.role, data, now)

    def close(self) -> None:
        """End all open spans, as those of a build that did not come to its end."""
        if self._root is not None:
            self._end_open(self.clock_ns(), _UNFINISHED)
            _end(self._root, self.clock_ns(), _UNFINISHED)
            self._root = None

    # ---- the build ----------------------------------------------------------------------------

    def _start_root(self, data: RunStarted) -> None:
        self._run_id = data.run_id
        attributes: Attributes = {
            "orch23.run.id": data.run_id,
            "orch23.pipeline.file": data.pipeline,
            "orch23.pipeline.name": data.name,
            "orch23.jobs": data.jobs,
            "orch23.sandbox": data.sandbox,
        }
        self._root = self.tracer.start_span(
            f"build {data.name or data.pipeline}", context=self.parent, attributes=attributes, start_time=self.began_ns
        )

    def _end_root(self, data: RunFinished, now: int) -> None:
        if self._root is None:
            return
        self._end_open(now, data.status)
        for span in self._parked.values():
            span.set_attribute("orch23.awaiting", value=True)
            span.end(now)
        counts: Attributes = {f"orch23.stages.{status}": count for status, count in data.stages.items()}
        self._root.set_attributes({**counts, "orch23.run.status": data.status, "orch23.exit_code": data.exit_code})
        _set_cost(self._root, data.cost)
        _end(self._root, now, data.status if data.exit_code and data.status != "waiting" else "")
        self._root = None

    def _end_open(self, now: int, error: str) -> None:
        for name in [*self._stages]:
            self._end_stage(name, now, error)

    # ---- a stage ------------------------------------------------------------------------------

    def _follow(self, name: str, data: EventData, now: int) -> None:
        stage = self._stages.get(name)
        match data:
            case StageDecided():
                self._decided[name] = now, data
            case StageStarted():
                self._end_stage(name, now, "")  # its inputs changed while it was prepared
                self._start_stage(name, now)
            case StageRestored():
                # Restoring has no event of its own at its start.
                self._start_stage(name, self._decided[name][0] if name in self._decided else now)
            case StageFinished():
                self._finish_stage(name, data, now)
            case _ if stage is not None:
                self._follow_attempt(name, stage, data, now)

    def _follow_attempt(self, name: str, stage: _Stage, data: EventData, now: int) -> None:
        match data:
            case StageWithheld():
                self._end_attempt(stage, now, "")
                stage.withheld_ns = now
            case StageAwaiting():
                if stage.call is not None and stage.call.settled is None:
                    # Its response may come when the stage runs again: its span stays open.
                    self._parked[stage.call.fingerprint], stage.call = stage.call.span, None
                stage.span.set_attribute("orch23.stage.status", StageStatus.AWAITING.value)
                self._end_stage(name, now, "")
            case AttemptStarted(attempt=attempt):
                self._end_attempt(stage, now, "")
                stage.attempt = self._child(stage.span, "attempt", now, {"orch23.attempt": attempt})
            case AttemptFinished(failure_kind=kind, passed=passed):
                self._end_attempt(stage, now, "" if passed else kind or names.OTHER_ERROR)
            case CheckResult(passed=passed, exit_code=code, printed=printed):
                facts: dict[str, str | int] = {"passed": passed, "output": printed}
                facts |= {} if code is None else {"exit_code": code}
                _add_event(stage.attempt, "orch23.check", now, facts)
            case _:
                self._follow_call(name, stage, data, now)

    def _follow_call(self, name: str, stage: _Stage, data: EventData, now: int) -> None:
        match data:
            case LlmRequest():
                stage.request = data
            case CallReserved():
                self._start_call(name, stage, data, now)
            case CallSettled():
                if stage.call is not None:
                    stage.call = replace(stage.call, settled=data, ended_ns=now)
            case HttpRetry(status=status, code=code):
                self._end_call(stage, now, str(status or code))
            case LlmResponse():
                self._respond(name, stage, data, now)

    def _start_stage(self, name: str, at_ns: int) -> None:
        if self._root is None:
            return
        family = family_of(name)
        kind = self._kinds.get(name) or self._kinds.get(family, "")
        attributes: dict[str, str | list[str]] = {"orch23.stage.name": name, "orch23.stage.kind": kind}
        if name in self._decided:
            _, decided = self._decided.pop(name)
            reasons = [f"{one.code} {one.subject}".strip() for one in decided.reasons]
            attributes |= {"orch23.stage.decision": decided.decision, "orch23.stage.key": decided.key}
            attributes["orch23.stage.reasons"] = reasons
        # The name of an item is an attribute: backends index the names of spans, which must be few.
        self._stages[name] = _Stage(self._child(self._root, f"stage {family}", at_ns, attributes))

    def _finish_stage(self, name: str, data: StageFinished, now: int) -> None:
        code = next((one.code for one in data.problems), "")
        error = (data.failure_kind or code or data.status.value) if data.status in _ENDS_WITH_ERROR else ""
        if name not in self._stages and error:
            self._start_stage(name, now)
        self._decided.pop(name, None)
        stage = self._stages.get(name)
        if stage is None:
            return
        facts: Attributes = {"orch23.stage.status": data.status.value, "orch23.stage.unchanged": data.unchanged}
        stage.span.set_attributes(facts)
        if data.calls or data.recorded:
            stage.span.set_attributes({"orch23.calls": data.calls, "orch23.recorded_responses": data.recorded})
            _set_cost(stage.span, data.cost)
        self._end_stage(name, now, error)

    def _end_stage(self, name: str, now: int, error: str) -> None:
        stage = self._stages.pop(name, None)
        if stage is not None:
            self._end_attempt(stage, now, error)
            _end(stage.span, stage.withheld_ns or now, error)

    def _end_attempt(self, stage: _Stage, now: int, error: str) -> None:
        self._end_call(stage, now, error)
        if stage.attempt is not None:
            _end(stage.attempt, now, error)
            stage.attempt = None

    def _child(
        self, parent: Span, name: str, at_ns: int, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        context = set_span_in_context(parent, Context())
        return self.tracer.start_span(name, context, kind, attributes, start_time=at_ns)

    # ---- a request ----------------------------------------------------------------------------

    def _start_call(self, name: str, stage: _Stage, data: CallReserved, now: int) -> None:
        """Start the span of a request when it is sent: waiting for a rate limit is not part of the call."""
        self._end_call(stage, now, "")
        attributes: dict[str, str | int] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.provider_name(data.provider),
            names.REQUEST_MODEL: data.model,
            "orch23.stage.name": name,
            "orch23.request.fingerprint": data.fingerprint,
        }
        # A fallback is at another server, which no event names.
        if stage.request.fingerprint == data.fingerprint:
            attributes |= names.server_attributes(stage.request.endpoint)
        parent = stage.attempt or stage.span
        span = self._child(parent, f"{names.CHAT} {data.model}", now, attributes, SpanKind.CLIENT)
        stage.call = _Call(span, data.fingerprint)

    def _end_call(self, stage: _Stage, now: int, error: str) -> None:
        """End the span of a request that has no response."""
        call, stage.call = stage.call, None
        if call is not None:
            _end(call.span, call.ended_ns or now, (error or names.OTHER_ERROR) if call.has_failed else "")

    def _respond(self, name: str, stage: _Stage, data: LlmResponse, now: int) -> None:
        if data.replayed:
            # No CLIENT span: no request was sent, and its tokens would be counted a second time.
            facts: Attributes = {names.RESPONSE_MODEL: data.model, "orch23.request.fingerprint": data.fingerprint}
            _add_event(stage.attempt, "orch23.recorded_response", now, facts)
            return
        parked = self._parked.pop(data.fingerprint, None)
        call = stage.call or (None if parked is None else _Call(parked, data.fingerprint))
        if call is None:
            return
        stage.call = None
        call.span.set_attributes(
            {
                names.RESPONSE_MODEL: data.model,
                names.FINISH_REASONS: [names.finish_reason(data.stop)],
                names.INPUT_TOKENS: data.input_tokens,
                names.OUTPUT_TOKENS: data.output_tokens,
                names.CACHE_READ_TOKENS: data.cache_read_tokens,
                names.CACHE_WRITE_TOKENS: data.cache_write_tokens,
            }
        )
        if data.fallback:
            call.span.set_attribute("orch23.fallback", value=True)
        _set_cost(call.span, data.cost)
        if self.read_messages is not None:
            self._add_messages(call.span, self.read_messages(self._run_id, name, data.attempt), data.stop)
        call.span.end(call.ended_ns or now)

    def _add_messages(self, span: Span, texts: tuple[str, str], stop: str) -> None:
        prompt, response = ([{"type": "text", "content": text}] for text in texts)
        sent = [{"role": "user", "parts": prompt}]
        received = [{"role": "assistant", "parts": response, "finish_reason": names.finish_reason(stop)}]
        span.set_attribute(names.INPUT_MESSAGES, json.dumps(sent, ensure_ascii=False))
        span.set_attribute(names.OUTPUT_MESSAGES, json.dumps(received, ensure_ascii=False))


def _end(span: Span, at_ns: int, error: str) -> None:
    if error:
        span.set_attribute(names.ERROR_TYPE, error)
        span.set_status(Status(StatusCode.ERROR))
    span.end(at_ns)


def _add_event(span: Span | None, name: str, at_ns: int, attributes: Attributes) -> None:
    if span is not None:
        span.add_event(name, attributes, at_ns)


def _set_cost(span: Span, cost: str | None) -> None:
    amount = parse_amount(cost)
    if amount is not None:  # its price is known
        span.set_attribute("orch23.cost.usd", float(amount))
