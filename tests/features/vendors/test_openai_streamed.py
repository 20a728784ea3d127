"""The Responses API, streamed: nothing is stored at the vendor, and only a complete response counts."""

import dataclasses
import json
from contextlib import closing
from typing import Any

import pytest

from orch23.features.vendors.openai_client import ServerAccess, ServerConnection
from orch23.features.vendors.openai_responses import StreamedResponses
from orch23.model.llm import Message, Request, Response, Usage
from orch23.providers.connections import clients_of_run
from orch23.providers.faults import TransportError
from tests.openai_server import OpenAIServer, Reply, error, event, page, response, stream

_ASK = Message("user", "Say something.")
REQUEST = Request(
    provider="openai",
    model="gpt-test",
    endpoint="e",
    system="Be brief.",
    messages=(_ASK,),
    identity=(_ASK,),
    params={"max_tokens": 100},
)


def delta(text: str) -> bytes:
    return event({"type": "response.output_text.delta", "delta": text, "sequence_number": 1})


def last(text: str = "", *, status: str = "completed", **more: Any) -> bytes:
    (body,) = response(text, status=status, **more).parts
    return event({"type": f"response.{status}", "sequence_number": 9, "response": json.loads(body)})


def ask(server: OpenAIServer, heard: list[str] | None = None) -> Response:
    with closing(clients_of_run()) as clients:
        connection = ServerConnection(server=ServerAccess(server.url, "k"), clients=clients)
        on_text = (heard if heard is not None else []).append
        return StreamedResponses(connection=connection).complete(REQUEST, 20.0, on_text)


def fault(*replies: Reply) -> TransportError:
    with OpenAIServer(*replies) as server, pytest.raises(TransportError) as found:
        ask(server)
    return found.value


def test_a_response_is_streamed_and_not_stored() -> None:
    heard: list[str] = []
    begun = event({"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}})
    with OpenAIServer(stream(begun, delta("Hel"), delta("lo."), last("Hello."))) as server:
        found = ask(server, heard)
        (asked,) = server.asked
    assert (found.text, found.stop, found.usage) == ("Hello.", "end", Usage(7, 5, 2, 0))
    assert heard == ["Hel", "lo."]
    body = asked.body
    assert (body["stream"], body["store"], "background" in body) == (True, False, False)
    assert (body["instructions"], body["max_output_tokens"]) == ("Be brief.", 100)


def test_a_response_that_was_cut_off_says_so() -> None:
    cut = last("Hel", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    with OpenAIServer(stream(delta("Hel"), cut)) as server:
        assert ask(server).stop == "max_tokens"


def test_a_whole_reply_of_a_server_that_does_not_stream_is_a_response() -> None:
    with OpenAIServer(response("Hello.")) as server:
        assert ask(server).text == "Hello."


@pytest.mark.parametrize(
    ("reply", "code", "transient"),
    [
        (stream(delta("Hel")), "E420", True),
        (stream(delta("Hel"), end="cut"), "E420", True),
        (stream(), "E420", True),
        (stream(event({"type": "error", "code": "server_error", "message": "oh"})), "E401", True),
        (stream(last(status="failed", error={"code": "server_error", "message": "oh"})), "E401", True),
        (page(), "E421", False),
        (error(400, "no such model"), "E415", False),
    ],
    ids=["no end", "cut", "empty", "error event", "failed", "page", "refused"],
)
def test_only_a_complete_response_counts(reply: Reply, code: str, transient: bool) -> None:
    found = fault(reply)
    assert (found.diagnostic.code, found.transient) == (code, transient)
    assert found.charged == (code != "E415")


def test_a_failed_response_has_its_usage() -> None:
    usage = {"input_tokens": 7, "output_tokens": 5}
    failed = last(status="failed", error={"code": "server_error", "message": "oh"}, usage=usage)
    assert fault(stream(failed)).usage == Usage(7, 5)


@pytest.mark.parametrize("reply", [stream(delta("Hxllo"), last("Hxllo")), response("Hxllo")], ids=["streamed", "whole"])
def test_a_byte_that_is_no_utf_8_is_an_error_and_no_other_character(reply: Reply) -> None:
    parts = [part.replace(b"Hxllo", b"H\xffllo") for part in reply.parts]
    found = fault(dataclasses.replace(reply, parts=parts))
    assert (found.diagnostic.code, found.transient, found.charged) == ("E421", False, True)
    assert "utf-8" in found.diagnostic.message.lower()


def test_the_tokens_that_a_cut_stream_has_reported_are_known() -> None:
    known = {"id": "resp_1", "usage": {"input_tokens": 7, "output_tokens": 0}}
    begun = event({"type": "response.in_progress", "sequence_number": 0, "response": known})
    for end in ("cut", "end"):
        cut = fault(stream(begun, delta("Hel"), end=end))
        assert (cut.usage, cut.is_final, cut.charged) == (Usage(7, 0), False, True)
    assert fault(stream(delta("Hel"), end="cut")).usage is None
