"""Builds against llama.cpp's own server, which speaks three of the vendors' interfaces: what works, and what does not.

Skipped without llama.cpp (xllamacpp) or the weights of smollm2. docs/providers.md says what was found.
"""

import importlib.util
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from orch23.features.local import local_model
from orch23.features.local.provider import LocalServer
from tests.e2e.pipelines import green
from tests.project import Project

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "sure": {"type": "boolean"}},
    "required": ["colour", "sure"],
    "additionalProperties": False,
}


def _reason_to_skip() -> str | None:
    if importlib.util.find_spec("xllamacpp") is None:
        return "xllamacpp is not installed (pip install xllamacpp)"
    if local_model.installed_weights("smollm2", local_model.user_data_dir(os.environ)) is None:
        return "the weights are not installed (orch23 model install smollm2)"
    return None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_reason_to_skip() is not None, reason=str(_reason_to_skip())),
    pytest.mark.timeout(180),
]


@dataclass(frozen=True)
class Llama:
    """The server: its address, and the token that it wants as a key."""

    url: str
    token: str

    def keys(self) -> dict[str, str]:
        """Return the environment of a build that may ask it."""
        return {"OPENAI_API_KEY": self.token, "ANTHROPIC_API_KEY": self.token}


@pytest.fixture(scope="module")
def llama() -> Iterator[Llama]:
    """Give a server of llama.cpp, started as the provider `local` starts it."""
    server = LocalServer(os.environ)
    try:
        running = server.running("smollm2")
        yield Llama(f"http://{running.host}:{running.port}", running.token)
    finally:
        server.close()


def story(project: Project, llm: str, prompt: str = "Say hello in a few words.", output: str = "said.txt") -> None:
    project.write(
        {
            "ask.md.j2": prompt,
            "schema.json": json.dumps(SCHEMA),
            "pipeline.yaml": f"""\
version: 1
name: story
stages:
  ask: {{outputs: [{output}], llm: {{model: smollm2, prompt: ask.md.j2, {llm}}}}}
""",
        }
    )


def recorded(project: Project) -> dict[str, Any]:
    """Return the one exchange that a build recorded."""
    (path,) = (project.root / ".orch23" / "exchanges").rglob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


WAYS = {
    "chat": "provider: openai, base_url: 'URL/v1', temperature: 0.0",
    "responses": "provider: openai, base_url: 'URL/v1', api: responses, temperature: 0.0",
    "messages": "provider: anthropic, base_url: 'URL'",
}


@pytest.mark.parametrize("way", WAYS)
def test_text_comes_with_its_tokens_by_all_three_interfaces(project: Project, llama: Llama, way: str) -> None:
    story(project, WAYS[way].replace("URL", llama.url) + ", returns: text, max_tokens: 200")
    green(project.build(env=llama.keys()))
    assert project.read("said.txt").strip()
    (answered,) = project.events_of("llm_response")
    assert answered["data"]["input_tokens"] > 0
    assert answered["data"]["output_tokens"] > 0
    assert recorded(project)["model"].startswith("smollm2-"), "the name of its file, without the folder of this machine"
    project.delete("said.txt")
    green(project.build("--force", "ask", "--replay"))


def test_chat_holds_the_model_to_the_schema(project: Project, llama: Llama) -> None:
    llm = WAYS["chat"].replace("URL", llama.url) + ", returns: json, schema: schema.json, max_tokens: 100, seed: 1"
    story(project, llm, "Name a colour as JSON.", "said.json")
    green(project.build(env=llama.keys()))
    assert set(json.loads(project.read("said.json"))) == {"colour", "sure"}


@pytest.mark.parametrize("way", ["responses", "messages"])
def test_the_other_interfaces_drop_the_schema_silently(project: Project, llama: Llama, way: str) -> None:
    llm = WAYS[way].replace("URL", llama.url) + ", returns: json, schema: schema.json, max_tokens: 60"
    story(project, llm, "Write a long poem about the sea. No JSON.", "said.json")
    assert project.build(env=llama.keys()).code == 1, "the answer is judged all the same"
    assert not project.exists("said.json")


@pytest.mark.parametrize("way", WAYS)
def test_half_an_answer_is_known_as_such(project: Project, llama: Llama, way: str) -> None:
    llm = WAYS[way].replace("URL", llama.url) + ", returns: text, max_tokens: 5, on_truncated: {retries: 0}"
    story(project, llm, "Write a long poem about the sea.")
    outcome = project.build(env=llama.keys())
    assert outcome.code == 1
    assert not project.exists("said.txt")


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_key_is_reported_and_tried_once(project: Project, llama: Llama, way: str) -> None:
    story(project, WAYS[way].replace("URL", llama.url) + ", returns: text")
    outcome = project.build(env={"OPENAI_API_KEY": "wrong", "ANTHROPIC_API_KEY": "wrong"})
    assert outcome.code == 5
    assert "E414" in outcome.out + outcome.err


@pytest.mark.parametrize("way", WAYS)
def test_a_prompt_beyond_its_context_is_reported_with_both_sizes(project: Project, llama: Llama, way: str) -> None:
    story(project, WAYS[way].replace("URL", llama.url) + ", returns: text", "word " * 6000)
    outcome = project.build(env=llama.keys())
    assert outcome.code == 5
    assert "E415" in outcome.out + outcome.err
    assert "tokens, and the context of the server only 4,096" in outcome.out + outcome.err
