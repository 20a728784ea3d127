"""Short responses that are not watched are requested as a whole, all others as a stream."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.pipelines import green
from tests.loopback import Asked as AskedOfAnthropic
from tests.loopback import events_reply, json_reply, loopback, message_events
from tests.openai_server import Asked as AskedOfOpenAI
from tests.openai_server import OpenAIServer, chat, event, reported, response, stream
from tests.openai_server import Reply as OpenAIReply
from tests.project import Project

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-story", "OPENAI_API_KEY": "sk-story"}
USAGE = {"input_tokens": 11, "output_tokens": 7}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-test-1",
    "content": [{"type": "text", "text": "said"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": USAGE,
}
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "model": "gpt-test-2026",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "said"}}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
}


class Vendor:
    """A server that streams exactly if it is asked to; `bodies` are those of its requests."""

    def __init__(self, settings: str) -> None:
        self.settings, self.url, self.bodies = settings, "", list[Mapping[str, Any]]()

    def message(self, asked: AskedOfAnthropic):
        self.bodies.append(asked.json())
        return events_reply(message_events("said")) if asked.json().get("stream") else json_reply(MESSAGE)

    def chat(self, asked: AskedOfOpenAI) -> OpenAIReply:
        self.bodies.append(asked.body)
        return chat("said") if asked.body.get("stream") else reported(COMPLETION)

    def response(self, asked: AskedOfOpenAI) -> OpenAIReply:
        self.bodies.append(asked.body)
        if not asked.body.get("stream"):
            return response("said")
        (body,) = response("said").parts
        return stream(event({"type": "response.completed", "response": json.loads(body)}))


@contextmanager
def serving(interface: str) -> Iterator[Vendor]:
    settings = {
        "messages": "provider: anthropic, model: claude-story",
        "chat": "provider: openai, model: m, api: chat",
        "responses": "provider: openai, model: m, api: responses, background: false",
    }
    vendor = Vendor(settings[interface])
    if interface == "messages":
        with loopback(rule=vendor.message) as server:
            vendor.url = server.url
            yield vendor
        return
    with OpenAIServer(rule=vendor.chat if interface == "chat" else vendor.response) as server:
        vendor.url = server.url
        yield vendor


def story(project: Project, vendor: Vendor, max_tokens: int) -> Project:
    llm = f"{vendor.settings}, base_url: '{vendor.url}', prompt: ask.md.j2, returns: text, max_tokens: {max_tokens}"
    pipeline = f"version: 1\nname: story\nstages:\n  ask: {{outputs: [said.txt], llm: {{{llm}}}}}\n"
    return project.write({"ask.md.j2": "Say something.", "pipeline.yaml": pipeline})


@pytest.mark.stride(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    "interface",
    [
        "messages",
        pytest.param("chat", marks=pytest.mark.needs("vendors")),
        pytest.param("responses", marks=pytest.mark.needs("vendors")),
    ],
)
@pytest.mark.parametrize(
    ("max_tokens", "options", "streamed"), [(1024, (), False), (1025, (), True), (1024, ("--live",), True)]
)
def test_only_a_short_response_that_nobody_watches_is_whole(project, interface, max_tokens, options, streamed):
    with serving(interface) as vendor:
        green(story(project, vendor, max_tokens).build(*options, env=KEYS))
    assert [bool(body.get("stream")) for body in vendor.bodies] == [streamed]
    assert project.read("said.txt") == "said\n"
    (received,) = project.events_of("llm_response")
    assert received["data"]["input_tokens"] > 0
    assert received["data"]["output_tokens"] > 0


@pytest.mark.needs("vendors")
@pytest.mark.parametrize(
    "interface",
    [
        "messages",
        pytest.param("chat", marks=pytest.mark.needs("vendors")),
        pytest.param("responses", marks=pytest.mark.needs("vendors")),
    ],
)
def test_how_a_response_arrives_is_no_part_of_the_request(project, interface):
    with serving(interface) as vendor:
        green(story(project, vendor, 1024).build(env=KEYS))
        project.delete("said.txt")
        green(project.build("--live", "--replay", env=KEYS))
    assert len(vendor.bodies) == 1
    assert project.read("said.txt") == "said\n"


@pytest.mark.needs("vendors")
def test_a_stream_that_was_not_requested_is_an_error_that_may_have_been_charged(project):
    with loopback(events_reply(message_events("said"))) as server:
        vendor = Vendor("provider: anthropic, model: claude-haiku-4-5")
        vendor.url = server.url
        outcome = story(project, vendor, 1024).build(env=KEYS)
    assert outcome.code == 5
    assert "replied 200 with text/event-stream, not a message" in outcome.err
