"""Whom a step of the provider `openai` asks, what of it is hashed, and what is said before anybody is asked."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.features.vendors.openai_adapter import OpenAIAdapter
from orch23.features.vendors.openai_chat import ChatCompletions
from orch23.features.vendors.openai_chat import chat_request_body as chat_body
from orch23.features.vendors.openai_client import response_format
from orch23.features.vendors.openai_responses import ResponsesApi
from orch23.features.vendors.openai_responses import responses_request_body as responses_body
from orch23.model.digest import Json
from orch23.model.llm import Message, OnTruncated, Request
from orch23.providers import registry
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.wire import FILES_SCHEMA
from orch23.steps.llm.spec import LLMStep
from tests.doubles import CONSENT, made_provider

STEP = LLMStep(provider="openai", model="m", prompt="p")
KEY = {"OPENAI_API_KEY": "sk-test"}
NEAR, FAR = "http://127.0.0.1:8080/v1", "https://models.example.com/v1"


def setting(environ=None) -> ProviderContext:
    return ProviderContext(
        environ=environ or {}, root=Path(), read_answers=lambda _f: {}, notice=lambda _e: None, **CONSENT
    )


def made(step: LLMStep, environ=None):
    return made_provider(setting(environ), CallContext(step, "code"))


@pytest.mark.parametrize(
    ("more", "kind", "api"),
    [
        ({}, ResponsesApi, "responses"),
        ({"base_url": NEAR}, ChatCompletions, "chat"),
        ({"api": "chat"}, ChatCompletions, "chat"),
        ({"base_url": NEAR, "api": "responses"}, ResponsesApi, "responses"),
    ],
)
def test_the_interface_follows_from_the_address_unless_it_is_named(more, kind, api) -> None:
    step = replace(STEP, **more)
    assert isinstance(made(step), kind)
    assert registry.adapter_for(step).api == api


def test_the_vendor_has_another_name_for_the_token_limit() -> None:
    named = made(replace(STEP, api="chat", base_url="https://API.openai.com:443/v1/"))
    other = made(replace(STEP, base_url=FAR))
    assert isinstance(named, ChatCompletions)
    assert isinstance(other, ChatCompletions)
    assert (named.limit_field, other.limit_field) == ("max_completion_tokens", "max_tokens")


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        (None, "https://api.openai.com/v1"),
        ("HTTP://LocalHost:11434/v1/", "http://localhost:11434/v1"),
        ("https://models.example.com:443/v1", "https://models.example.com/v1"),
    ],
)
def test_the_endpoint_has_one_form(url: str | None, endpoint: str) -> None:
    assert registry.endpoint_of(replace(STEP, base_url=url)) == endpoint
    assert made(replace(STEP, base_url=url)).connection.server.url == endpoint


@pytest.mark.parametrize(
    ("url", "remote"),
    [(None, True), (NEAR, False), ("http://localhost/v1", False), ("http://[::1]/v1", False), (FAR, True)],
)
def test_only_this_machine_is_not_remote(url: str | None, remote: bool) -> None:
    assert OpenAIAdapter(replace(STEP, base_url=url)).is_remote is remote


def test_parameters_are_explicit_and_those_that_are_unset_are_not_sent() -> None:
    assert registry.parameters_of(STEP) == {"max_tokens": 32000}
    full = replace(STEP, effort="low", seed=0, temperature=0.0, max_tokens=9)
    assert registry.parameters_of(full) == {"max_tokens": 9, "effort": "low", "seed": 0, "temperature": 0.0}


def test_an_answer_that_was_cut_off_is_asked_for_once_more_with_twice_the_sandbox_dir() -> None:
    assert registry.truncation_policy(STEP) == OnTruncated(1, 2)


# ---- what is wrong, and what is missing -----------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["ftp://h", "h/v1", "https://me:secret@h/v1", "https://h/v1?key=secret", "https://h/v1#secret", "http://"]
)
def test_an_invalid_address_is_an_error_that_does_not_repeat_it(url: str) -> None:
    (found,) = registry.step_errors(replace(STEP, base_url=url))
    assert found.code == "E409"
    assert "secret" not in str(found)
    assert found.hint


def test_the_responses_api_takes_no_seed() -> None:
    (found,) = registry.step_errors(replace(STEP, seed=1))
    assert found.code == "E409"
    assert "chat" in (found.hint or "")
    assert registry.step_errors(replace(STEP, seed=1, api="chat")) == ()


@pytest.mark.parametrize("more", [{"thinking": "high"}, {"command": ("x",)}, {"answers": "a.yaml"}])
def test_what_it_does_not_take_is_an_error(more) -> None:
    (found,) = registry.step_errors(replace(STEP, **more))
    assert found.code == "E409"


@pytest.mark.parametrize(
    ("url", "environ", "wanted"),
    [
        (None, {}, ["E412"]),
        (None, {"OPENAI_API_KEY": "  "}, ["E412"]),
        (None, KEY, []),
        (FAR, {}, ["E412"]),
        (FAR, KEY, []),
        (NEAR, {}, []),
    ],
)
def test_a_key_is_needed_but_on_this_machine(url: str | None, environ, wanted) -> None:
    found = registry.readiness_errors(replace(STEP, base_url=url), environ)
    assert [one.code for one in found] == wanted
    assert all("OPENAI_API_KEY" in (one.hint or "") for one in found)


def test_the_key_of_the_process_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-process")
    assert [one.code for one in registry.readiness_errors(STEP, {})] == ["E412"]
    assert made(STEP, KEY).connection.server.key == "sk-test"
    assert made(replace(STEP, base_url=NEAR)).connection.server.key == ""


def test_a_missing_library_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    (found,) = registry.readiness_errors(STEP, KEY)
    assert found.code == "E413"
    assert "install 'openai" in (found.hint or "")


def test_nothing_of_the_library_is_imported_before_a_call() -> None:
    program = (
        "import sys; from pathlib import Path; import orch23.cli.main; from orch23.providers import registry as r\n"
        "from orch23.steps.llm.spec import LLMStep; from orch23.providers.adapter import CallContext, ProviderContext\n"
        "s = LLMStep(provider='openai', model='m', prompt='p')\n"
        "r.step_errors(s), r.readiness_errors(s, {}), r.parameters_of(s), r.endpoint_of(s)\n"
        "r.adapter_for(s).wire(None)\n"
        "t = ProviderContext(environ={}, root=Path(), read_answers=dict, notice=print, is_granted=bool, files=None)\n"
        "r.adapter_for(s).make(t, CallContext(s, 'a')); t.close()\n"
        "sys.exit(bool({'openai', 'httpx2', 'pydantic'} & set(sys.modules)))"
    )
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run([sys.executable, "-c", program], env=environ, check=False).returncode == 0


# ---- schemas --------------------------------------------------------------------------------------


def closed(properties: dict, required: list[str] | None = None, **more) -> dict:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False, **more}


def nested(depth: int) -> dict:
    schema: dict = {"type": "string"}
    for _ in range(depth):
        schema = closed({"in": schema})
    return schema


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (FILES_SCHEMA, True),
        (closed({"a": {"type": "string"}}), True),
        (closed({"a": {"type": "array", "items": closed({"b": {"type": "null"}})}}), True),
        (nested(10), True),
        (nested(12), False),
        (closed({"a": {"type": "string"}}, []), False),
        (closed({"a": {"type": "array", "items": closed({"b": {}}, [])}}), False),
        (closed({"a": {"anyOf": [{"type": "null"}, closed({"b": {}}, [])]}}), False),
        (closed({"a": {"type": "string"}}, additionalProperties=True), False),
        ({"type": "object"}, False),
        ({"type": "array", "items": {"type": "string"}}, False),
        (closed({"a": {"type": "string", "format": "uri"}}), False),
        (None, False),
    ],
)
def test_a_schema_is_strict_only_where_it_keeps_the_rules(schema, strict: bool) -> None:
    assert response_format(schema)["strict"] is strict


def test_the_schema_of_the_envelope_is_sent_for_files_and_none_for_text() -> None:
    assert registry.adapter_for(STEP).wire(None) == FILES_SCHEMA
    assert registry.adapter_for(replace(STEP, returns="text")).wire(None) is None


def test_a_schema_that_is_not_an_object_is_not_sent_to_the_vendor() -> None:
    listed: Json = {"type": "array", "items": {"type": "string"}}
    step = replace(STEP, returns="json", schema="s.json")
    assert registry.adapter_for(step).wire(listed) is None
    assert registry.adapter_for(replace(step, base_url=NEAR)).wire(listed) == listed


@pytest.mark.slow
def test_what_is_sent_is_what_the_library_of_the_vendor_knows() -> None:
    from openai.types.chat import completion_create_params  # noqa: PLC0415  - heavy
    from openai.types.responses import ResponseFormatTextJSONSchemaConfigParam, response_create_params  # noqa: PLC0415
    from openai.types.shared_params import Reasoning, ResponseFormatJSONSchema  # noqa: PLC0415
    from openai.types.shared_params.response_format_json_schema import JSONSchema  # noqa: PLC0415

    def known(kind) -> set[str]:
        return set(kind.__annotations__)

    said = (Message("user", "What?"),)
    full: dict[str, Json] = {"max_tokens": 9, "effort": "low", "seed": 1, "temperature": 0.5}
    request = Request(
        provider="openai",
        model="m",
        endpoint="e",
        system="s",
        messages=said,
        identity=said,
        params=full,
        schema=FILES_SCHEMA,
    )
    body: Any = responses_body(request)
    assert set(body) <= known(response_create_params.ResponseCreateParamsNonStreaming)
    assert set(body["text"]["format"]) == known(ResponseFormatTextJSONSchemaConfigParam) - {"description"}
    assert set(body["reasoning"]) <= known(Reasoning)
    body = chat_body(request, "max_completion_tokens")
    assert set(body) <= known(completion_create_params.CompletionCreateParamsStreaming)
    assert set(body["response_format"]) == known(ResponseFormatJSONSchema)
    assert set(body["response_format"]["json_schema"]) == known(JSONSchema) - {"description"}
