"""The fields of a request for the prompt cache: those that the model takes, at the vendor's own server only."""

from typing import Any

import pytest
from msgspec.structs import replace

from orch23.features.vendors.openai_chat import ChatCompletions, chat_request_body
from orch23.features.vendors.openai_responses import ResponsesApi, responses_request_body
from orch23.model.llm import CachePolicy, Message, Request
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.steps.llm.spec import LLMStep
from tests.doubles import CONSENT, made_provider
from tests.unit.providers.test_cache_marks import CACHE, request


@pytest.mark.parametrize(
    ("model", "cache", "fields"),
    [
        ("gpt-5.5", CACHE, {"prompt_cache_key"}),
        ("gpt-5.5", CachePolicy(ttl="1h"), {"prompt_cache_key", "prompt_cache_retention"}),
        ("gpt-4o", CachePolicy(ttl="1h"), {"prompt_cache_key"}),
        ("not-listed", CachePolicy(ttl="1h"), set()),
        ("gpt-5.5", None, set()),
    ],
)
def test_both_interfaces_send_the_fields_that_the_model_takes(
    model: str, cache: CachePolicy | None, fields: set[str]
) -> None:
    this = request(model=model, cache=cache)
    for body in (chat_request_body(this, "n", is_vendor=True), responses_request_body(this, is_vendor=True)):
        assert {name for name in body if name.startswith("prompt_cache")} == fields
        assert body.get("prompt_cache_retention", "24h") == "24h"


LONG = "what all items share, and more of it\n" * 200


def chat_body(this: Request, *, is_vendor: bool = True) -> Any:
    return chat_request_body(this, "n", is_vendor=is_vendor)


def responses_body(this: Request, *, is_vendor: bool = True) -> Any:
    return responses_request_body(this, is_vendor=is_vendor)


def contents(this: Request, *, is_vendor: bool = True) -> list:
    chat = chat_body(this, is_vendor=is_vendor)["messages"][1:]
    responses = responses_body(this, is_vendor=is_vendor)["input"]
    texts = [[(one["text"], "prompt_cache_breakpoint" in one) for one in m["content"]] for m in (*chat, *responses)]
    assert texts[: len(chat)] == texts[len(chat) :]
    return texts[: len(chat)]


def test_later_models_read_to_breakpoints_and_set_none_themselves() -> None:
    said = (Message("user", f"{LONG}one\n"),)
    whole = {"messages": said, "family": len(LONG), "stable": len(LONG) + 4, "cache": CACHE, "model": "gpt-5.6-sol"}
    this = replace(request(), **whole)
    assert contents(this) == [[(LONG, True), ("one\n", True)]]
    for body in (chat_body(this), responses_body(this)):
        assert body["prompt_cache_options"] == {"mode": "explicit"}
    assert chat_body(this, is_vendor=False)["messages"][1]["content"] == f"{LONG}one\n", "another server"
    uncached = responses_body(replace(this, cache=None))
    assert uncached["input"] == [{"role": "user", "content": f"{LONG}one\n"}]
    assert uncached["prompt_cache_options"] == {"mode": "explicit"}, "nothing is written"
    earlier = responses_body(replace(this, model="gpt-5.5"))
    assert earlier["input"] == [{"role": "user", "content": f"{LONG}one\n"}]


def test_a_conversation_marks_its_last_message() -> None:
    said = (Message("user", LONG), Message("assistant", f"{LONG}a"), Message("user", f"{LONG}b"))
    whole = {"messages": said, "family": 0, "stable": len(said[0].content), "cache": CACHE, "model": "gpt-5.6-sol"}
    body = responses_body(replace(request(), **whole))
    assert [isinstance(one["content"], str) for one in body["input"]] == [False, True, False]
    (last,) = body["input"][2]["content"]
    assert last["prompt_cache_breakpoint"] == {"mode": "explicit"}


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(("url", "sent"), [(None, True), ("http://127.0.0.1:1/v1", False)])
def test_another_server_gets_no_field_that_it_may_not_know(tmp_path, api, url: str | None, sent: bool) -> None:
    step = LLMStep(provider="openai", model="gpt-5.5", prompt="p", base_url=url, api=api)
    setting = ProviderContext(environ={}, root=tmp_path, read_answers=lambda _: {}, notice=lambda _: None, **CONSENT)
    made = made_provider(setting, CallContext(step, "code"))
    assert isinstance(made, ChatCompletions | ResponsesApi)
    assert made.is_vendor == sent
    assert "prompt_cache_key" not in chat_request_body(request(cache=CACHE), "n")
