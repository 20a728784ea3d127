"""Chat Completions: what is sent, what is understood, and that nothing half is ever taken for an answer."""

import dataclasses
import threading
from contextlib import closing
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from orch23.features.vendors.openai_chat import ChatCompletions, chat_request_body
from orch23.features.vendors.openai_client import ServerAccess, ServerConnection
from orch23.model.errors import ProviderError
from orch23.model.llm import Message, Request, Usage
from orch23.providers.connections import OpenCalls, clients_of_run
from orch23.providers.faults import TransportError
from orch23.providers.wire import FILES_SCHEMA
from tests.openai_server import (
    DONE,
    OpenAIServer,
    Reply,
    chat,
    chunk,
    error,
    event,
    page,
    reported,
    stream,
    usage_chunk,
)

pytestmark = pytest.mark.slow  # the client library takes a second to load

QUESTION = (Message("user", "What?"),)
REQUEST = Request(
    provider="openai",
    model="m",
    endpoint="e",
    system="Be short.",
    messages=QUESTION,
    identity=QUESTION,
    params={"max_tokens": 50},
)


def chat_of(server: OpenAIServer, calls: OpenCalls | None = None) -> ChatCompletions:
    return ChatCompletions(
        connection=ServerConnection(server=ServerAccess(server.url, "sk-test"), calls=calls or OpenCalls())
    )


def ask(server: OpenAIServer, request: Request = REQUEST, *, deadline_s: float = 20.0):
    return chat_of(server).complete(request, deadline_s, lambda _n: None)


def fault(server: OpenAIServer, *, deadline_s: float = 20.0) -> TransportError:
    with pytest.raises(TransportError) as caught:
        ask(server, deadline_s=deadline_s)
    return caught.value


def test_a_response_has_its_usage_and_provenance() -> None:
    heard: list[str] = []
    with OpenAIServer(chat("fourteen words")) as server:
        answer = chat_of(server).complete(REQUEST, 20.0, heard.append)
    assert (answer.text, answer.stop, answer.model) == ("fourteen words", "end", "gpt-test-2026")
    assert answer.usage == Usage(input_tokens=7, output_tokens=5, cache_read_tokens=2)
    assert answer.provenance == "openai gpt-test-2026"
    assert answer.client.startswith("openai ")
    assert "".join(heard) == "fourteen words"
    assert len(heard) > 1, "it came in pieces"
    assert server.lines() == ["POST /v1/chat/completions"]
    assert server.asked[0].headers["authorization"] == "Bearer sk-test"
    assert server.asked[0].body == chat_request_body(REQUEST, "max_tokens")


@pytest.mark.parametrize("is_live", [True, False], ids=["streamed", "whole"])
def test_the_library_neither_looks_up_types_nor_builds_objects(
    monkeypatch: pytest.MonkeyPatch, *, is_live: bool
) -> None:
    """Both take longer than all else of a short call."""

    def refuse(*_: object, **_more: object) -> None:
        pytest.fail("it did")

    monkeypatch.setattr("openai._base_client.construct_type", refuse)
    monkeypatch.setattr("openai._utils._transform._transform_recursive", refuse)
    with OpenAIServer(chat("Hello.") if is_live else completion()) as server:
        assert ask(server, replace(REQUEST, is_live=is_live)).text == "Hello."
    assert server.asked[0].body.get("stream", False) is is_live


def completion(**choice: object) -> Reply:
    counted = {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}}
    said = {"role": "assistant", "content": "Hello."}
    first = {"index": 0, "message": said, "finish_reason": "stop", **choice}
    return reported({"object": "chat.completion", "model": "gpt-test-2026", "choices": [first], "usage": counted})


def test_a_whole_completion_instead_of_a_stream_is_a_response() -> None:
    with OpenAIServer(completion()) as server:
        found = ask(server)
    assert (found.text, found.stop, found.model) == ("Hello.", "end", "gpt-test-2026")
    assert found.usage == Usage(7, 5, 2, 0)


def test_a_response_that_cannot_be_used_has_its_usage() -> None:
    with OpenAIServer(completion(finish_reason="tool_calls")) as server:
        found = fault(server)
    assert (found.diagnostic.code, found.usage) == ("E422", Usage(7, 5, 2, 0))


def test_json_that_is_no_completion_is_refused() -> None:
    with OpenAIServer(reported({"hello": 1})) as server:
        assert fault(server).diagnostic.code == "E421"


def test_the_body_holds_what_is_set_and_nothing_else() -> None:
    plain = chat_request_body(REQUEST, "max_completion_tokens")
    assert plain == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What?"}],
        "max_completion_tokens": 50,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    more = replace(
        REQUEST, params={**REQUEST.params, "seed": 0, "temperature": 0.0, "effort": "low"}, schema=FILES_SCHEMA
    )
    body = chat_request_body(more, "max_tokens")
    assert (body["seed"], body["temperature"], body["reasoning_effort"]) == (0, 0.0, "low")
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": FILES_SCHEMA, "strict": True},
    }
    assert "messages" in body
    assert chat_request_body(replace(REQUEST, system=""), "max_tokens")["messages"] == [
        {"role": "user", "content": "What?"}
    ]


@pytest.mark.parametrize(("finish", "stop"), [("stop", "end"), ("length", "max_tokens"), ("content_filter", "refusal")])
def test_the_stop_reason_is_reported(finish: str, stop: str) -> None:
    with OpenAIServer(chat("some text", finish)) as server:
        assert ask(server).stop == stop


def test_a_refusal_is_not_part_of_the_response() -> None:
    refusal = stream(chunk(refusal="I can't "), chunk(refusal="do that."), chunk(finish="stop"), DONE)
    with OpenAIServer(refusal) as server:
        answer = ask(server)
    assert (answer.text, answer.stop) == ("I can't do that.", "refusal")


@pytest.mark.parametrize("finish", ["tool_calls", "function_call", "something_new"])
def test_an_unknown_stop_reason_is_an_error(finish: str) -> None:
    with OpenAIServer(chat("some text", finish)) as server:
        found = fault(server)
    assert (found.diagnostic.code, found.transient, found.charged) == ("E422", False, True)
    assert finish in found.diagnostic.message


def test_a_stream_may_end_without_its_last_mark_but_not_without_a_reason() -> None:
    with OpenAIServer(stream(chunk("all of it"), chunk(finish="stop"))) as server:
        assert ask(server).text == "all of it"


@pytest.mark.parametrize(
    "reply",
    [
        stream(chunk("half of"), DONE),
        stream(chunk("half of")),
        stream(),
        stream(chunk("half of"), end="cut"),
        stream(chunk("all of it"), chunk(finish="stop"), end="cut"),
    ],
    ids=["done without a reason", "clean end", "empty", "cut", "cut before the usage"],
)
def test_an_incomplete_response_may_have_been_charged(reply: Reply) -> None:
    with OpenAIServer(reply) as server:
        found = fault(server)
        assert len(server.asked) == 1
    assert (found.diagnostic.code, found.transient, found.charged) == ("E420", True, True)


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (page(), "text/html"),
        (reported({"choices": [{"message": {"content": "not streamed"}}]}), "application/json"),
        (stream(event(b'{"choices": [')), "JSON"),
        (stream(event(b'"a text"')), "object"),
    ],
    ids=["page", "no stream", "malformed", "no object"],
)
def test_a_reply_that_is_not_a_stream_is_reported(reply: Reply, word: str) -> None:
    with OpenAIServer(reply) as server:
        found = fault(server)
        assert len(server.asked) == 1
    assert (found.diagnostic.code, found.transient) == ("E421", False)
    assert word in found.diagnostic.message
    assert found.diagnostic.hint


def test_chunks_of_a_strange_shape_are_passed_over() -> None:
    odd = stream(
        event({"choices": None}), event({"choices": [{"delta": None}]}), event({"choices": "x", "usage": 3}),
        chunk("text"), chunk(finish="stop"), event({"choices": [], "usage": {"prompt_tokens": "many"}}), DONE,
    )  # fmt: skip
    with OpenAIServer(odd) as server:
        answer = ask(server)
    assert (answer.text, answer.usage) == ("text", Usage())


@pytest.mark.parametrize(
    ("reply", "code", "transient"),
    [
        (error(401, "no such key"), "E414", False),
        (error(403, "not yours"), "E414", False),
        (error(400, "no such model"), "E415", False),
        (error(404, "no such path"), "E415", False),
        (error(429, "slow down"), "E416", True),
        (error(429, "no money", code="insufficient_quota"), "E427", False),
        (error(409, "busy"), "E417", True),
        (error(500, "oh"), "E417", True),
        (error(503, "no"), "E417", True),
        (page(502), "E417", True),
        (Reply(status=307, headers={"location": "http://127.0.0.1:1/elsewhere"}), "E421", False),
    ],
)
def test_a_final_status_has_a_hint_and_no_retry(reply: Reply, code: str, transient: bool) -> None:
    with OpenAIServer(reply) as server:
        found = fault(server)
        assert len(server.asked) == 1
    assert (found.diagnostic.code, found.transient) == (code, transient)
    assert found.charged is (reply.status in {500, 502}), "somebody may have worked on it"
    assert found.status == reply.status
    assert str(reply.status) in found.diagnostic.message


def test_the_servers_message_is_reported() -> None:
    with OpenAIServer(error(400, "max_tokens is too large: 32000")) as server:
        assert "max_tokens is too large: 32000" in fault(server).diagnostic.message


def test_a_prompt_beyond_the_context_has_both_sizes_and_a_way_out() -> None:
    body = {"code": 400, "message": "too large", "type": "exceed_context_size_error", "n_prompt_tokens": 9412}
    with OpenAIServer(reported({"error": {**body, "n_ctx": 4096}}, 400)) as server:
        found = fault(server).diagnostic
    assert found.code == "E415"
    assert found.message.endswith("replied 400: the prompt has 9,412 tokens, and the context of the server only 4,096")
    assert "start the server with a larger context" in str(found.hint)


def test_the_reason_why_a_schema_is_refused_is_whole_and_the_hint_leaves_the_schema_out() -> None:
    reason = f"JSON schema error at #/{'properties/a/' * 40}: cannot resolve $ref"
    with OpenAIServer(error(400, reason)) as server:
        found = fault(server).diagnostic
    assert found.message.endswith(reason)
    assert "`structured_output: false`" in str(found.hint)


@pytest.mark.parametrize(("headers", "seconds"), [({"retry_after": "7"}, 7.0), ({"retry_after_ms": "250"}, 0.25)])
def test_the_wait_that_a_server_requires_is_passed_on(headers: dict[str, str], seconds: float) -> None:
    with OpenAIServer(error(429, "slow down", **headers)) as server:
        assert fault(server).retry_after_s == seconds


def test_the_wait_in_the_text_of_a_refusal_is_passed_on() -> None:
    used = "on tokens per min (TPM): Limit 30000, Used 29500, Requested 1500"
    said = (
        f"Rate limit reached for gpt-5.2 in organization org-{'x' * 24} {used}. Please try again in 1m2.5s. Visit us."
    )
    with OpenAIServer(error(429, said, code="rate_limit_exceeded")) as server:
        assert fault(server).retry_after_s == 62.5


@pytest.mark.parametrize(
    ("body", "transient"),
    [
        ({"message": "overloaded", "type": "server_error"}, True),
        ({"message": "slot unavailable", "code": 503}, True),
        ({"message": "context is full", "type": "invalid_request_error", "code": 400}, False),
    ],
)
def test_an_error_in_the_middle_of_a_stream_is_the_servers(body: dict[str, object], transient: bool) -> None:
    with OpenAIServer(stream(chunk("half"), event({"error": body}))) as server:
        found = fault(server)
    assert (found.diagnostic.code, found.transient, found.charged) == ("E401", transient, True)
    assert str(body["message"]) in found.diagnostic.message


def test_an_unreachable_server_costs_nothing_and_may_be_retried() -> None:
    with OpenAIServer() as server:
        pass
    found = fault(server)
    assert (found.diagnostic.code, found.transient, found.charged) == ("E419", True, False)
    assert server.url in found.diagnostic.message


@pytest.mark.parametrize(
    "part",
    [b"[" * 200_000 + b"]" * 200_000, b'{"id": ' + b"9" * 6_000 + b"}"],
    ids=["too deep", "a number too long"],
)
def test_json_that_python_cannot_read_is_a_fault_like_any_other(part: bytes) -> None:
    with OpenAIServer(stream(event(part))) as server:
        found = fault(server)
    assert (found.diagnostic.code, found.charged) == ("E421", True)
    with OpenAIServer(stream(chunk("half"), event(part))) as server:
        found = fault(server)
    assert (found.diagnostic.code, found.transient, found.charged) == ("E420", True, True)


def test_what_the_library_does_not_say_it_raises_is_a_fault_in_one_line() -> None:
    import openai  # noqa: PLC0415 - heavy

    with OpenAIServer() as server, patch.object(openai.OpenAI, "post", side_effect=AttributeError("gone")):
        found = fault(server)
    assert (found.diagnostic.code, found.transient, found.charged) == ("E401", False, True)
    assert "`openai` failed: AttributeError: gone" in found.diagnostic.message


def test_halves_of_a_character_in_two_chunks_are_one() -> None:
    ends = (chunk(finish="stop"), usage_chunk(), DONE)
    with OpenAIServer(stream(chunk("a\ud83d"), chunk("\ude00b"), *ends)) as server:
        assert ask(server).text == "a\U0001f600b"
    with OpenAIServer(stream(chunk("a\ud83d"), chunk("b"), *ends)) as server:
        found = fault(server)
    assert (found.diagnostic.code, found.transient, found.charged) == ("E420", True, True)


def test_a_connection_that_ends_before_a_word_may_have_cost() -> None:
    with OpenAIServer(Reply(type="text/event-stream", end="cut")) as server:
        found = fault(server)
    assert (found.transient, found.charged) == (True, True)


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("parts", [(), (chunk("half"),)], ids=["before a word", "after a word"])
def test_a_stall_ends_at_the_deadline(parts: tuple[bytes, ...]) -> None:
    with OpenAIServer(stream(*parts, end="stall")) as server:
        found = fault(server, deadline_s=1.0)
        assert len(server.asked) == 1
    assert (found.diagnostic.code, found.transient, found.charged) == ("E402", False, True)


@pytest.mark.slow
def test_one_deadline_holds_over_a_stream_that_trickles() -> None:
    with OpenAIServer(stream(*[chunk("x")] * 3, end="stall")) as server:
        found = fault(server, deadline_s=1.0)
    assert found.diagnostic.code == "E402"


def test_the_end_of_the_build_breaks_a_call_off() -> None:
    calls, caught = OpenCalls(), []
    began = threading.Event()

    def work(server: OpenAIServer) -> None:
        try:
            chat_of(server, calls).complete(REQUEST, 60.0, lambda _n: began.set())
        except ProviderError as found:
            caught.append(found.diagnostics[0])

    with OpenAIServer(stream(chunk("half"), end="stall")) as server:
        thread = threading.Thread(target=work, args=(server,))
        thread.start()
        assert began.wait(20)
        calls.close()
        thread.join(20)
        assert not thread.is_alive()
        assert len(server.asked) == 1
    assert [one.code for one in caught] == ["E401"]
    assert "ended" in caught[0].message


NONSENSE = {
    "OPENAI_API_KEY": "sk-of-the-caller",
    "OPENAI_ADMIN_KEY": "sk-admin-of-the-caller",
    "OPENAI_ORG_ID": "org-of-the-caller",
    "OPENAI_PROJECT_ID": "proj-of-the-caller",
    "OPENAI_BASE_URL": "http://127.0.0.1:1/of-the-caller",
    "OPENAI_WEBHOOK_SECRET": "whsec-of-the-caller",
    "OPENAI_CUSTOM_HEADERS": "X-Caller: of-the-caller\nAuthorization: Bearer of-the-caller",
    "HTTP_PROXY": "http://127.0.0.1:1/of-the-caller",
    "http_proxy": "http://127.0.0.1:1/of-the-caller",
    "ALL_PROXY": "http://127.0.0.1:1/of-the-caller",
}


def test_nothing_of_the_environment_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    for name, value in NONSENSE.items():
        monkeypatch.setenv(name, value)
    with OpenAIServer(chat("here")) as server:
        assert ask(server).text == "here"
        headers = server.asked[0].headers
    assert not [name for name, value in headers.items() if "of-the-caller" in value]
    assert not {"openai-organization", "openai-project", "x-caller"} & set(headers)
    assert headers["authorization"] == "Bearer sk-test"


def test_a_key_is_not_shown_where_its_server_is() -> None:
    assert "sk-secret" not in repr(ServerConnection(server=ServerAccess("http://127.0.0.1:1/v1", "sk-secret")))


def test_the_next_call_uses_the_connection_of_a_stream_that_was_read_to_its_end() -> None:
    with OpenAIServer(rule=lambda _asked: chat("done")) as server, closing(clients_of_run()) as clients:
        connection = ServerConnection(server=ServerAccess(server.url, "sk-test"), clients=clients)
        for _ in range(5):
            assert ChatCompletions(connection=connection).complete(REQUEST, 20.0, lambda _text: None).text == "done"
        assert server.connections == 1


def test_a_stream_that_stays_open_after_its_last_event_is_complete_and_ends_its_connection() -> None:
    parts = tuple(chat("done").parts)
    with OpenAIServer(stream(*parts, end="stall"), chat("again")) as server, closing(clients_of_run()) as clients:
        way = ChatCompletions(connection=ServerConnection(server=ServerAccess(server.url, "sk-test"), clients=clients))
        first = way.complete(REQUEST, 20.0, lambda _text: None)
        assert first.text == "done"
        assert first.duration_s < 10
        assert way.complete(REQUEST, 20.0, lambda _text: None).text == "again"
        assert server.connections == 2


def test_two_keys_of_one_server_never_share_a_client() -> None:
    with OpenAIServer(rule=lambda _asked: chat("done")) as server, closing(clients_of_run()) as clients:
        for key in ("one", "other"):
            connection = ServerConnection(server=ServerAccess(server.url, key), clients=clients)
            ChatCompletions(connection=connection).complete(REQUEST, 20.0, lambda _text: None)
        assert [one.headers["authorization"] for one in server.asked] == ["Bearer one", "Bearer other"]


def test_without_a_key_the_server_gets_no_authorization_and_the_error_says_which_variable() -> None:
    with OpenAIServer(rule=lambda _asked: error(401, "no key given")) as server:
        for key, hint in (
            ("", "the request had no key, since OPENAI_API_KEY is not set: set it to a key of this server"),
            ("sk-test", "check the key in OPENAI_API_KEY, and the permissions of its owner"),
        ):
            way = ChatCompletions(connection=ServerConnection(server=ServerAccess(server.url, key)))
            with pytest.raises(TransportError) as caught:
                way.complete(REQUEST, 20.0, lambda _text: None)
            assert caught.value.diagnostic.hint == hint
        assert [one.headers.get("authorization") for one in server.asked] == [None, "Bearer sk-test"]


def test_a_request_over_a_reused_connection_without_a_reply_is_not_sent_again_and_counts() -> None:
    replies = [chat("one"), Reply(end="silent"), chat("two")]
    with OpenAIServer(*replies) as server, closing(clients_of_run()) as clients:
        way = ChatCompletions(connection=ServerConnection(server=ServerAccess(server.url, "sk-test"), clients=clients))
        assert way.complete(REQUEST, 20.0, lambda _text: None).text == "one"
        with pytest.raises(TransportError, match="cannot be reached") as caught:
            way.complete(REQUEST, 20.0, lambda _text: None)
        assert [caught.value.transient, caught.value.charged] == [True, True]
        assert [server.connections, len(server.asked)] == [1, 2]


def test_a_call_sends_no_cookie_of_an_earlier_call() -> None:
    with_cookie = dataclasses.replace(chat("one"), headers={"set-cookie": "seen=1; Path=/"})
    with OpenAIServer(with_cookie, chat("two")) as server, closing(clients_of_run()) as clients:
        way = ChatCompletions(connection=ServerConnection(server=ServerAccess(server.url, "sk-test"), clients=clients))
        for _ in range(2):
            way.complete(REQUEST, 20.0, lambda _text: None)
        assert ["cookie" in one.headers for one in server.asked] == [False, False]


@pytest.mark.parametrize("is_live", [True, False])
def test_a_byte_that_is_no_utf_8_is_an_error_and_no_other_character(is_live: bool) -> None:
    body = {"choices": [{"message": {"content": "Hxllo"}, "finish_reason": "stop"}], "model": "m"}
    reply = chat("Hxllo!") if is_live else reported(body)
    parts = [part.replace(b"x", b"\xff") for part in reply.parts]
    with OpenAIServer(dataclasses.replace(reply, parts=parts)) as server, pytest.raises(TransportError) as caught:
        ask(server, replace(REQUEST, is_live=is_live))
    fault = caught.value
    assert (fault.diagnostic.code, fault.transient, fault.charged) == ("E421", False, True)
    assert "utf-8" in caught.value.diagnostic.message.lower()


def test_the_tokens_that_a_cut_stream_has_reported_are_known() -> None:
    with OpenAIServer(stream(chunk("Hel"), usage_chunk(), end="cut")) as server:
        cut = fault(server)
    assert (cut.usage, cut.is_final, cut.charged) == (Usage(7, 5, 2), False, True)
    with OpenAIServer(stream(chunk("Hel"), end="cut")) as server:
        assert fault(server).usage is None
