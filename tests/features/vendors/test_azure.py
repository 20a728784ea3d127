"""Whole builds with the provider `azure`, whose resource is a server of ours: addresses, credentials, errors."""

from pathlib import Path

import pytest

from tests.openai_server import OpenAIServer, chat, response
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

KEY = {"AZURE_OPENAI_API_KEY": "az-story"}
PIPELINE = """\
version: 1
name: story
stages:
  ask:
    outputs: [said.txt]
    llm: {provider: azure, model: gpt-5.5MORE, prompt: ask.md.j2, returns: text}
"""


def story(root: Path, more: str = "") -> Project:
    return Project(root).write({"pipeline.yaml": PIPELINE.replace("MORE", more), "ask.md.j2": "Say something."})


def address(server: OpenAIServer) -> str:
    return server.url.removesuffix("/v1")


def test_a_response_is_submitted_and_collected_with_key_and_version(tmp_path: Path) -> None:
    with OpenAIServer(response(status="queued"), response("an answer")) as server:
        project = story(tmp_path, f', base_url: "{address(server)}"')
        outcome = project.build(env=KEY)
        assert outcome.code == 0, outcome.err
        assert project.read("said.txt") == "an answer\n"
        version = "?api-version=2025-04-01-preview"
        assert server.lines() == [f"POST /openai/responses{version}", f"GET /openai/responses/resp_1{version}"]
        for asked in server.asked:
            assert asked.headers["api-key"] == "az-story"
            assert "authorization" not in asked.headers
        assert server.asked[0].body["model"] == "gpt-5.5"
        assert project.build().code == 0, "without a key: no call is made"
        assert len(server.asked) == 2


def test_chat_calls_the_deployment_with_a_token_and_an_address_of_the_environment(tmp_path: Path) -> None:
    with OpenAIServer(chat("an answer")) as server:
        env = {"AZURE_OPENAI_AD_TOKEN": "entra-story", "AZURE_OPENAI_ENDPOINT": f"{address(server)}/", **KEY}
        project = story(tmp_path, ", api: chat")
        outcome = project.build(env={**env, "OPENAI_API_VERSION": "2000-01-01", "ORCH23_TRUST": "0"})
        assert outcome.code == 0, outcome.err
        assert server.lines() == ["POST /openai/deployments/gpt-5.5/chat/completions?api-version=2025-04-01-preview"]
        assert server.asked[0].headers["authorization"] == "Bearer entra-story"
        assert "api-key" not in server.asked[0].headers
        assert "max_completion_tokens" in server.asked[0].body


def test_all_that_is_missing_is_reported_before_anything_starts(tmp_path: Path) -> None:
    outcome = story(tmp_path).build()
    assert outcome.code == 78
    assert "has no address of a resource" in outcome.err
    assert "AZURE_OPENAI_ENDPOINT" in outcome.err
    assert "set AZURE_OPENAI_API_KEY" in outcome.err


def test_a_resource_that_the_pipeline_names_needs_consent(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        outcome = story(tmp_path, f', base_url: "{address(server)}"').build(env={**KEY, "ORCH23_TRUST": "0"})
        assert outcome.code == 77
        assert "AZURE_OPENAI_API_KEY" in outcome.err
        assert not server.asked


def test_prices_and_media_are_those_of_the_model_that_the_deployment_is_named_after(tmp_path: Path) -> None:
    with OpenAIServer(response("seen")) as server:
        project = story(tmp_path, f', base_url: "{address(server)}"')
        project.write({"ask.md.j2": "{{ inputs | blocks }}", "a.png": ""})
        (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        pipeline = project.read("pipeline.yaml").replace("    outputs", "    inputs: [a.png]\n    outputs")
        outcome = project.write({"pipeline.yaml": pipeline}).build("--budget", "5", env=KEY)
        assert outcome.code == 0, outcome.err
        assert [part["type"] for part in server.asked[0].body["input"][0]["content"]][1] == "input_image"
        (reported,) = project.events_of("llm_response")
        assert float(reported["data"]["cost"]) > 0
