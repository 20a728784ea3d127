"""Write when a build did what as a Chrome trace, which Perfetto (https://ui.perfetto.dev) and chrome://tracing show.

The format is the JSON object of the Trace Event Format: complete events (`X`), counters (`C`) and metadata (`M`), with
times in microseconds.
"""

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from orch23.features.exports.document_sink import document
from orch23.model.event import StageFinished
from orch23.model.run_facts import AttemptFacts, EndedRun, Span, StageSpan
from orch23.model.text import parse_amount

_PROCESS: Final = 1
_MICROSECONDS: Final = 1_000_000
_Facts: TypeAlias = dict[str, Any]


def trace_text(name: str, run: EndedRun) -> str:
    """Return a run as a Chrome trace: a row for each stage that runs at the same time."""
    facts, lanes = run.facts, run.facts.lanes()
    events: list[_Facts] = []
    running: list[tuple[float, int]] = []
    for lane, span, stage in lanes:
        end_s = _end_s(span, facts.last_s)
        running += [(span.start_s, 1), (end_s, -1)]
        events += _stage_spans(span, stage.name, end_s, lane + 1)
    events += [_event("i", f"{one} restored", at_s, 0, cat="stage", s="p") for at_s, one in facts.restores]
    events += _counts("stages running", running)
    payments = ((at_s, parse_amount(cost) or Decimal(0)) for at_s, cost in facts.payments)
    events += _counts("cost (USD)", payments)
    names = [_metadata("process_name", 0, name)]
    rows = sorted({lane + 1 for lane, _, _ in lanes})
    names += [_metadata("thread_name", row, f"worker {row}") for row in rows]
    # If spans start together, the outer one is first.
    events.sort(key=lambda one: (one["ts"], -one.get("dur", 0)))
    began = facts.began
    about: _Facts = {"run": began.run_id, "pipeline": began.pipeline, "orch23": began.version}
    about |= {"status": run.ended.status, "exit_code": run.ended.exit_code}
    document = {"traceEvents": [*names, *events], "displayTimeUnit": "ms", "otherData": about}
    return f"{json.dumps(document, ensure_ascii=False)}\n"


def _stage_spans(span: StageSpan, stage: str, end_s: float, row: int) -> Iterator[_Facts]:
    facts = {"waits": span.waits} if span.waits else {} if span.ended is None else _facts(span.ended)
    yield _span(stage, "stage", span.start_s, end_s, row, facts)
    for attempt, following in zip_longest(span.attempts, span.attempts[1:]):
        yield from _attempt_spans(attempt, end_s if following is None else following.start_s, row)


def _attempt_spans(attempt: AttemptFacts, until_s: float, row: int) -> Iterator[_Facts]:
    facts, end_s = dict[str, Any](), _end_s(attempt, until_s)
    if attempt.ended is not None and attempt.end_s == end_s:
        kind = attempt.ended.failure_kind
        facts = {"passed": attempt.ended.passed, **({"failure": kind} if kind else {})}
    yield _span(f"attempt {attempt.number}", "attempt", attempt.start_s, end_s, row, facts)
    for call in attempt.calls:
        request, called_s = call.request, _end_s(call, end_s)
        response = call.response if call.end_s == called_s else None
        facts = {"provider": request.provider, "model": request.model, "recorded": request.recorded}
        facts |= {"waited for": call.limit} if call.limit else {}
        if response is not None:
            facts |= {"input tokens": response.input_tokens, "output tokens": response.output_tokens}
            facts |= {"cost (USD)": response.cost, "stop": response.stop}
        yield _span(f"call {request.model}", "call", call.start_s, called_s, row, facts)
        if response is not None:
            yield _span("check the response", "check", called_s, end_s, row, {})


def _end_s(span: Span, until_s: float) -> float:
    """Return when a span ended. It can go on when its stage has left its row, to wait for a batch or its group."""
    return until_s if span.end_s is None else min(span.end_s, until_s)


def _counts(name: str, changes: Iterable[tuple[float, Any]]) -> Iterator[_Facts]:
    """Yield the value of a counter after each change of it."""
    value: Any = 0
    for at_s, change in sorted(changes, key=lambda one: one[0]):
        value += change
        yield _event("C", name, at_s, 0, args={name: value if isinstance(value, int) else float(value)})


def _span(name: str, category: str, start_s: float, end_s: float, row: int, facts: _Facts) -> _Facts:
    took = _microseconds(end_s) - _microseconds(start_s)
    return _event("X", name, start_s, row, cat=category, dur=took, args=facts)


def _event(phase: str, name: str, at_s: float, row: int, **more: Any) -> _Facts:
    return {"ph": phase, "name": name, "ts": _microseconds(at_s), "pid": _PROCESS, "tid": row, **more}


def _microseconds(at_s: float) -> int:
    return round(at_s * _MICROSECONDS)


def _facts(data: StageFinished) -> _Facts:
    facts: _Facts = {"status": data.status.value, "attempts": data.attempts}
    if data.calls or data.recorded:
        tokens = {"input tokens": data.input_tokens, "output tokens": data.output_tokens}
        facts |= {"calls": data.calls, "recorded": data.recorded, **tokens, "cost (USD)": data.cost}
    return facts


def _metadata(what: str, row: int, name: str) -> _Facts:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": row, "args": {"name": name}}


trace_document = document(trace_text)
