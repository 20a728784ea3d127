"""The provider `anthropic` with the real SDK, against a server of ours that says exactly what a test wrote."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import msgspec
import pytest
from msgspec.structs import replace

from orch23.features.vendors.anthropic_messages import (
    ANTHROPIC_KEY,
    API_VERSION,
    AnthropicMessages,
    message_arguments,
)
from orch23.features.vendors.anthropic_sdk import WarmUp, warm_up_anthropic
from orch23.model.errors import ProviderError
from orch23.model.llm import CachePolicy, Message, Request, Response, SystemUsers, Usage
from orch23.providers import registry
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.connections import ClientPool, OpenCalls
from orch23.providers.faults import TransportError
from orch23.providers.middleware import MeteredProvider
from orch23.providers.retries import RetryingProvider, no_wall
from orch23.providers.wire import FILES_SCHEMA
from orch23.steps.llm.spec import LLMStep
from tests.doubles import CONSENT, made_provider
from tests.loopback import (
    NoReply,
    Reply,
    error_reply,
    events_reply,
    json_reply,
    loopback,
    message_events,
    message_reply,
)
from tests.openai_server import STREAM, OpenAIServer
from tests.openai_server import Reply as SharedReply

pytestmark = pytest.mark.slow  # the client library takes a second to load

STEP = LLMStep(provider="anthropic", model="claude-x", prompt="p")
LONG = 30.0
MARK = {"cache_control": {"type": "ephemeral"}}
EVENTS = message_events("half ", "of it")
BEGUN = EVENTS[:4]


def request(text="hi", **more) -> Request:
    usual = {"params": {"max_tokens": 100}, "system": ""}
    return Request(
        provider="anthropic", endpoint="e", messages=(Message("user", text),), identity=(),
        **{"model": "claude-x", **usual, **more},
    )  # fmt: skip


def ask(*replies, deadline_s=LONG, this=None, heard=None, **more):
    """Return the answer, or the fault, and the server."""
    with loopback(*replies) as server:
        provider = AnthropicMessages(url=server.url, key="key-1", **more)
        found: Response | TransportError
        try:
            found = provider.complete(this or request(), deadline_s, (heard if heard is not None else []).append)
        except TransportError as fault:
            found = fault
        assert len(server.asked) == 1, "one call is one request"
    return found, server


def answered(*replies, **more) -> Response:
    found, _ = ask(*replies, **more)
    assert isinstance(found, Response), found
    return found


def failed(*replies, **more) -> TransportError:
    found, _ = ask(*replies, **more)
    assert isinstance(found, TransportError), found
    assert found.diagnostic.hint
    return found


# ---- an answer ------------------------------------------------------------------------------------


def test_a_response_has_all_its_facts() -> None:
    import anthropic  # noqa: PLC0415 - heavy

    heard: list[str] = []
    counted = {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    response = answered(message_reply("Hello, ", "world", usage=counted, output_tokens=9), heard=heard)
    assert response.text == "Hello, world"
    assert response.stop == "end"
    assert response.usage == Usage(input_tokens=131, output_tokens=9, cache_read_tokens=100, cache_write_tokens=20)
    assert (response.model, response.provenance) == ("claude-test-1", "anthropic claude-test-1")
    assert response.client == f"anthropic {anthropic.__version__}"
    assert (response.requests, response.cost, response.replayed) == (1, None, False)
    assert 0 < response.duration_s < LONG
    assert heard == ["", "Hello, ", "world"], "the first event has no text"


def test_thinking_is_not_part_of_the_text() -> None:
    content = {"type": "thinking", "thinking": "", "signature": ""}
    block = {"type": "content_block_start", "index": 1, "content_block": content}
    delta = {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "hm"}}
    thought: list = [("content_block_start", block), ("content_block_delta", delta)]
    events = message_events("text")
    assert answered(events_reply([*events[:4], *thought, *events[4:]])).text == "text"


@pytest.mark.parametrize(
    ("reason", "stop"), [("end_turn", "end"), ("stop_sequence", "stop_sequence"), ("max_tokens", "max_tokens")]
)
def test_the_reasons_to_stop(reason: str, stop: str) -> None:
    assert answered(message_reply("x", stop=reason)).stop == stop


def test_a_refusal_is_a_response_and_its_explanation_replaces_a_missing_text() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "because"}
    response = answered(message_reply(stop="refusal", stop_details=details))
    assert (response.stop, response.text) == ("refusal", "because")
    response = answered(message_reply("I will not.", stop="refusal", stop_details=details))
    assert (response.stop, response.text) == ("refusal", "I will not.")


@pytest.mark.parametrize("reason", ["tool_use", "pause_turn", "brand_new"])
def test_any_other_reason_is_refused(reason: str) -> None:
    fault = failed(message_reply("x", stop=reason))
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E422", False, True)
    assert reason in fault.diagnostic.message


def test_a_full_context_is_a_bad_request_and_not_a_truncated_response() -> None:
    fault = failed(message_reply("x", stop="model_context_window_exceeded"))
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E415", False, True)
    assert "context of claude-x is full" in fault.diagnostic.message


# ---- faults ---------------------------------------------------------------------------------------

STATUSES = [
    (error_reply(400, "invalid_request_error"), "E415", False),
    (error_reply(401, "authentication_error"), "E414", False),
    (error_reply(403, "permission_error"), "E414", False),
    (error_reply(404, "not_found_error"), "E415", False),
    (error_reply(408, "timeout_error"), "E417", True),
    (error_reply(409, "conflict"), "E417", True),
    (error_reply(413, "request_too_large"), "E415", False),
    (error_reply(422, "invalid_request_error"), "E415", False),
    (error_reply(429, "rate_limit_error"), "E416", True),
    (error_reply(500, "api_error"), "E417", True),
    (Reply(503, {"content-type": "text/html"}, (b"<h1>no</h1>",)), "E417", True),
    (error_reply(529, "overloaded_error"), "E417", True),
    (Reply(302, {"location": "http://127.0.0.1:1/"}, (b"no",)), "E421", False),
]


@pytest.mark.parametrize(("reply", "code", "transient"), STATUSES, ids=[str(r.status) for r, _, _ in STATUSES])
def test_each_error_has_its_code_and_what_was_turned_away_is_not_charged(
    reply: Reply, code: str, transient: bool
) -> None:
    fault = failed(reply)
    assert (fault.diagnostic.code, fault.transient, fault.charged) == (code, transient, reply.status == 500)
    assert fault.status == reply.status
    assert f"replied {reply.status}" in fault.diagnostic.message


def test_a_prompt_beyond_the_context_of_a_local_server_has_both_sizes() -> None:
    error = {"type": "exceed_context_size_error", "message": "too large", "n_prompt_tokens": 9412, "n_ctx": 4096}
    found = failed(json_reply({"error": error}, 400)).diagnostic
    assert found.message.endswith("replied 400: the prompt has 9,412 tokens, and the context of the server only 4,096")


def test_the_servers_words_and_its_wait_are_handed_on() -> None:
    fault = failed(error_reply(429, "rate_limit_error", "slow down", {"retry-after": "7"}))
    assert fault.diagnostic.message.endswith("replied 429: slow down")
    assert fault.retry_after_s == 7.0


WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-test-1",
    "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hello."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 11, "output_tokens": 7, "cache_read_input_tokens": 5},
}


def test_a_read_message_instead_of_a_stream_is_a_response() -> None:
    heard: list[str] = []
    found = answered(json_reply(WHOLE), heard=heard)
    assert (found.text, found.stop, found.usage) == ("Hello.", "end", Usage(16, 7, 5, 0))
    assert heard == ["Hello."]


def test_a_read_message_that_cannot_be_used_has_its_usage() -> None:
    fault = failed(json_reply({**WHOLE, "stop_reason": "tool_use"}))
    assert (fault.diagnostic.code, fault.usage) == ("E422", Usage(16, 7, 5, 0))


@pytest.mark.parametrize(
    ("reply", "charged"),
    [
        (Reply(200, {"content-type": "text/html"}, (b"<html>log in",)), False),
        (Reply(200, {}, (b"hello",)), False),
        (json_reply({"id": "msg_1", "type": "message"}), True),
        (Reply(200, {"content-type": "application/json"}, (b"{oops",)), True),
    ],
)
def test_a_reply_that_is_no_stream_is_none_of_the_api(reply: Reply, charged: bool) -> None:
    fault = failed(reply)
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E421", False, charged)
    assert b"".join(reply.pieces).decode() in fault.diagnostic.message


@pytest.mark.parametrize(
    "reply",
    [
        events_reply([]),
        events_reply(BEGUN),
        events_reply(BEGUN, whole=False),
        events_reply(message_events("x", stop=None)),
        events_reply([BEGUN[0], b"event: content_bl"], whole=False),
    ],
    ids=["empty", "ends early", "is cut", "no stop reason", "cut in an event"],
)
def test_an_incomplete_response_is_never_used(reply: Reply) -> None:
    fault = failed(reply)
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E420", True, True)


BAD_EVENTS = [
    b"event: content_block_delta\ndata: {oops\n\n",
    b"event: content_block_delta\ndata: null\n\n",
    b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lost"}}\n\n',
    ("content_block_delta", {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}}),
    ("content_block_delta", {"type": "content_block_delta", "index": 0}),
]


@pytest.mark.parametrize("event", BAD_EVENTS)
def test_a_damaged_event_is_charged_and_may_come_whole_another_time(event) -> None:
    fault = failed(events_reply([*BEGUN, event]))
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E421", True, True)


@pytest.mark.filterwarnings("ignore:Pydantic")
def test_a_message_that_ends_in_no_way_of_the_api_is_charged() -> None:
    fault = failed(events_reply(message_events("x", stop=["end_turn"])))  # type: ignore[arg-type]
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E422", False, True)


def test_a_message_without_a_model_is_a_response() -> None:
    found = answered(events_reply(message_events("x", model=None)))  # type: ignore[arg-type]
    assert (found.text, found.model, found.provenance) == ("x", "", "anthropic claude-x")


@pytest.mark.parametrize("error", [RecursionError("deep"), UnicodeError("odd"), AttributeError("gone")])
def test_what_the_library_does_not_say_it_raises_is_a_fault_in_one_line(error: Exception) -> None:
    import anthropic  # noqa: PLC0415 - heavy

    with patch.object(anthropic.Anthropic, "post", side_effect=error), pytest.raises(TransportError) as caught:
        AnthropicMessages(url="http://127.0.0.1:1", key="k").complete(request(), LONG, lambda _n: None)
    fault = caught.value
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E401", False, True)
    assert f"`anthropic` failed: {type(error).__name__}: {error}" in fault.diagnostic.message


def test_halves_of_a_character_in_two_events_are_one() -> None:
    assert answered(events_reply(message_events("a\ud83d", "\ude00b"))).text == "a\U0001f600b"
    fault = failed(events_reply(message_events("a\ud83d", "b")))
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E421", True, True)


@pytest.mark.filterwarnings("ignore:Pydantic")
@pytest.mark.parametrize(
    ("creation", "lasting"),
    [
        ({"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 15}, 15),
        ({"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0}, 0),
        ({"ephemeral_1h_input_tokens": 50}, 20),
        (None, 0),
        ("odd", 0),
    ],
)
def test_what_is_kept_for_an_hour_is_counted_apart(creation: object, lasting: int) -> None:
    usage: dict[str, Any] = {"cache_creation_input_tokens": 20, "cache_creation": creation}
    found = answered(events_reply(message_events("x", usage=usage))).usage
    assert (found.cache_write_tokens, found.cache_write_1h_tokens, found.input_tokens) == (20, lasting, 31)


@pytest.mark.filterwarnings("ignore:Pydantic")
@pytest.mark.parametrize("odd", [-70_000, 10**40, 2.5, "many", [1], {"a": 1}, None, float("inf")])
@pytest.mark.parametrize("name", ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"])
def test_a_number_of_tokens_that_is_none_gives_no_money_back(odd: object, name: str) -> None:
    usage: dict[str, Any] = {"input_tokens": 11, name: odd}
    whole = answered(events_reply(message_events("x", usage=usage))).usage
    assert whole == Usage(0 if name == "input_tokens" else 11, 7)
    assert answered(events_reply(message_events("x", output_tokens=odd))).usage.output_tokens in {0, 1}  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:Pydantic")
@pytest.mark.parametrize("stated", [{}, {"usage": None}, {"usage": {}}])
def test_a_gateway_that_reports_no_tokens_sends_a_response(stated: dict[str, Any]) -> None:
    def without(value: dict[str, Any]) -> dict[str, Any]:
        rest = {key: part for key, part in value.items() if key != "usage"}
        inner = {"message": without(rest["message"])} if "message" in rest else {}
        has_usage = value["type"] in {"message", "message_delta"}
        return {**rest, **inner, **(stated if has_usage else {})}

    events: list[Any] = [(name, without(value)) for name, value in cast("Any", message_events("message_", "delta"))]
    found = answered(events_reply(events))
    assert (found.text, found.usage) == ("message_delta", Usage(0, 0))
    whole = answered(json_reply(without(dict(WHOLE))))
    assert (whole.text, whole.usage) == ("Hello.", Usage(0, 0))


def test_events_without_a_beginning_are_none_of_the_api() -> None:
    assert failed(events_reply(EVENTS[3:])).diagnostic.code == "E421"


@pytest.mark.parametrize(
    ("kind", "code", "transient"),
    [
        ("overloaded_error", "E417", True),
        ("api_error", "E417", True),
        ("rate_limit_error", "E416", True),
        ("invalid_request_error", "E415", False),
        ("brand_new_error", "E417", True),
    ],
)
def test_an_error_in_the_middle_of_a_stream_counts_as_charged(kind: str, code: str, transient: bool) -> None:
    event = ("error", {"type": "error", "error": {"type": kind, "message": "so sorry"}})
    fault = failed(events_reply([*BEGUN, event]))
    assert (fault.diagnostic.code, fault.transient, fault.charged) == (code, transient, True)
    assert "so sorry" in fault.diagnostic.message


def test_a_server_that_accepts_a_request_and_sends_no_reply_may_have_charged_it() -> None:
    fault = failed(NoReply())
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E419", True, True)


def test_a_server_that_is_not_there_is_not_reached() -> None:
    with loopback() as server:
        url = server.url
    with pytest.raises(TransportError) as caught:
        AnthropicMessages(url=url, key="k").complete(request(), LONG, lambda _n: None)
    fault = caught.value
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E419", True, False)
    assert url in fault.diagnostic.message


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("reply", [NoReply(hold=True), events_reply(BEGUN, hold=True)], ids=["first", "middle"])
def test_a_stall_is_cut_long_before_the_deadline(reply) -> None:
    fault = failed(reply, stall_s=1.0)
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E420", True, True)
    assert "nothing was received for 1 s" in fault.diagnostic.message


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("reply", [NoReply(hold=True), events_reply(BEGUN, hold=True)], ids=["first", "middle"])
def test_the_deadline_ends_a_call_that_waits(reply) -> None:
    import anthropic  # noqa: F401, PLC0415 - heavy: it would use up the deadline

    fault = failed(reply, deadline_s=1.0)
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E402", False, True)


def test_the_deadline_holds_over_a_stream_that_never_rests() -> None:
    ticks = iter(range(1000))
    fault = failed(events_reply(message_events(*"abcdefgh")), deadline_s=8.0, clock=lambda: float(next(ticks)))
    assert fault.diagnostic.code == "E402"


def test_a_whole_message_that_cannot_be_used_is_not_too_late() -> None:
    with loopback(json_reply({**WHOLE, "stop_reason": "tool_use"})) as server:
        provider = AnthropicMessages(url=server.url, key="k", clock=lambda: 9.0 if server.asked else 0.0)
        with pytest.raises(TransportError, match="tool_use") as caught:
            provider.complete(request(), 8.0, lambda _text: None)
    assert caught.value.diagnostic.code != "E402"


@pytest.mark.parametrize("reply", [NoReply(hold=True), events_reply(BEGUN, hold=True)], ids=["first", "middle"])
def test_the_end_of_the_build_ends_a_call_that_waits(reply) -> None:
    calls = OpenCalls()
    with loopback(reply) as server:
        provider = AnthropicMessages(url=server.url, key="k", calls=calls)

        def end() -> None:
            server.arrived.wait(LONG)
            calls.close()

        ender = threading.Thread(target=end)
        ender.start()
        with pytest.raises(ProviderError, match="build ended"):
            provider.complete(request(), LONG, lambda _n: None)
        ender.join()


# ---- what is sent ---------------------------------------------------------------------------------


def sent(this: Request, **more):
    _, server = ask(message_reply("x"), this=this, **more)
    return server.asked[0]


def test_a_plain_request_is_sent_plainly() -> None:
    asked = sent(request())
    assert (asked.method, asked.path) == ("POST", "/v1/messages")
    assert asked.json() == {
        "model": "claude-x",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
    }
    assert asked.headers["authorization"] == "Bearer key-1"
    assert asked.headers["anthropic-version"] == API_VERSION


def test_effort_thinking_schema_and_system_are_sent_where_they_are_set() -> None:
    params = {"max_tokens": 100, "effort": "low", "thinking": {"type": "enabled", "budget_tokens": 1024}}
    found = sent(request(params=params, schema=FILES_SCHEMA, system="be brief")).json()
    assert found["output_config"]["effort"] == "low"
    assert found["output_config"]["format"]["type"] == "json_schema"
    assert set(found["output_config"]["format"]["schema"]["properties"]) == {"summary", "writes", "deletes", "error"}
    assert found["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert found["system"] == "be brief"


def test_the_environment_does_not_change_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with loopback() as other:
        for name, value in {
            "ANTHROPIC_API_KEY": "other-key",
            "ANTHROPIC_AUTH_TOKEN": "other-token",
            "ANTHROPIC_BASE_URL": other.url,
            "ANTHROPIC_CUSTOM_HEADERS": "Host: evil\nX-Other: 1\nAuthorization: Bearer evil\nanthropic-version: 1",
            "ANTHROPIC_PROFILE": "other",
            "ANTHROPIC_CONFIG_DIR": str(tmp_path),
            "HTTP_PROXY": other.url,
            "http_proxy": other.url,
            "ALL_PROXY": other.url,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        asked = sent(request())
        assert other.asked == []
    assert asked.headers["authorization"] == "Bearer key-1"
    assert asked.headers["anthropic-version"] == API_VERSION
    assert "x-other" not in asked.headers
    assert "evil" not in asked.headers["host"]


# ---- prompt caching -------------------------------------------------------------------------------

CACHE = CachePolicy()
LISTED = "claude-sonnet-5"  # 1,024 tokens at least
STABLE = "context\n" * 512
HALF = "context\n" * 256


def marked(this: Request, cache: CachePolicy | None = CACHE) -> dict[str, Any]:
    return message_arguments(replace(this, model=LISTED, cache=cache))


def content(this: Request, cache: CachePolicy | None = CACHE) -> Any:
    return marked(this, cache)["messages"][0]["content"]


def block(text: str, mark: Mapping[str, Any] = MARK) -> dict[str, Any]:
    return {"type": "text", "text": text, **mark}


def test_the_stable_part_is_a_block_of_its_own_with_a_mark() -> None:
    this = request(STABLE + "It failed.", stable=len(STABLE), system="s", model=LISTED, cache=CACHE)
    found = sent(this).json()
    assert found["messages"][0]["content"] == [block(STABLE), {"type": "text", "text": "It failed."}]
    assert found["system"] == "s"


def test_a_first_attempt_marks_its_whole_prompt_so_that_the_next_one_finds_it() -> None:
    assert content(request(STABLE, stable=len(STABLE))) == [block(STABLE)]


@pytest.mark.parametrize(
    ("text", "stable"),
    [(STABLE, 0), (STABLE[8:] + "x", len(STABLE) - 8), ("\n" * 5000 + "x", 5000)],
    ids=["nothing shared", "shorter than the model's minimum", "a blank beginning"],
)
def test_where_a_mark_has_no_use_the_text_is_sent_as_it_is(text: str, stable: int) -> None:
    assert content(request(text, stable=stable)) == text


def test_a_blank_rest_is_in_the_block_of_the_mark() -> None:
    assert content(request(STABLE + " \n", stable=len(STABLE))) == [block(STABLE + " \n")]


def test_the_parts_that_items_and_attempts_share_have_a_mark_each() -> None:
    text = STABLE + "item\n" + "It failed."
    this = request(text, family=len(STABLE), stable=len(STABLE) + 5)
    assert content(this) == [block(STABLE), block("item\n"), {"type": "text", "text": "It failed."}]
    assert content(this, CachePolicy(share=False)) == [block(STABLE + "item\n"), {"type": "text", "text": "It failed."}]
    alike = request(STABLE + "x", family=len(STABLE), stable=len(STABLE))
    assert content(alike) == [block(STABLE), {"type": "text", "text": "x"}]


def test_a_prefix_is_counted_from_the_beginning_of_the_request() -> None:
    this = request(HALF + "x", system=HALF, stable=len(HALF), system_users="stages")
    assert content(this) == [block(HALF), {"type": "text", "text": "x"}]
    assert marked(this)["system"] == HALF
    assert content(replace(this, system="")) == HALF + "x"


@pytest.mark.parametrize(
    ("users", "cache", "is_marked"),
    [
        ("stages", CachePolicy(), True),
        ("stages", CachePolicy(share=False), False),
        ("attempts", CachePolicy(), True),
        ("attempts", CachePolicy(share=False), True),
        ("", CachePolicy(), False),
        ("stages", None, False),
    ],
)
def test_the_system_text_is_marked_if_it_is_sent_again(
    users: SystemUsers, cache: CachePolicy | None, is_marked: bool
) -> None:
    this = request(system=STABLE, system_users=users)
    assert marked(this, cache)["system"] == ([block(STABLE)] if is_marked else STABLE)


def test_a_system_text_under_the_minimum_and_a_blank_one_are_not_marked() -> None:
    assert marked(request(system="short", system_users="stages"))["system"] == "short"
    blank = " " * 5000
    assert marked(request(system=blank, system_users="stages"))["system"] == blank


def test_the_last_turn_of_a_conversation_is_marked() -> None:
    turns = (Message("user", STABLE), Message("assistant", "no"), Message("user", "again"))
    said = [one["content"] for one in marked(replace(request(), messages=turns))["messages"]]
    assert said == [STABLE, "no", [block("again")]]
    short = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    assert [one["content"] for one in marked(replace(request(), messages=short))["messages"]] == ["a", "b", "c"]


def test_there_are_at_most_four_marks() -> None:
    turns = (Message("user", STABLE + "item\nrest"), Message("assistant", "no"), Message("user", "again"))
    this = request(system=STABLE, system_users="stages", family=len(STABLE), stable=len(STABLE) + 5)
    assert json.dumps(marked(replace(this, messages=turns))).count("cache_control") == 4


def test_an_hour_is_asked_for_in_each_mark() -> None:
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    this = request(STABLE, system=STABLE, system_users="attempts", stable=len(STABLE))
    found = marked(this, CachePolicy(ttl="1h"))
    assert (found["system"], found["messages"][0]["content"]) == ([block(STABLE, hour)], [block(STABLE, hour)])


def test_a_mark_does_not_change_the_text() -> None:
    text = STABLE + "item\n" + "It failed."
    found = content(request(text, family=len(STABLE), stable=len(STABLE) + 5))
    assert "".join(one["text"] for one in found) == text


def test_a_mark_is_no_part_of_the_fingerprint() -> None:
    this = request(STABLE, stable=len(STABLE), family=8, system_users="stages", cache=CACHE)
    assert this.fingerprint() == request(STABLE).fingerprint()


# ---- what is known without asking -----------------------------------------------------------------


def step(**more) -> LLMStep:
    return msgspec.structs.replace(STEP, **more)


def problems(**more) -> list[str]:
    found = registry.step_errors(step(**more))
    assert all(d.code == "E409" and d.hint for d in found)
    return [d.message for d in found]


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max", None])
def test_the_efforts_of_the_api(effort) -> None:
    assert problems(effort=effort) == []


def test_the_efforts_are_those_of_the_sdk() -> None:
    from typing import get_args, get_type_hints  # noqa: PLC0415 - beside the heavy one

    from anthropic.types import OutputConfigParam  # noqa: PLC0415 - heavy

    from orch23.features.vendors.anthropic_messages import EFFORTS  # noqa: PLC0415 - likewise

    literal = get_args(get_type_hints(OutputConfigParam)["effort"])[0]
    assert set(get_args(literal)) == set(EFFORTS)


@pytest.mark.parametrize("thinking", ["adaptive", "between_tools", "disabled", "1024", "31999", None])
def test_the_ways_of_thinking(thinking) -> None:
    assert problems(thinking=thinking) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"effort": "hgih"}, "no effort `hgih`"),
        ({"thinking": "enabled"}, "not a mode of the provider `anthropic`"),
        ({"thinking": "1023"}, "under 1024 tokens"),
        ({"thinking": "32000"}, "not under `max_tokens: 32000`"),
        ({"base_url": "https://me:secret@x"}, "user name or a password"),
        ({"base_url": "https://x?key=secret"}, "a query"),
        ({"base_url": "x.example"}, "http"),
        ({"temperature": 0.5}, "`temperature`"),
        ({"seed": 1}, "`seed`"),
        ({"api": "chat"}, "`api`"),
    ],
)
def test_parameters_that_the_api_would_refuse_are_errors(more, said: str) -> None:
    (message,) = problems(**more)
    assert said in message
    assert "secret" not in message


def test_parameters_are_what_is_set() -> None:
    assert registry.parameters_of(STEP) == {"max_tokens": 32000}
    assert registry.parameters_of(step(effort="high", thinking="adaptive")) == {
        "max_tokens": 32000,
        "effort": "high",
        "thinking": {"type": "adaptive"},
    }
    assert registry.parameters_of(step(thinking="2048"))["thinking"] == {"type": "enabled", "budget_tokens": 2048}


@pytest.mark.parametrize(
    ("base_url", "endpoint", "remote"),
    [
        (None, "https://api.anthropic.com", True),
        ("HTTPS://API.Anthropic.com:443/", "https://api.anthropic.com", True),
        ("http://localhost:8000/Anthropic/", "http://localhost:8000/Anthropic", False),
    ],
)
def test_the_endpoint_has_one_form(base_url, endpoint: str, remote: bool) -> None:
    one = step(base_url=base_url)
    assert registry.endpoint_of(one) == endpoint
    assert registry.ADAPTERS["anthropic"](one).is_remote is remote
    assert registry.endpoint_of(step(base_url=base_url, endpoint_alias="claude")) == "claude"
    assert registry.adapter_for(one).api == f"messages {API_VERSION}"


@pytest.mark.parametrize(
    "environ",
    [{}, {ANTHROPIC_KEY: ""}, {ANTHROPIC_KEY: " \n"}, {ANTHROPIC_KEY: "sk two"}, {ANTHROPIC_KEY: "sk-\u00e9"}],
)
def test_an_invalid_key_is_reported_before_any_call(environ) -> None:
    (diagnostic,) = registry.readiness_errors(STEP, environ)
    assert diagnostic.code == "E412"
    assert ANTHROPIC_KEY in diagnostic.message
    assert registry.step_errors(STEP, environ) == ()


def test_a_key_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.readiness_errors(STEP, {ANTHROPIC_KEY: " sk-1\n"}) == ()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert [d.code for d in registry.readiness_errors(STEP, {})] == ["E412", "E413"]


def setting(environ) -> ProviderContext:
    return ProviderContext(
        environ=environ, root=Path(), read_answers=lambda _file: {}, notice=lambda _event: None, **CONSENT
    )


def test_the_key_is_taken_from_the_setting_and_shown_nowhere() -> None:
    provider = made_provider(
        setting({ANTHROPIC_KEY: " sk-1\n"}), CallContext(step(base_url="http://LOCALHOST:1/"), "code@a")
    )
    assert isinstance(provider, AnthropicMessages)
    assert (provider.key, provider.url) == ("sk-1", "http://localhost:1")
    assert "sk-1" not in repr(provider)


def test_closing_the_setting_closes_the_calls_of_all_its_providers() -> None:
    one = setting({ANTHROPIC_KEY: "k"})
    providers = [made_provider(one, CallContext(STEP, name)) for name in ("a", "b")]
    one.close()
    for provider in providers:
        with pytest.raises(ProviderError, match="build ended"):
            provider.complete(request(), LONG, lambda _n: None)


def stream_of_message(_asked: object = None) -> SharedReply:
    parts = tuple(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in message_events("done"))
    return SharedReply(type=STREAM, parts=parts)


def test_forty_calls_of_eight_threads_open_at_most_eight_connections() -> None:
    run = setting({ANTHROPIC_KEY: "k"})
    with OpenAIServer(rule=stream_of_message) as server, ThreadPoolExecutor(8) as threads:
        step = msgspec.structs.replace(STEP, base_url=server.url)

        def call(number: int) -> str:
            provider = made_provider(run, CallContext(step, f"stage-{number}"))
            return provider.complete(request(f"question {number}"), LONG, lambda _n: None).text

        assert list(threads.map(call, range(40))) == ["done"] * 40
        run.close()
    assert len(server.asked) == 40
    assert server.connections <= 8


@pytest.mark.parametrize("reply", [SharedReply(status=529), SharedReply(type=STREAM, end="cut")], ids=["status", "cut"])
def test_a_call_after_a_failed_one_opens_a_connection(reply: SharedReply) -> None:
    with OpenAIServer(reply, rule=stream_of_message) as server:
        run = setting({ANTHROPIC_KEY: "k"})
        provider = made_provider(run, CallContext(msgspec.structs.replace(STEP, base_url=server.url), "s"))
        with pytest.raises(TransportError):
            provider.complete(request(), LONG, lambda _n: None)
        assert provider.complete(request(), LONG, lambda _n: None).text == "done"
        assert server.connections == 2
        run.close()


def test_a_call_after_the_server_closed_the_connection_opens_another() -> None:
    run = setting({ANTHROPIC_KEY: "k"})
    silent = {"content-type": STREAM, "connection": "keep-alive"}  # it closes the connection all the same
    replies = [dataclasses.replace(message_reply(text), headers=silent) for text in ("one", "two")]
    with loopback(*replies) as server:
        provider = made_provider(run, CallContext(msgspec.structs.replace(STEP, base_url=server.url), "s"))
        assert provider.complete(request(), LONG, lambda _n: None).text == "one"
        server.wait_for(lambda: server.ended == 1)
        assert provider.complete(request(), LONG, lambda _n: None).text == "two"
        run.close()


class CountingMeter:
    """A budget without limits that notes what happens to each reservation."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def reserve(self, _stage: str, _request: Request) -> None:
        self.entries.append("reserve")

    def deadline_s(self, _stage: str, asked_s: float) -> float:
        return asked_s

    def with_cost(self, _request: Request, response: Response) -> Response:
        return response

    def settle(self, _stage: str, _response: Response) -> None:
        self.entries.append("settle")

    def release(self, _stage: str) -> None:
        self.entries.append("release")

    def might_fit(self, _stage: str, _request: Request) -> bool:
        return True

    def settle_unusable(self, _stage: str, usage: Usage, *, is_final: bool = True) -> None:
        self.entries.append(f"{'unusable' if is_final else 'cut after'} {usage.total}")

    def forfeit(self, _stage: str) -> None:
        self.entries.append("forfeit")


def test_a_request_over_a_reused_connection_without_a_reply_is_counted_and_repeated_as_any_other() -> None:
    """The server may have read the request before it closed the connection, and may bill it."""
    run = setting({ANTHROPIC_KEY: "k"})
    meter = CountingMeter()
    waits: list[float] = []
    with OpenAIServer(stream_of_message(), SharedReply(end="silent"), rule=stream_of_message) as server:
        adapter = made_provider(run, CallContext(msgspec.structs.replace(STEP, base_url=server.url), "s"))
        metered = MeteredProvider(inner=adapter, stage="s", meter=meter)
        provider = RetryingProvider(
            inner=metered, stage="s", emit=lambda _e: None, sleep=waits.append, random=lambda: 0.5
        )
        assert provider.complete(request(), LONG, lambda _n: None).requests == 1
        assert provider.complete(request(), LONG, lambda _n: None).requests == 2
        run.close()
    assert [server.connections, len(server.asked)] == [2, 3]
    assert meter.entries == ["reserve", "reserve", "forfeit", "reserve"]
    assert waits == [1.0]


def test_two_keys_never_share_a_client() -> None:
    shared = ClientPool(max_idle_s=LONG)
    with OpenAIServer(rule=stream_of_message) as server:
        for key in ("one", "other", "one"):
            provider = AnthropicMessages(url=server.url, key=key, clients=shared)
            assert provider.complete(request(), LONG, lambda _n: None).text == "done"
        shared.close()
    assert [one.headers["authorization"] for one in server.asked] == [
        f"Bearer {key}" for key in ("one", "other", "one")
    ]
    assert server.connections == 2


def test_a_call_sends_no_cookie_of_an_earlier_call() -> None:
    run = setting({ANTHROPIC_KEY: "k"})
    with_cookie = dataclasses.replace(stream_of_message(), headers={"set-cookie": "seen=1; Path=/"})
    with OpenAIServer(with_cookie, rule=stream_of_message) as server:
        provider = made_provider(run, CallContext(msgspec.structs.replace(STEP, base_url=server.url), "s"))
        for _ in range(2):
            provider.complete(request(), LONG, lambda _n: None)
        run.close()
    assert ["cookie" in one.headers for one in server.asked] == [False, False]
    assert server.connections == 1


def test_the_providers_of_a_run_share_one_warm_up_and_those_of_another_run_do_not() -> None:
    one, other = setting({ANTHROPIC_KEY: "k"}), setting({ANTHROPIC_KEY: "k"})
    shared = {id(made_provider(one, CallContext(STEP, name)).warm_up) for name in ("a", "b")}  # type: ignore[attr-defined]
    assert len(shared) == 1
    assert id(made_provider(other, CallContext(STEP, "a")).warm_up) not in shared  # type: ignore[attr-defined]


def test_a_call_starts_the_warm_up() -> None:
    begun: list[object] = []

    class Watched(WarmUp):
        def start_once(self, act) -> None:
            begun.append(act)

    provider = AnthropicMessages(url="http://127.0.0.1:9", key="k", warm_up=Watched())
    with pytest.raises(TransportError):
        provider.complete(request(), LONG, lambda _n: None)
    assert begun == [warm_up_anthropic]


def test_nothing_heavy_is_imported_before_a_call() -> None:
    script = (
        "import sys; from orch23.providers import registry; from orch23.steps.llm.spec import LLMStep; "
        "step = LLMStep(provider='anthropic', model='m', prompt='p', base_url='http://x', effort='low'); "
        "registry.step_errors(step), registry.readiness_errors(step, {}); "
        "registry.parameters_of(step), registry.endpoint_of(step); "
        "registry.adapter_for(step).wire(None); "
        "print([m for m in ('anthropic', 'openai', 'httpx2', 'pydantic', 'genai_prices') if m in sys.modules])"
    )
    environ = {"PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- with the transport, against a server that grades its clients ----------------------------------


def over_llmock(llmock, *, delays_s=(0.06, 0.24), deadline_s=LONG, stall_s=LONG, wall=no_wall):
    events: list = []
    provider = AnthropicMessages(url=llmock.base_url("anthropic"), key="k", stall_s=stall_s)
    transport = RetryingProvider(
        inner=provider, stage="code", emit=events.append, delays_s=delays_s, wall=wall, random=lambda: 0.5
    )
    found: Response | str
    try:
        found = transport.complete(request(), deadline_s, lambda _n: None)
    except ProviderError as error:
        found = error.diagnostics[0].code
    assert [one.type for one in events] == ["http_retry"] * max(0, len(llmock.requests) - 1)
    return found


SUCCESSES = {
    "429 and 529 in order": (lambda m: m.fail(429, provider="anthropic").fail(529, provider="anthropic"), 3),
    "500": (lambda m: m.fail(500), 2),
    "a small retry-after": (lambda m: m.rate_limit(times=2, retry_after=0.2), 3),
    "disconnect": (lambda m: m.disconnect(after_chunks=2), 2),
    "truncate": (lambda m: m.truncate(after_chunks=3), 2),
    "corrupt": (lambda m: m.corrupt(after_chunks=3), 2),
    "slow first token": (lambda m: m.slow_first_token(0.2), 1),
}


@pytest.mark.stride(7)
@pytest.mark.slow
@pytest.mark.parametrize("name", SUCCESSES)
def test_llmock_finds_no_fault_with_a_client_that_recovers(llmock, name: str) -> None:
    prepare, requests = SUCCESSES[name]
    prepare(llmock)
    response = over_llmock(llmock)
    assert isinstance(response, Response), response
    assert (response.stop, response.requests, len(llmock.requests)) == ("end", requests, requests)
    # Its warning on a corrupt chunk rests on who was faster: a short stream may be sent whole before we can hang up.
    llmock.assert_resilient(strict=name != "corrupt")


FAILURES = {
    "400": (lambda m: m.fail(400), "E415", 1),
    "401": (lambda m: m.fail(401), "E414", 1),
    "404": (lambda m: m.fail(404), "E415", 1),
    "500 for good": (lambda m: m.fail(500, times=None), "E417", 3),
    "cut for good": (lambda m: m.disconnect(times=None), "E420", 3),
}


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", FAILURES)
def test_llmock_finds_no_fault_with_a_client_that_gives_up(llmock, name: str) -> None:
    prepare, code, requests = FAILURES[name]
    prepare(llmock)
    assert over_llmock(llmock) == code
    assert len(llmock.requests) == requests
    llmock.assert_resilient(strict=True)


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 529])
def test_llmock_a_refusal_for_good_is_waited_for_until_the_wall_time_is_over(llmock, status: int) -> None:
    llmock.fail(status, times=None)
    # It requires a second each time: after the second refusal less is left. Not by the clock: the first call of a
    # process also loads the library.
    assert over_llmock(llmock, wall=lambda: (LONG if len(llmock.requests) < 2 else 0.5, True)) == "E418"
    assert len(llmock.requests) == 2


@pytest.mark.slow
def test_llmock_a_huge_retry_after_stops_at_once(llmock) -> None:
    llmock.rate_limit(retry_after=3600)
    assert over_llmock(llmock) == "E418"
    assert len(llmock.requests) == 1
    llmock.assert_resilient()  # strict wants a second try, which would have to sleep for an hour


@pytest.mark.slow
def test_llmock_a_stall_is_not_sat_through(llmock) -> None:
    llmock.stall(after_chunks=2, seconds=20)
    response = over_llmock(llmock, stall_s=0.3)
    assert isinstance(response, Response)
    assert response.requests == 2


@pytest.mark.thorough  # five seconds of waiting; test_retries.py pins these delays with a clock of its own
def test_llmock_with_the_real_delays(llmock) -> None:
    llmock.disconnect(after_chunks=2, times=2)
    began = time.monotonic()
    response = over_llmock(llmock, delays_s=(1.0, 4.0))
    assert isinstance(response, Response)
    assert 5.0 <= time.monotonic() - began < LONG
    llmock.assert_resilient(strict=True)


# ---- damaged text, and what was known of a response that was cut --------------------------------------

BODY = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-1", "stop_reason": "end_turn",
    "stop_sequence": None, "content": [{"type": "text", "text": "Hxllo"}],
    "usage": {"input_tokens": 11, "output_tokens": 1},
}  # fmt: skip


@pytest.mark.parametrize("reply", [message_reply("Hxllo"), json_reply(BODY)], ids=["streamed", "whole"])
def test_a_byte_that_is_no_utf_8_is_an_error_and_no_other_character(reply: Reply) -> None:
    this = request(is_live=reply.headers["content-type"] == STREAM)
    damaged = dataclasses.replace(reply, pieces=[one.replace(b"Hxllo", b"H\xffllo") for one in reply.pieces])
    assert answered(reply, this=this).text == "Hxllo"
    fault = failed(damaged, this=this)
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E421", False, True)
    assert "utf-8" in fault.diagnostic.message.lower()


def test_a_character_in_two_pieces_is_one() -> None:
    events = [
        one
        if isinstance(one, bytes)
        else f"event: {one[0]}\ndata: {json.dumps(one[1], ensure_ascii=False)}\n\n".encode()
        for one in message_events("Gr\u00fc\u00dfe")
    ]
    pieces = [bytes([byte]) for byte in b"".join(events)]
    assert answered(dataclasses.replace(message_reply("x"), pieces=pieces)).text == "Gr\u00fc\u00dfe"


@pytest.mark.parametrize(
    ("count", "whole"),
    [(n, whole) for n in range(1, len(EVENTS)) for whole in (False, True) if n < len(EVENTS) - 1 or not whole],
)
def test_the_tokens_that_a_cut_stream_has_reported_are_known(count: int, whole: bool) -> None:
    fault = failed(events_reply(EVENTS[:count], whole=whole))
    assert fault.charged
    if fault.usage is not None and fault.is_final:  # it has a stop reason
        return
    assert fault.usage == Usage(11, 7 if count == len(EVENTS) - 1 else 1)
    assert not fault.is_final


def test_a_stream_that_is_cut_before_its_first_event_has_no_known_tokens() -> None:
    assert failed(events_reply([], whole=False)).usage is None
