"""Addresses in the environment replace the vendor's after consent, and are in no key and no fingerprint."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from orch23.features.vendors.anthropic_messages import AnthropicAdapter
from orch23.features.vendors.openai_adapter import OpenAIAdapter
from orch23.model.step import Grant
from orch23.providers.registry import adapter_for, readiness_errors
from orch23.steps.llm.spec import LLMStep
from tests.doubles import NoFiles
from tests.e2e.pipelines import green
from tests.openai_server import OpenAIServer, chat
from tests.project import Project

ADAPTERS = {"anthropic": AnthropicAdapter, "openai": OpenAIAdapter}
VARIABLES = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


def step(provider: str, base_url: str | None = None) -> LLMStep:
    return LLMStep(provider=provider, model="m", prompt="p.j2", base_url=base_url)


def granted(one: LLMStep, environ: Mapping[str, str]) -> Grant | None:
    return adapter_for(one).consent(environ, Path("/nowhere"), NoFiles())


@pytest.mark.parametrize("provider", VARIABLES)
def test_the_step_goes_before_the_environment_and_this_before_the_vendor(provider: str) -> None:
    variable, vendor = VARIABLES[provider], ADAPTERS[provider].url
    given = {variable: " https://Gate.example:443/v1/ ", KEYS[provider]: "k"}
    for environ in ({}, {variable: ""}, {variable: "  "}):
        assert adapter_for(step(provider)).server(environ) == (vendor, "")
        assert granted(step(provider), environ) is None
    found = adapter_for(step(provider))
    assert found.server(given) == ("https://gate.example/v1", variable)
    assert found.endpoint == vendor, "the fingerprint has the vendor's"
    assert granted(step(provider), given) == Grant(kind="server", name="https://gate.example", keys=(KEYS[provider],))
    own = step(provider, "https://own.example/v1")
    assert adapter_for(own).server(given) == ("https://own.example/v1", "")
    assert granted(own, given) == Grant(kind="server", name="https://own.example", keys=(KEYS[provider],))


@pytest.mark.parametrize("provider", VARIABLES)
@pytest.mark.parametrize("address", ["gate.example", "http://gate.example", "https://me:pw@gate.example"])
def test_an_invalid_address_is_an_error_without_its_text(provider: str, address: str) -> None:
    environ = {VARIABLES[provider]: address, KEYS[provider]: "k"}
    (found,) = readiness_errors(step(provider), environ, None)
    assert found.code == "E412"
    assert VARIABLES[provider] in found.message
    assert "gate" not in str(found)
    assert readiness_errors(step(provider, "https://own.example/v1"), environ, None) == ()


def test_a_token_is_used_if_it_is_the_only_key() -> None:
    token = {"ANTHROPIC_AUTH_TOKEN": "t"}
    adapter = AnthropicAdapter(step("anthropic"))
    assert adapter.key(token) == "t"
    assert adapter.key({**token, "ANTHROPIC_API_KEY": "k"}) == "k"
    assert list(adapter.ready(token, None)) == []
    gate = {**token, "ANTHROPIC_BASE_URL": "https://gate.example"}
    assert granted(step("anthropic"), gate) == Grant(
        kind="server", name="https://gate.example", keys=("ANTHROPIC_AUTH_TOKEN",)
    )


PIPELINE = """\
version: 1
stages:
  ask:
    outputs: [said.txt]
    llm: {provider: openai, model: m, prompt: ask.md.j2, returns: text, api: chat, max_tokens: 7777}
"""


@pytest.mark.slow
def test_a_build_calls_the_address_after_consent_and_nothing_becomes_stale(project: Project) -> None:
    project.write({"ask.md.j2": "Say something.", "pipeline.yaml": PIPELINE})
    with OpenAIServer(chat("an answer")) as server:
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k"}
        assert f"requests go to {server.url}, from OPENAI_BASE_URL" in project.run("plan", env=environ).out
        assert f"{server.url} (OPENAI_BASE_URL)" in project.run("doctor", env={**environ, "ORCH23_TRUST": "1"}).out
        refused = project.build(env={**environ, "ORCH23_TRUST": ""})
        assert (refused.code, server.asked) == (77, [])
        assert server.url.removesuffix("/v1") in refused.err
        green(project.build(env={**environ, "ORCH23_TRUST": "1"}))
        (asked,) = server.asked
        assert asked.body["max_tokens"] == 7777, "an old field, which all servers know"
    assert "up to date" in project.run("plan").out
    assert "requests go to" not in project.run("plan").out
    (project.root / "said.txt").unlink()
    green(project.build("--force", "ask", "--replay"))
    assert project.read("said.txt") == "an answer\n"
