"""Tokens are counted by the vendor where the bound without a tokenizer would refuse a request, and nowhere else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import Asked, Loopback, error_reply, json_reply, loopback, message_reply
from tests.openai_server import Asked as AskedOfOpenAI
from tests.openai_server import OpenAIServer, reported, response
from tests.openai_server import Reply as OpenAIReply
from tests.project import Project

pytestmark = pytest.mark.needs("vendors")

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-story", "OPENAI_API_KEY": "sk-story"}
# 40,000 bytes are at most 40,000 tokens, and as the vendor counts them 10,000: $1.00 and $0.25 of input.
TEXT = "a line of the specification that is 40 c" * 1_000
PIPELINE = """\
version: 1
name: story
prices: {MODEL: {input: 25, output: 50}}
stop_conditions: {max_cost_usd: LIMIT}
stages:
  ask:
    inputs: [spec.md]
    outputs: [said.txt]
    llm: {provider: PROVIDER, model: MODEL, base_url: "URL", prompt: ask.md.j2, returns: text, max_tokens: 2000 MORE}
"""
COUNT = "POST /v1/messages/count_tokens"
ASK = "POST /v1/messages"


def story(
    root: Path, url: str, limit: str = "0.5", provider: str = "anthropic", more: str = "", text: str = TEXT
) -> Project:
    model = "claude-story" if provider == "anthropic" else "gpt-story"
    pipeline = PIPELINE.replace("URL", url).replace("LIMIT", limit).replace("PROVIDER", provider)
    pipeline = pipeline.replace("MODEL", model).replace(" MORE", more)
    return Project(root).write({"pipeline.yaml": pipeline, "ask.md.j2": "{{ inputs[0].text }}", "spec.md": text})


def counting(count: int) -> Any:
    def rule(asked: Asked) -> Any:
        return json_reply({"input_tokens": count}) if asked.path.endswith("count_tokens") else message_reply("said")

    return rule


def lines(server: Loopback) -> list[str]:
    return [f"POST {asked.path}" for asked in server.asked]


def test_a_request_that_the_bound_refuses_and_the_count_allows_is_sent(tmp_path: Path) -> None:
    with loopback(rule=counting(10_000)) as server:
        project = story(tmp_path / "p", server.url)
        outcome = project.build(env=KEYS)
        assert outcome.code == 0, outcome.err
        assert lines(server) == [COUNT, ASK]
        counted, asked = (one.json() for one in server.asked)
        assert counted["messages"] == asked["messages"]
        assert "max_tokens" not in counted
    (reserved,) = project.events_of("call_reserved")
    # 10,000 tokens and two per cent to spare at $25 a million, 2,000 at $50.
    assert reserved["data"]["cost"] == "0.355"
    assert len(project.events_of("llm_request")) == 1


def test_a_request_that_fits_is_not_counted(tmp_path: Path) -> None:
    with loopback(rule=counting(10_000)) as server:
        assert story(tmp_path / "p", server.url, limit="5").build(env=KEYS).code == 0
        assert lines(server) == [ASK]


def test_a_request_that_is_too_dear_as_counted_is_refused(tmp_path: Path) -> None:
    with loopback(rule=counting(30_000)) as server:
        outcome = story(tmp_path / "p", server.url).build(env=KEYS)
        assert outcome.code == 4
        assert "[E502]" in outcome.err
        assert lines(server) == [COUNT]


@pytest.mark.parametrize("options", [("--offline",), ("--replay",)])
def test_nothing_is_counted_without_calls(tmp_path: Path, options: tuple[str, ...]) -> None:
    with loopback(rule=counting(10_000)) as server:
        project = story(tmp_path / "p", server.url)
        assert project.run("plan", env=KEYS).code in (0, 1)
        assert project.build("--replay", env=KEYS).code == 5
        assert server.asked == []
        assert project.build(env=KEYS).code == 0
        project.delete("said.txt")
        asked = len(server.asked)
        assert project.build(*options, env=KEYS).code == 0
        assert len(server.asked) == asked


def test_nothing_is_counted_of_a_prompt_with_a_secret(tmp_path: Path) -> None:
    with loopback(rule=counting(10_000)) as server:
        project = story(tmp_path / "p", server.url, text=f"{TEXT}\nsk-ant-story\n")
        outcome = project.build(env=KEYS)
        assert "[E601]" in outcome.err
        assert server.asked == []


def test_a_server_that_does_not_count_leaves_the_bound(tmp_path: Path) -> None:
    with loopback(error_reply(404, "not_found_error")) as server:
        outcome = story(tmp_path / "p", server.url).build(env=KEYS)
        assert outcome.code == 4
        assert "[E502]" in outcome.err
        assert lines(server) == [COUNT]


@pytest.mark.needs("vendors")
@pytest.mark.parametrize("more", [", api: responses", ", api: responses, background: false"])
def test_openai_counts_too(tmp_path: Path, more: str) -> None:
    bodies: dict[str, Mapping[str, Any]] = {}

    def rule(asked: AskedOfOpenAI) -> OpenAIReply:
        bodies[asked.path] = asked.body
        if asked.path.endswith("/input_tokens"):
            return reported({"object": "response.input_tokens", "input_tokens": 10_000})
        return response("said")

    with OpenAIServer(rule=rule) as server:
        project = story(tmp_path / "p", server.url, provider="openai", more=more)
        outcome = project.build(env=KEYS)
        assert outcome.code == 0, outcome.err
        assert list(bodies) == ["/v1/responses/input_tokens", "/v1/responses"]
        assert bodies["/v1/responses/input_tokens"]["input"] == bodies["/v1/responses"]["input"]
