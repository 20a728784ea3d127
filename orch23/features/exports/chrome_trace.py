"""Write when a build did what as a Chrome trace, which Perfetto (https://ui.perfetto.dev) and chrome://tracing show.

The format is the JSON object of the Trace Event Format: complete events (`X`), counters (`C`) and metadata (`M`), with
times in microseconds.
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final

from msgspec import Struct, field

from orch23.model.event import (
    AttemptFinished,
    AttemptStarted,
    CallSettled,
    Event,
    LlmRequest,
    LlmResponse,
    RateLimitWait,
    RunStarted,
    StageAwaiting,
    StageFinished,
    StageRestored,
    StageStarted,
    StageWithheld,
)
from orch23.model.event_data import EventData
from orch23.model.ports import EndedRun, Sink
from orch23.report.formats import View
from orch23.report.values import parse_amount

_PROCESS: Final = 1
_MICROSECONDS: Final = 1_000_000


class TraceSpan(Struct, frozen=True, kw_only=True):
    """Something that takes time. `since` is a time of the clock, in seconds; `facts` are shown when it is selected."""

    name: str
    category: str
    since: float
    facts: dict[str, Any] = field(default_factory=dict)


class ChromeTrace(Struct, Sink, kw_only=True):
    """A sink that writes one document at the end of the run: a row for each stage that runs at the same time.

    Not safe for several threads.
    """

    name: str
    write: Callable[[str], None]
    clock: Callable[[], float]
    leaves_out: ClassVar[str] = (
        "notice plan shared_cache stages_added stage_decided promoted released files_proposed check_result "
        "command_ran step_output call_reserved call_submitted batch_submitted batch_waiting http_retry llm_text"
    )
    _began: float = 0.0
    _rows: dict[str, int] = field(default_factory=dict)
    _open: dict[str, list[TraceSpan]] = field(default_factory=dict)
    _events: list[dict[str, Any]] = field(default_factory=list)
    _about: dict[str, Any] = field(default_factory=dict)
    _most_rows: int = 0
    _cost: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        """Start the clock."""
        self._began = self.clock()

    def notice(self, event: Event) -> None:
        """Note one event."""
        stage, data, now = event.role, event.data, self.clock()
        match data:
            case RunStarted(run_id=run_id, version=version, pipeline=pipeline):
                self._about = {"run": run_id, "pipeline": pipeline, "orch23": version}
            case StageStarted():
                self._start(stage, now)
            case StageRestored():
                self._add("i", f"{stage} restored", now, 0, cat="stage", s="p")
            case StageWithheld() | StageAwaiting():
                self._note(stage, {"waits": event.message}, depth=0)
                self._end(stage, now)
            case StageFinished():
                self._note(stage, _facts(data), depth=0)
                self._end(stage, now)
            case CallSettled(cost=cost):
                self._cost += parse_amount(cost) or Decimal(0)
                self._count("cost (USD)", float(self._cost), now)
            case _:
                self._follow(stage, data, now)

    def finish(self, run: EndedRun) -> None:
        """Write the document."""
        for one in [*self._open]:
            self._end(one, self.clock())
        self._about |= {"status": run.ended.status, "exit_code": run.ended.exit_code}
        self.write(self._document())

    def _follow(self, stage: str, data: EventData, now: float) -> None:
        """Note what happens within a stage."""
        match data:
            case AttemptStarted(attempt=attempt):
                self._close(stage, now, down_to=1)
                self._push(stage, TraceSpan(name=f"attempt {attempt}", category="attempt", since=now))
            case LlmRequest(model=model, recorded=recorded, provider=provider):
                facts = {"provider": provider, "model": model, "recorded": recorded}
                self._push(stage, TraceSpan(name=f"call {model}", category="call", since=now, facts=facts))
            case RateLimitWait(limit=limit):
                self._note(stage, {"waited for": limit})
            case LlmResponse():
                self._responded(stage, data, now)
            case AttemptFinished(passed=passed, failure_kind=kind):
                self._note(stage, {"passed": passed, **({"failure": kind} if kind else {})}, depth=1)
                self._close(stage, now, down_to=1)

    def _start(self, stage: str, now: float) -> None:
        self._end(stage, now)
        taken = set(self._rows.values())
        row = next(number for number in range(1, len(taken) + 2) if number not in taken)
        self._rows[stage] = row
        self._most_rows = max(self._most_rows, row)
        self._open[stage] = [TraceSpan(name=stage, category="stage", since=now)]
        self._count("stages running", len(self._open), now)

    def _end(self, stage: str, now: float) -> None:
        if stage in self._open:
            self._close(stage, now, down_to=0)
            del self._open[stage], self._rows[stage]
            self._count("stages running", len(self._open), now)

    def _push(self, stage: str, span: TraceSpan) -> None:
        if stage in self._open:
            self._open[stage].append(span)

    def _note(self, stage: str, facts: Mapping[str, Any], depth: int = -1) -> None:
        spans = self._open.get(stage, [])
        if spans and depth < len(spans):
            spans[depth].facts.update(facts)

    def _responded(self, stage: str, data: LlmResponse, now: float) -> None:
        spans = self._open.get(stage, [])
        if not spans or spans[-1].category != "call":
            return
        tokens = {"input tokens": data.input_tokens, "output tokens": data.output_tokens}
        spans[-1].facts.update(tokens | {"cost (USD)": data.cost, "stop": data.stop})
        self._close(stage, now, down_to=len(spans) - 1)
        self._push(stage, TraceSpan(name="check the response", category="check", since=now))

    def _close(self, stage: str, now: float, *, down_to: int) -> None:
        """Write the innermost spans of a stage, until `down_to` are left open."""
        spans = self._open.get(stage, [])
        while len(spans) > down_to:
            span = spans.pop()
            since, until = self._microseconds(span.since), self._microseconds(now)
            self._add(
                "X", span.name, span.since, self._rows[stage], cat=span.category, dur=until - since, args=span.facts
            )

    def _count(self, name: str, value: float, now: float) -> None:
        self._add("C", name, now, 0, args={name: value})

    def _add(self, phase: str, name: str, at: float, row: int, **more: Any) -> None:
        event = {"ph": phase, "name": name, "ts": self._microseconds(at), "pid": _PROCESS, "tid": row}
        self._events.append({**event, **more})

    def _microseconds(self, at: float) -> int:
        return round((at - self._began) * _MICROSECONDS)

    def _document(self) -> str:
        names = [_metadata("process_name", 0, self.name)]
        names += [_metadata("thread_name", row, f"worker {row}") for row in range(1, self._most_rows + 1)]
        # Of spans that start together, the outer one is first.
        events = sorted(self._events, key=lambda one: (one["ts"], -one.get("dur", 0)))
        document = {"traceEvents": [*names, *events], "displayTimeUnit": "ms", "otherData": self._about}
        return f"{json.dumps(document, ensure_ascii=False)}\n"


def _facts(data: StageFinished) -> dict[str, Any]:
    facts: dict[str, Any] = {"status": data.status.value, "attempts": data.attempts}
    if data.calls or data.recorded:
        tokens = {"input tokens": data.input_tokens, "output tokens": data.output_tokens}
        facts |= {"calls": data.calls, "recorded": data.recorded, **tokens, "cost (USD)": data.cost}
    return facts


def _metadata(what: str, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": row, "args": {"name": name}}


def trace_document(view: View) -> ChromeTrace:
    """Return the sink that writes the trace to `view.answer`."""
    return ChromeTrace(name=view.pipeline.name or view.pipeline.file, write=view.answer, clock=view.clock)
