"""`llm.extra`: any parameter of a vendor is in the request as it is written, and in the key; some are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from orch23.features.vendors.openai_responses import responses_request_body
from orch23.model.errors import ExitCode
from orch23.model.llm import Message, Request
from tests.loopback import loopback, message_reply
from tests.openai_server import OpenAIServer, chat, response
from tests.project import Project, files_answer

PIPELINE = """\
version: 1
name: extra
stages:
  code:
    outputs: [a.py]
    llm: {PROVIDER, base_url: "URL", endpoint_alias: server, prompt: code.md.j2, returns: files EXTRA}
"""
ANSWER = files_answer({"a.py": "x = 2\n"})


def project(root: Path, provider: str, url: str = "http://127.0.0.1:9", extra: str = "") -> Project:
    text = PIPELINE.replace("PROVIDER", provider).replace("URL", url).replace(" EXTRA", extra)
    return Project(root).write({"pipeline.yaml": text, "code.md.j2": "Write a.py.\n"})


KEYS = {"ANTHROPIC_API_KEY": "sk-ant-test", "OPENAI_API_KEY": "sk-test", "ORCH23_TRUST": "1"}
CHAT = "provider: openai, model: gpt-x, api: chat"
RESPONSES = "provider: openai, model: gpt-x, api: responses"
CLAUDE = "provider: anthropic, model: claude-opus-5, effort: low"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "extra", "sent"),
    [
        (
            CHAT,
            "{top_p: 0.5, stop: [END], guided_json: {a: [1, null]}}",
            {"top_p": 0.5, "guided_json": {"a": [1, None]}},
        ),
        (RESPONSES, "{top_p: 0.5, text: {verbosity: low}}", {"top_p": 0.5, "text": {"verbosity": "low"}}),
        (f"{RESPONSES}, background: false", "{text: {verbosity: low}}", {"text": {"verbosity": "low"}}),
        (CLAUDE, "{top_k: 5, unheard_of: {a: 1}}", {"top_k": 5, "unheard_of": {"a": 1}}),
        (CLAUDE, "{output_config: {new: 1}}", {"output_config": {"new": 1, "effort": "low"}}),
    ],
)
def test_the_fields_are_in_the_body_beside_those_of_orch23(
    tmp_path: Path, provider: str, extra: str, sent: dict[str, Any]
) -> None:
    replies = {CHAT: chat(ANSWER), RESPONSES: response(ANSWER)}
    with (
        loopback(message_reply(ANSWER)) as claude,
        OpenAIServer(replies.get(provider, response(ANSWER))) as openai,
    ):
        server = claude if provider == CLAUDE else openai
        story = project(tmp_path / "p", provider, server.url, f", extra: {extra}")
        built = story.build(env=KEYS)
        assert built.code == 0, built.err
        (asked,) = server.asked
    body = asked.body if isinstance(asked.body, dict) else json.loads(asked.body)
    for name, value in sent.items():
        found = body[name]
        assert {**found, **value} == found if isinstance(value, dict) else found == value
    if provider in (RESPONSES, CLAUDE):
        assert "format" in body["text" if provider == RESPONSES else "output_config"], "what orch23 sets is left"
    assert "extra" not in body
    assert story.build(env=KEYS).code == 0
    story.replace("pipeline.yaml", "extra: {", "extra: {another: 1, ")
    assert story.plan(env=KEYS) == {"code": "run"}, "it is in the key"


def test_requests_in_a_batch_have_them_too() -> None:
    said = (Message("user", "Write."),)
    params: dict[str, Any] = {"max_tokens": 5, "extra": {"top_p": 0.5}}
    one = Request(provider="openai", model="m", endpoint="", system="", messages=said, identity=said, params=params)
    assert responses_request_body(one, background=False)["top_p"] == 0.5


@pytest.mark.parametrize(
    ("provider", "extra", "hint"),
    [
        (CLAUDE, "speed: fast", "changes the price"),
        (CHAT, "service_tier: priority", "write `pace`"),
        (CHAT, "temperature: 0.5", "write `temperature` of `llm`"),
        (RESPONSES, "reasoning: {effort: high}", "write `effort` of `llm`"),
        (RESPONSES, "reasoning: high", "is set by orch23"),
        (CLAUDE, "max_tokens: 5", "write `max_tokens` of `llm`"),
        (CLAUDE, "stream: false", "is set by orch23"),
        (CHAT, "n: 2", "not one text"),
        (CLAUDE, "tools: []", "not one text"),
    ],
)
def test_what_orch23_sets_or_cannot_price_is_an_error_before_any_call(
    tmp_path: Path, provider: str, extra: str, hint: str
) -> None:
    found = project(tmp_path / "p", provider, extra=f", extra: {{{extra}, seen_too: 1}}").run("validate")
    assert found.code == ExitCode.INVALID
    assert found.err.count("error[E409]") == 1
    assert hint in found.err
    assert "seen_too" not in found.err.split("\n")[0]


def test_a_key_without_fields_is_that_of_a_stage_without_the_key(tmp_path: Path) -> None:
    with loopback(message_reply(ANSWER)) as server:
        story = project(tmp_path / "p", CLAUDE, server.url)
        assert story.build(env=KEYS).code == 0
        story.replace("pipeline.yaml", "returns: files", "returns: files, extra: {}")
        assert story.plan(env=KEYS) == {"code": "fresh"}
