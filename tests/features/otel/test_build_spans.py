"""Which spans the events of a build become."""

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from orch23.features.otel.build_spans import BuildSpans, ReadMessages
from orch23.features.otel.conventions import finish_reason, provider_name, server_attributes
from orch23.model.event import Event, parse_event

BEGAN = 90


class Spans:
    """The spans of a run whose command started at 90 ns and that itself started at 100 ns."""

    def __init__(self, *events: tuple[int, Event], read: ReadMessages | None = None, closes: bool = False) -> None:
        exporter, now = InMemorySpanExporter(), [100]
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        observer = BuildSpans(
            tracer=provider.get_tracer("test"),
            parent=Context(),
            clock_ns=lambda: now[0],
            began_ns=BEGAN,
            read_messages=read,
        )
        observer.notice(of("run_started", run_id="r1", pipeline="p.yaml", name="demo"))
        for at, event in events:
            now[0] = 100 + at
            observer.notice(event)
        if closes:
            observer.close()
        self.ended: Sequence[ReadableSpan] = exporter.get_finished_spans()

    def only(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.ended if span.name == name]
        return found

    def times(self) -> list[tuple[str, int, int]]:
        """Return name, start and end of each span, counted from the start of the run."""
        return sorted((span.name, (span.start_time or 0) - 100, (span.end_time or 0) - 100) for span in self.ended)

    def parents(self) -> dict[str, str]:
        names = {span.context.span_id: span.name for span in self.ended if span.context is not None}
        return {span.name: names[span.parent.span_id] for span in self.ended if span.parent is not None}


def of(kind: str, stage: str = "orch23", /, **data: object) -> Event:
    return parse_event(kind, "", stage, data=data)


def call(stage: str, model: str = "m", **data: object) -> Event:
    return of("call_reserved", stage, fingerprint="f1", provider="openai", model=model, **data)


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


SETTLED = {"fingerprint": "f1", "calls": 1, "tokens": 9, "cost": "0.5"}
RESPONSE: dict[str, object] = {
    "fingerprint": "f1",
    "model": "m-1",
    "input_tokens": 7,
    "output_tokens": 2,
    "cost": "0.5",
}
END = of("run_finished", status="ok", stages={"built": 1})
FAILED = of("run_finished", status="failed", exit_code=1)


def test_the_root_span_begins_with_the_command_and_ends_with_the_run() -> None:
    spans = Spans((9, of("run_finished", status="ok", stages={"built": 2, "fresh": 10_000}, cost="1.5")))
    (root,) = spans.ended
    assert (root.start_time, root.end_time, root.parent) == (BEGAN, 109, None)
    assert facts(root)["orch23.stages.fresh"] == 10_000
    assert facts(root)["orch23.cost.usd"] == 1.5
    assert root.status.status_code is StatusCode.UNSET


def test_a_stage_that_was_only_decided_has_no_span() -> None:
    spans = Spans(
        (1, of("stage_decided", "a", decision="fresh")),
        (1, of("stage_finished", "a", status="fresh")),
        (2, of("stage_finished", "b", status="skipped")),
        (2, of("stage_finished", "c", status="blocked")),
        (3, END),
    )
    assert spans.times() == [("build demo", -10, 3)]


def test_a_call_begins_when_it_is_sent_and_ends_when_it_is_settled() -> None:
    spans = Spans(
        (1, of("stage_started", "a")),
        (1, of("attempt_started", "a", attempt=1)),
        (2, of("llm_request", "a", fingerprint="f1", endpoint="https://host.example/v1", model="m", provider="openai")),
        (2, of("rate_limit_wait", "a", wait_s=3.0)),
        (4, call("a")),
        (7, of("call_settled", "a", **SETTLED)),
        (8, of("llm_response", "a", **RESPONSE, stop="max_tokens", cache_read_tokens=3, cache_write_tokens=1)),
        (9, of("attempt_finished", "a", attempt=1, passed=True)),
        (10, of("stage_finished", "a", status="built", calls=1, cost="0.5")),
        (11, END),
    )
    assert spans.times() == [("attempt", 1, 9), ("build demo", -10, 11), ("chat m", 4, 7), ("stage a", 1, 10)]
    assert spans.parents() == {"chat m": "attempt", "attempt": "stage a", "stage a": "build demo"}
    span = spans.only("chat m")
    assert (span.kind, span.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
    assert facts(span) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-1",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_creation.input_tokens": 1,
        "server.address": "host.example",
        "server.port": 443,
        "orch23.cost.usd": 0.5,
        "orch23.request.fingerprint": "f1",
        "orch23.stage.name": "a",
    }


def test_a_fallback_is_a_call_of_its_own_and_its_server_is_not_that_of_the_request() -> None:
    spans = Spans(
        (1, of("stage_started", "a")),
        (2, of("llm_request", "a", fingerprint="f0", endpoint="https://down.example")),
        (2, of("call_reserved", "a", fingerprint="f0", provider="anthropic", model="big")),
        (3, of("call_settled", "a", fingerprint="f0", released=True)),
        (4, call("a", "small")),
        (5, of("call_settled", "a", **SETTLED)),
        (5, of("llm_response", "a", **RESPONSE, fallback=True)),
        (6, of("stage_finished", "a", status="built")),
        (7, END),
    )
    first, second = facts(spans.only("chat big")), facts(spans.only("chat small"))
    assert (first["error.type"], first["server.address"]) == ("_OTHER", "down.example")
    assert (second["gen_ai.provider.name"], second["orch23.fallback"]) == ("openai", True)
    assert "server.address" not in second


@pytest.mark.parametrize(
    ("settled", "is_error"),
    [({"released": True}, True), ({"forfeited": True}, True), ({"unusable": True}, True), ({}, False)],
)
def test_a_call_without_a_response_is_an_error_with_the_reason_of_its_stage(
    settled: dict[str, bool], is_error: bool
) -> None:
    spans = Spans(
        (1, of("stage_started", "a")),
        (1, of("attempt_started", "a", attempt=1)),
        (2, call("a")),
        (3, of("call_settled", "a", **SETTLED, **settled)),
        (6, of("stage_finished", "a", status="failed", problems=[{"code": "E417"}])),
        (7, FAILED),
    )
    span = spans.only("chat m")
    assert (span.end_time, facts(span).get("error.type")) == (103, "E417" if is_error else None)
    assert facts(spans.only("stage a"))["error.type"] == "E417"
    assert facts(spans.only("build demo"))["error.type"] == "failed"


def test_a_response_that_was_not_counted_is_a_response() -> None:
    spans = Spans(
        (1, of("stage_started", "a")),
        (2, call("a")),
        (3, of("call_settled", "a", **SETTLED, forfeited=True, uncounted=True)),
        (4, of("stage_finished", "a", status="built")),
        (5, END),
    )
    assert spans.only("chat m").status.status_code is StatusCode.UNSET


def test_a_request_in_a_batch_ends_when_its_response_comes_or_with_the_run() -> None:
    waits = [
        (1, of("stage_started", "a")),
        (1, of("attempt_started", "a", attempt=1)),
        (2, call("a")),
        (3, of("stage_awaiting", "a", fingerprint="f1")),
    ]
    comes = [
        (6, of("stage_started", "a")),
        (6, of("attempt_started", "a", attempt=1)),
        (8, of("llm_response", "a", **RESPONSE, replayed=False)),
        (9, of("attempt_finished", "a", attempt=1, passed=True)),
        (9, of("stage_finished", "a", status="built")),
    ]
    spans = Spans(*waits, *comes, (10, END))
    assert spans.times() == [
        ("attempt", 1, 3),
        ("attempt", 6, 9),
        ("build demo", -10, 10),
        ("chat m", 2, 8),
        ("stage a", 1, 3),
        ("stage a", 6, 9),
    ]
    assert facts(spans.only("chat m"))["gen_ai.usage.input_tokens"] == 7
    spans = Spans(*waits, (10, of("run_finished", status="waiting", exit_code=7)))
    assert (spans.only("chat m").end_time, facts(spans.only("chat m"))["orch23.awaiting"]) == (110, True)
    assert spans.only("stage a").status.status_code is StatusCode.UNSET
    assert spans.only("build demo").status.status_code is StatusCode.UNSET


def test_a_stage_that_waits_for_its_group_ended_when_its_work_did() -> None:
    spans = Spans(
        (1, of("stage_started", "a")),
        (3, of("stage_held", "a", waits_for=1)),
        (8, of("stage_finished", "a", status="built")),
        (9, END),
    )
    assert spans.times() == [("build demo", -10, 9), ("stage a", 1, 3)]
    assert facts(spans.only("stage a"))["orch23.stage.status"] == "built"


def test_a_restored_stage_began_when_it_was_decided() -> None:
    spans = Spans(
        (1, of("stage_decided", "a", decision="restore", reasons=[{"code": "output_missing", "subject": "a.txt"}])),
        (3, of("stage_restored", "a", files=["a.txt"])),
        (4, of("stage_finished", "a", status="restored")),
        (9, END),
    )
    assert spans.times() == [("build demo", -10, 9), ("stage a", 1, 4)]
    assert facts(spans.only("stage a"))["orch23.stage.reasons"] == ("output_missing a.txt",)


def test_the_items_of_a_foreach_share_the_name_of_their_span() -> None:
    spans = Spans(
        (0, of("plan", stages={"code": "llm"})),
        *((number, of("stage_started", f"code@t{number}")) for number in range(2)),
        *((number + 2, of("stage_finished", f"code@t{number}", status="built")) for number in range(2)),
        (9, END),
    )
    items = [facts(span) for span in spans.ended if span.name == "stage code"]
    assert [(one["orch23.stage.name"], one["orch23.stage.kind"]) for one in items] == [
        ("code@t0", "llm"),
        ("code@t1", "llm"),
    ]


def test_a_stage_that_starts_again_has_two_spans_and_a_failure_without_a_start_has_one() -> None:
    spans = Spans(
        (1, of("stage_started", "a")),
        (2, of("stage_started", "a")),
        (3, of("stage_finished", "a", status="built")),
        (4, of("stage_finished", "b", status="edited")),
        (9, FAILED),
    )
    assert spans.times() == [("build demo", -10, 9), ("stage a", 1, 2), ("stage a", 2, 3), ("stage b", 4, 4)]
    assert facts(spans.only("stage b"))["error.type"] == "edited"


def test_spans_that_are_open_when_the_command_ends_are_errors() -> None:
    spans = Spans(
        (1, of("stage_started", "a")), (1, of("attempt_started", "a", attempt=1)), (2, call("a")), closes=True
    )
    assert {span.name: facts(span)["error.type"] for span in spans.ended} == dict.fromkeys(
        ("chat m", "attempt", "stage a", "build demo"), "unfinished"
    )
    assert [one.name for one in Spans((3, END), closes=True).ended] == ["build demo"], "and only then"


def test_a_recorded_response_is_an_event_of_the_attempt() -> None:
    asked: list[tuple[str, str, int]] = []

    def read(*place: Any) -> tuple[str, str]:
        asked.append(place)
        return "prompt", "response"

    spans = Spans(
        (1, of("stage_started", "a")),
        (1, of("attempt_started", "a", attempt=2)),
        (2, of("llm_response", "a", **RESPONSE, replayed=True)),
        (3, of("stage_finished", "a", status="built")),
        (4, END),
        read=read,
    )
    assert (asked, sorted(spans.parents())) == ([], ["attempt", "stage a"])
    (event,) = spans.only("attempt").events
    assert (event.name, event.timestamp) == ("orch23.recorded_response", 102)


def test_events_of_the_run_and_of_unknown_stages_make_no_span() -> None:
    spans = Spans(
        (1, of("warning", code="W1")),
        (1, call("gone")),
        (1, of("llm_response", "gone", **RESPONSE)),
        (2, END),
        (3, of("stage_started", "late")),
    )
    assert [span.name for span in spans.ended] == ["build demo"]


def test_names_of_the_conventions() -> None:
    assert [provider_name(one) for one in ("anthropic", "openai", "azure", "bedrock", "vertex", "mine")] == [
        *("anthropic", "openai", "azure.ai.openai", "aws.bedrock", "gcp.vertex_ai", "mine")
    ]
    assert [finish_reason(one) for one in ("end", "stop_sequence", "max_tokens", "refusal", "unknown")] == [
        *("stop", "stop", "length", "content_filter", "unknown")
    ]
    assert server_attributes("http://[::1]:8080/v1") == {"server.address": "::1", "server.port": 8080}
    assert server_attributes("http://u:p@host") == {"server.address": "host", "server.port": 80}
    for endpoint in ("", "bedrock", "command /home/me/agent --x", "http://host:99999", "ftp://host:1"):
        assert server_attributes(endpoint) == {}
