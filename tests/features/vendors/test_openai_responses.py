"""The Responses API in the background: submitted once, its id told at once, collected; cancelled only on purpose."""

import dataclasses
import threading
from contextlib import closing

import pytest
from msgspec.structs import replace

from orch23.features.vendors.openai_client import ServerAccess, ServerConnection
from orch23.features.vendors.openai_responses import ResponsesApi, SubmittedResponses, responses_request_body
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.event import Event
from orch23.model.llm import Message, Request, Usage
from orch23.providers.connections import OpenCalls, clients_of_run
from orch23.providers.faults import NotCollectedError, TransportError
from orch23.providers.wire import FILES_SCHEMA
from tests.openai_server import OpenAIServer, Reply, error, message, page, reported, response, stream

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
SUBMIT, POLL, CANCEL = "POST /v1/responses", "GET /v1/responses/resp_1", "POST /v1/responses/resp_1/cancel"


class Way:
    """A provider with what it told, on a server."""

    def __init__(self, server: OpenAIServer, earlier: dict[str, str] | None = None) -> None:
        self.events: list[Event] = []
        self.calls = OpenCalls()
        self.submitted = SubmittedResponses()
        self.server = server
        self.provider = ResponsesApi(
            connection=ServerConnection(server=ServerAccess(server.url, "sk-test"), calls=self.calls),
            stage="code",
            emit=self.notice,
            submitted_earlier=earlier or {},
            submitted=self.submitted,
            first_poll_s=0.0,
        )
        self.asked_when_reported: list[int] = []

    def notice(self, event: Event) -> None:
        self.events.append(event)
        self.asked_when_reported.append(len(self.server.asked))

    def ask(self, request: Request = REQUEST, deadline_s: float = 20.0):
        return self.provider.complete(request, deadline_s, lambda _n: None)

    def close(self) -> None:
        """End the build, in the order in which a setting ends what is shared."""
        self.calls.close()
        self.submitted.close()


def refused(way: Way, deadline_s: float = 20.0) -> Diagnostic:
    """Return what a request fails of after it was submitted."""
    with pytest.raises(ProviderError) as caught:
        way.ask(deadline_s=deadline_s)
    return caught.value.diagnostics[0]


def fault(way: Way, deadline_s: float = 20.0) -> TransportError:
    """Return what keeps a request from being answered, as the transport sees it."""
    with pytest.raises(TransportError) as caught:
        way.ask(deadline_s=deadline_s)
    return caught.value


# ---- submitting and collecting --------------------------------------------------------------------


def test_a_response_is_submitted_reported_polled_and_read() -> None:
    heard: list[str] = []
    with OpenAIServer(
        response(status="queued"), response(status="queued"), response(status="in_progress"), response("an answer")
    ) as server:
        way = Way(server)
        answer = way.provider.complete(REQUEST, 20.0, heard.append)
        assert server.lines() == [SUBMIT, POLL, POLL, POLL]
    assert (answer.text, answer.stop, answer.model) == ("an answer", "end", "gpt-test-2026")
    assert answer.usage == Usage(input_tokens=7, output_tokens=5, cache_read_tokens=2)
    assert heard == ["an answer"]
    assert [(e.type, e.role, e.facts()) for e in way.events] == [
        (
            "call_submitted",
            "code",
            {"fingerprint": REQUEST.fingerprint(), "response_id": "resp_1", "provider": "openai"},
        )
    ]
    assert way.asked_when_reported == [1], "the id is told before the first poll"


def test_an_immediate_response_is_not_polled() -> None:
    with OpenAIServer(response("an answer")) as server:
        way = Way(server)
        assert way.ask().text == "an answer"
        assert server.lines() == [SUBMIT]
    assert way.events == []


def test_the_body_holds_what_is_set_and_nothing_else() -> None:
    assert responses_request_body(REQUEST) == {
        "model": "m",
        "input": [{"role": "user", "content": "What?"}],
        "instructions": "Be short.",
        "max_output_tokens": 50,
        "background": True,
        "store": True,
    }
    assert "instructions" not in responses_request_body(replace(REQUEST, system=""))
    more = responses_request_body(
        replace(REQUEST, params={**REQUEST.params, "effort": "low", "temperature": 0.0}, schema=FILES_SCHEMA)
    )
    assert (more["reasoning"], more["temperature"]) == ({"effort": "low"}, 0.0)
    assert more["text"] == {"format": {"type": "json_schema", "name": "answer", "schema": FILES_SCHEMA, "strict": True}}


def test_what_is_sent_is_the_body_with_the_key() -> None:
    with OpenAIServer(response("x")) as server:
        Way(server).ask()
        assert server.asked[0].body == responses_request_body(REQUEST)
        assert server.asked[0].headers["authorization"] == "Bearer sk-test"


# ---- what an earlier run submitted ----------------------------------------------------------------


def test_what_an_earlier_run_paid_for_is_collected_and_not_paid_again() -> None:
    with OpenAIServer(response(status="in_progress"), response("an answer")) as server:
        way = Way(server, {REQUEST.fingerprint(): "resp_1"})
        assert way.ask().text == "an answer"
        assert server.lines() == [POLL, POLL]
    assert way.events == []


def test_another_request_does_not_get_it() -> None:
    with OpenAIServer(response("an answer")) as server:
        Way(server, {"0" * 64: "resp_1"}).ask()
        assert server.lines() == [SUBMIT]


@pytest.mark.parametrize(
    ("reply", "warned", "usage"),
    [
        (error(404, "no such response"), "gone", None),
        (response(status="failed", error={"code": "server_error", "message": "oh"}), "failed", None),
        (response(status="cancelled", usage={"input_tokens": 7, "output_tokens": 5}), None, Usage(7, 5)),
    ],
    ids=["gone", "failed", "cancelled by ourselves"],
)
def test_a_submitted_response_that_failed_is_requested_again(
    reply: Reply, warned: str | None, usage: Usage | None
) -> None:
    with OpenAIServer(reply, response("another answer", response_id="resp_2")) as server:
        way = Way(server, {REQUEST.fingerprint(): "resp_1"})
        with pytest.raises(NotCollectedError) as lost:  # the caller first settles what it may have cost
            way.ask()
        assert lost.value.usage == usage
        assert way.ask().text == "another answer"
        assert server.lines() == [POLL, SUBMIT]
    assert [(e.type, e.level, e.facts()["code"]) for e in way.events] == (
        [("warning", "warning", "W425")] if warned else []
    )
    assert not warned or warned in way.events[0].message


def test_a_response_that_cannot_be_polled_now_is_not_paid_for_again() -> None:
    with OpenAIServer(error(401, "no such key")) as server:
        assert refused(Way(server, {REQUEST.fingerprint(): "resp_1"})).code == "E414"
        assert server.lines() == [POLL]


# ---- polls that fail ------------------------------------------------------------------------------


def test_failed_polls_do_not_fail_the_response() -> None:
    with OpenAIServer(
        response(status="queued"), error(500, "oh"), Reply(end="cut"), error(429, "slow"), response("an answer")
    ) as server:
        assert Way(server).ask().text == "an answer"
        assert server.lines() == [SUBMIT, POLL, POLL, POLL, POLL]


def test_polls_do_not_fail_for_ever_and_nothing_is_submitted_again() -> None:
    with OpenAIServer(response(status="queued"), rule=lambda _asked: error(500, "oh")) as server:
        way = Way(server)
        assert refused(way).code == "E417"
        assert server.lines() == [SUBMIT, *[POLL] * 5]
        way.close()
        assert CANCEL not in server.lines(), "it goes on at the server, for the next build to collect"


def test_faults_are_counted_only_in_a_row() -> None:
    rounds = [error(500, "oh")] * 4 + [response(status="in_progress")]
    with OpenAIServer(response(status="queued"), *rounds, *rounds, response("an answer")) as server:
        assert Way(server).ask().text == "an answer"
        assert len(server.asked) == 12


def test_a_poll_is_not_put_off_for_long() -> None:
    with OpenAIServer(response(status="queued"), error(429, "slow", retry_after="3600")) as server:
        assert refused(Way(server)).code == "E416"
        assert server.lines() == [SUBMIT, POLL]


def test_a_server_that_forgets_what_it_took_is_named() -> None:
    with OpenAIServer(response(status="queued"), error(404, "no such path")) as server:
        found = refused(Way(server))
    assert found.code == "E425"
    assert "api: chat" in (found.hint or "")


@pytest.mark.parametrize("reply", [page(), stream(b"{"), reported(["a list"])], ids=["page", "malformed", "no object"])
def test_a_poll_without_a_response_is_reported(reply: Reply) -> None:
    with OpenAIServer(response(status="queued"), reply) as server:
        assert refused(Way(server)).code == "E421"
        assert server.lines() == [SUBMIT, POLL]


# ---- submitting that fails ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "transient", "charged"),
    [
        (page(), "E421", False, True),
        (Reply(parts=(b'{"id": "resp_1", ',)), "E421", False, True),
        (Reply(parts=(b"",)), "E421", False, True),
        (reported({"id": "resp_1"}), "E421", False, True),
        (response(status="dreaming"), "E421", False, True),
        (response(status="queued", response_id=""), "E421", False, True),
        (Reply(parts=(b'{"id": "resp_1", ',), end="cut"), "E419", True, True),
        (error(429, "slow down"), "E416", True, False),
        (error(429, "no money", type="insufficient_quota"), "E427", False, False),
        (error(500, "oh"), "E417", True, True),
        (error(401, "no"), "E414", False, False),
        (error(400, "no"), "E415", False, False),
    ],
)
def test_a_reply_that_is_not_a_response_is_an_error_without_a_retry(
    reply: Reply, code: str, transient: bool, charged: bool
) -> None:
    with OpenAIServer(reply) as server:
        found = fault(Way(server))
        assert server.lines() == [SUBMIT]
    assert (found.diagnostic.code, found.transient, found.charged) == (code, transient, charged)
    assert found.diagnostic.hint


# ---- how a response ends --------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "stop"), [("max_output_tokens", "max_tokens"), ("content_filter", "refusal")])
def test_an_incomplete_response_has_a_reason(reason: str, stop: str) -> None:
    with OpenAIServer(response("half", status="incomplete", incomplete_details={"reason": reason})) as server:
        answer = Way(server).ask()
    assert (answer.text, answer.stop) == ("half", stop)
    assert answer.usage.output_tokens == 5


@pytest.mark.parametrize(("room", "stop"), [(6, "end"), (5, "max_tokens"), (4, "max_tokens")])
def test_a_response_that_used_all_tokens_was_truncated_whatever_the_server_reports(room: int, stop: str) -> None:
    with OpenAIServer(response("an answer of five tokens")) as server:
        assert Way(server).ask(replace(REQUEST, params={"max_tokens": room})).stop == stop


def test_a_model_that_is_a_file_is_recorded_without_its_directory() -> None:
    with OpenAIServer(response("x", model="/home/somebody/models/m.gguf"), response("x", model="org/m")) as server:
        assert Way(server).ask().model == "m.gguf"
        assert Way(server).ask().model == "org/m"


@pytest.mark.parametrize("details", [{"reason": "steered"}, None, {}])
def test_a_response_that_is_incomplete_for_another_reason_is_an_error(details: object) -> None:
    with OpenAIServer(response("half", status="incomplete", incomplete_details=details)) as server:
        found = fault(Way(server))
    assert (found.diagnostic.code, found.transient, found.charged) == ("E422", False, True)


def test_a_refusal_is_not_part_of_the_response() -> None:
    output = [message([{"type": "refusal", "refusal": "I can't do that."}])]
    with OpenAIServer(response(output=output)) as server:
        answer = Way(server).ask()
    assert (answer.text, answer.stop) == ("I can't do that.", "refusal")


def test_commentary_is_not_part_of_the_response() -> None:
    output = [
        message([{"type": "output_text", "text": "Let me think."}], phase="commentary"),
        message([{"type": "output_text", "text": "The "}, {"type": "output_text", "text": "answer."}]),
        {"type": "web_search_call"},
        "odd",
    ]
    with OpenAIServer(response(output=output)) as server:
        assert Way(server).ask().text == "The answer."


@pytest.mark.parametrize(("code", "transient"), [("server_error", True), ("invalid_prompt", False), (None, False)])
def test_a_failure_at_the_server_comes_in_its_own_words(code: str | None, transient: bool) -> None:
    failed = response(status="failed", error={"code": code, "message": "the model fell over"})
    with OpenAIServer(response(status="queued"), failed) as server:
        found = fault(Way(server))
        assert server.lines() == [SUBMIT, POLL]
    assert (found.diagnostic.code, found.transient, found.charged) == ("E401", transient, True)
    assert "the model fell over" in found.diagnostic.message


def test_a_cancelled_response_is_an_error() -> None:
    with OpenAIServer(response(status="queued"), response(status="cancelled")) as server:
        found = fault(Way(server))
    assert "cancelled" in found.diagnostic.message


# ---- the ends of deadlines and builds -------------------------------------------------------------


@pytest.mark.slow
def test_at_the_deadline_it_is_cancelled() -> None:
    with OpenAIServer(rule=lambda _asked: response(status="in_progress")) as server:
        way = Way(server)
        assert refused(way, deadline_s=1.0).code == "E402"
        lines = server.lines()
        way.close()
        assert server.lines() == lines, "it is cancelled once"
    assert lines[0] == SUBMIT
    assert POLL in lines
    assert lines[-1] == CANCEL


@pytest.mark.slow
def test_a_stalled_poll_ends_at_the_deadline_too() -> None:
    with OpenAIServer(response(status="queued"), Reply(end="stall"), response(status="cancelled")) as server:
        assert refused(Way(server), deadline_s=1.0).code == "E402"
        assert server.lines() == [SUBMIT, POLL, CANCEL]


@pytest.mark.slow
def test_a_stalled_submission_ends_at_the_deadline() -> None:
    with OpenAIServer(Reply(end="stall")) as server:
        found = fault(Way(server), deadline_s=1.0)
        assert server.lines() == [SUBMIT]
    assert (found.diagnostic.code, found.transient, found.charged) == ("E402", False, True)


@pytest.mark.slow
def test_a_cancellation_that_fails_hides_nothing() -> None:
    with OpenAIServer(response(status="queued"), rule=lambda _asked: error(500, "oh")) as server:
        way = Way(server)
        slow = replace(way.provider, first_poll_s=10.0)
        with pytest.raises(ProviderError) as caught:
            slow.complete(REQUEST, 1.0, lambda _n: None)
        assert caught.value.diagnostics[0].code == "E402"
        assert server.lines() == [SUBMIT, CANCEL]


@pytest.mark.parametrize("polls", ["wait", "stall"])
def test_the_end_of_the_build_cancels_open_responses(polls: str) -> None:
    caught: list[str] = []
    reported_id = threading.Event()

    def rule(asked):
        return Reply(end="stall") if polls == "stall" and asked.method == "GET" else response(status="in_progress")

    with OpenAIServer(response(status="queued"), rule=rule) as server:
        way = Way(server)
        provider = replace(
            way.provider, emit=lambda _e: reported_id.set(), first_poll_s=30 if polls == "wait" else 0.001
        )

        def work() -> None:
            try:
                provider.complete(REQUEST, 60.0, lambda _n: None)
            except ProviderError as found:
                caught.append(found.diagnostics[0].message)

        thread = threading.Thread(target=work)
        thread.start()
        server.await_line(POLL if polls == "stall" else SUBMIT)
        assert reported_id.wait(20)
        way.close()
        thread.join(20)
        assert not thread.is_alive()
        server.await_line(CANCEL)
        assert server.lines().count(CANCEL) == 1
    assert len(caught) == 1
    assert "ended" in caught[0]


def test_one_that_is_submitted_after_the_end_is_cancelled_at_once() -> None:
    cancelled: list[str] = []
    submitted = SubmittedResponses()
    submitted.close()
    submitted.add("resp_1", lambda: cancelled.append("resp_1"))
    assert cancelled == ["resp_1"]


def test_all_are_cancelled_at_once() -> None:
    together, done = threading.Barrier(2, timeout=20), []

    def cancel() -> None:
        together.wait()
        done.append(True)

    submitted = SubmittedResponses()
    submitted.add("resp_1", cancel)
    submitted.add("resp_2", cancel)
    submitted.close()
    assert done == [True, True]


def test_a_server_that_does_not_hear_of_it_holds_the_end_up_no_longer_than_a_moment() -> None:
    called, heard = [], threading.Event()

    def cancel() -> None:
        called.append(True)
        heard.wait(20)

    submitted = SubmittedResponses(cancel_timeout_s=0.01)
    submitted.add("resp_1", cancel)
    submitted.close()
    submitted.close()
    assert not heard.is_set()
    assert called == [True], "and once is enough"
    heard.set()


def test_one_that_has_ended_is_not_cancelled() -> None:
    with OpenAIServer(response(status="queued"), response("an answer")) as server:
        way = Way(server)
        way.ask()
        way.close()
        assert server.lines() == [SUBMIT, POLL]


def test_a_call_and_its_polls_use_one_connection() -> None:
    replies = [response(status="queued"), response(status="queued"), response("done")]
    with OpenAIServer(*replies) as server, closing(clients_of_run()) as clients:
        connection = ServerConnection(server=ServerAccess(server.url, "sk-test"), clients=clients)
        provider = ResponsesApi(connection=connection, stage="s", emit=lambda _event: None, first_poll_s=0.01)
        assert provider.complete(REQUEST, 20.0, lambda _text: None).text == "done"
        assert server.connections == 1


def test_a_byte_that_is_no_utf_8_is_an_error_and_no_other_character() -> None:
    reply = response("Hxllo")
    parts = [part.replace(b"Hxllo", b"H\xffllo") for part in reply.parts]
    with OpenAIServer(dataclasses.replace(reply, parts=parts)) as server:
        found = fault(Way(server))
    assert (found.diagnostic.code, found.charged) == ("E421", True)
    assert "utf-8" in found.diagnostic.message
