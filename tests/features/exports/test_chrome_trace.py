"""When a build did what, as a Chrome trace."""

import json
from typing import Any

from orch23.features.exports.chrome_trace import trace_text
from orch23.features.exports.document_sink import DocumentSink
from orch23.model.event import Event, parse_event
from orch23.report.formats import sink_observer

Rows = list[dict[str, Any]]


def trace(*events: tuple[float, Event]) -> dict[str, Any]:
    """Return the document of a run that started at 100 s: each event with its time in seconds after that."""
    now = [100.0]
    written: list[str] = []
    sink = DocumentSink("demo", written.append, trace_text)
    observer = sink_observer(sink, lambda: now[0])
    for at, event in events:
        assert written == []
        now[0] = 100.0 + at
        observer.notice(event)
    (text,) = written
    document: dict[str, Any] = json.loads(text)
    return document


def spans(document: dict[str, Any]) -> list[tuple[str, int, float, float]]:
    """Return name, row, start and duration of each span, in seconds."""
    found = [one for one in document["traceEvents"] if one["ph"] == "X"]
    return [(one["name"], one["tid"], one["ts"] / 1e6, one["dur"] / 1e6) for one in found]


def of(kind: str, stage: str = "orch23", message: str = "", /, **data: object) -> Event:
    return parse_event(kind, message, stage, data=data)


END = of("run_finished", status="ok")


def test_stages_that_run_at_the_same_time_have_rows_of_their_own_and_a_free_row_is_used_again() -> None:
    document = trace(
        (1, of("stage_started", "a")),
        (2, of("stage_started", "b")),
        (3, of("stage_finished", "a", status="built")),
        (4, of("stage_started", "c")),
        (5, of("stage_finished", "c", status="built")),
        (6, of("stage_finished", "b", status="failed")),
        (6, of("stage_finished", "d", status="blocked")),
        (7, END),
    )
    assert spans(document) == [("a", 1, 1, 2), ("b", 2, 2, 4), ("c", 1, 4, 1)]
    rows = [one["args"]["name"] for one in document["traceEvents"] if one["name"] == "thread_name"]
    assert rows == ["worker 1", "worker 2"]
    running = [one["args"]["stages running"] for one in document["traceEvents"] if one["name"] == "stages running"]
    assert running == [1, 2, 1, 2, 1, 0]


def test_attempts_calls_and_checks_are_inside_of_their_stage() -> None:
    document = trace(
        (0, of("run_started", run_id="r", pipeline="p.yaml", version="1.2")),
        (1, of("stage_started", "a")),
        (1, of("attempt_started", "a", attempt=1)),
        (2, of("llm_request", "a", model="m", provider="p")),
        (3, of("call_settled", "a", calls=1, cost="0.25")),
        (3, of("llm_response", "a", input_tokens=7, output_tokens=2, cost="0.25")),
        (5, of("attempt_finished", "a", attempt=1, passed=False, kind="verify_failed")),
        (5, of("attempt_started", "a", attempt=2)),
        (6, of("llm_request", "a", model="m", provider="p", attempt=2)),
        (8, of("attempt_finished", "a", attempt=2, passed=False, kind="timeout")),
        (9, of("stage_finished", "a", status="failed", attempts=2, calls=1, cost="0.25")),
        (9, of("run_finished", status="failed", exit_code=1)),
    )
    assert spans(document) == [
        ("a", 1, 1, 8),
        ("attempt 1", 1, 1, 4),
        ("call m", 1, 2, 1),
        ("check the response", 1, 3, 2),
        ("attempt 2", 1, 5, 3),
        ("call m", 1, 6, 2),
    ]
    args = {one["name"]: one.get("args") for one in document["traceEvents"] if one["ph"] in "XC"}
    assert args["cost (USD)"] == {"cost (USD)": 0.25}
    assert args["attempt 2"] == {"passed": False, "failure": "timeout"}
    assert args["a"]["cost (USD)"] == "0.25"
    assert document["otherData"] == {
        "run": "r",
        "pipeline": "p.yaml",
        "orch23": "1.2",
        "status": "failed",
        "exit_code": 1,
    }


def test_a_stage_that_waits_for_a_batch_or_its_group_leaves_its_row() -> None:
    document = trace(
        (1, of("stage_started", "a")),
        (2, of("stage_awaiting", "a", "its request is in a batch")),
        (3, of("stage_started", "b")),
        (4, of("stage_started", "a")),
        (5, END),
    )
    assert spans(document) == [("a", 1, 1, 1), ("b", 1, 3, 2), ("a", 2, 4, 1)]


def test_what_happens_after_a_stage_left_its_row_is_not_in_its_span() -> None:
    document = trace(
        (1, of("stage_started", "a")),
        (1, of("attempt_started", "a", attempt=1)),
        (2, of("llm_request", "a", model="m", attempt=1)),
        (3, of("stage_awaiting", "a", "its request is in a batch")),
        (4, of("rate_limit_wait", "a", limit="too many batches")),
        (5, of("llm_response", "a", attempt=1)),
        (6, of("stage_started", "b")),
        (6, of("attempt_started", "b", attempt=1)),
        (7, of("attempt_finished", "b", attempt=1, passed=True)),
        (8, of("stage_held", "b", "its group")),
        (9, of("attempt_finished", "b", attempt=1, passed=False, kind="verify_failed")),
        (10, END),
    )
    assert spans(document) == [
        ("a", 1, 1, 2),
        ("attempt 1", 1, 1, 2),
        ("call m", 1, 2, 1),
        ("b", 1, 6, 2),
        ("attempt 1", 1, 6, 1),
    ]
    args = {(one["name"], one["ts"]): one["args"] for one in document["traceEvents"] if one["ph"] == "X"}
    assert args["call m", 2_000_000] == {"provider": "", "model": "m", "recorded": False}
    assert args["attempt 1", 6_000_000] == {"passed": True}
    assert (args["a", 1_000_000]["waits"], args["b", 6_000_000]["waits"]) == ("its request is in a batch", "its group")


def test_a_stage_that_starts_again_has_a_span_for_each_time() -> None:
    document = trace(
        (1, of("stage_started", "a")),
        (3, of("stage_started", "a")),
        (4, of("stage_finished", "a", status="built")),
        (5, END),
    )
    assert spans(document) == [("a", 1, 1, 2), ("a", 1, 3, 1)]
    args = [one["args"] for one in document["traceEvents"] if one["ph"] == "X"]
    assert args == [{}, {"status": "built", "attempts": 0}]


def test_a_restored_stage_is_a_mark_and_a_fresh_one_is_not_there() -> None:
    document = trace(
        (1, of("stage_restored", "a")),
        (1, of("stage_finished", "a", status="restored")),
        (2, of("stage_finished", "b", status="fresh")),
        (3, END),
    )
    marks = [(one["name"], one["ph"], one["ts"]) for one in document["traceEvents"] if one["ph"] not in "MC"]
    assert marks == [("a restored", "i", 1_000_000)]
