"""Retries as a conversation: what each attempt sends, what is recorded, and what the input costs."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import loopback
from tests.openai_server import OpenAIServer, chat, response
from tests.project import Project
from tests.simulated_cache import CachedServer

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

KEY = {"ANTHROPIC_API_KEY": "sk-ant-story"}
RULES = "Each function has a docstring, annotations of all arguments, and no side effects.\n" * 100
PIPELINE = """\
version: 1
name: conversation
defaults:
  llm: {provider: anthropic, model: claude-opus-5, base_url: "URL", endpoint_alias: claude, returns: text}
stages:
  code:
    inputs: [rules.md]
    outputs: [code.txt]
    llm: {prompt: code.md.j2}
    retry: {max: 2, style: conversation}
    verify:
      - shell: ["python3", "-c", "t = open('code.txt').read(); print('why', t[:6]); exit('good' not in t)"]
"""
PROMPT = "{{ inputs | blocks }}\nWrite it.\n"
BAD = "bad {} " + "of a long response that the next attempt reads again " * 60


def project(root: Path, url: str, text: str = PIPELINE, prompt: str = PROMPT) -> Project:
    return Project(root).write({"pipeline.yaml": text.replace("URL", url), "code.md.j2": prompt, "rules.md": RULES})


def texts_of(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the messages of a request of Anthropic's API: role and text."""

    def joined(content: Any) -> str:
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    return [(one["role"], joined(one["content"])) for one in body["messages"]]


def in_turn(*responses: str) -> Callable[[str], str]:
    left = list(responses)
    return lambda _text: left.pop(0)


def least(conversations: Sequence[list[tuple[str, str]]]) -> float:
    """Return the least price of attempts that continue each other: written once, then read; the last is input."""
    sizes = [sum(len(text) for _, text in one) for one in conversations]
    price = 1.25 * sizes[0]
    for before, now in itertools.pairwise(sizes):
        price += 0.1 * before + (1.0 if now == sizes[-1] else 1.25) * (now - before)
    return price / 4


def test_former_attempts_are_turns_and_the_conversation_before_is_read_from_the_cache(tmp_path: Path) -> None:
    rule = CachedServer(in_turn(BAD.format(1), BAD.format(2), "good"), lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", server.url)
        built = story.build(env=KEY)
        assert built.code == 0, built.err
        sent = [texts_of(call.body) for call in rule.calls]
        turns = ["user", "assistant"]
        assert [[role for role, _ in one] for one in sent] == [["user"], [*turns, "user"], [*turns, *turns, "user"]]
        assert sent[1][:1] == sent[0]
        assert sent[2][:3] == sent[1]
        assert sent[1][1][1] == BAD.format(1)
        assert sent[2][3][1] == BAD.format(2)
        assert "That response failed: verify_failed" in sent[1][2][1]
        assert "why bad 1" in sent[1][2][1]
        assert "why bad 2" in sent[2][4][1]
        marks = [json.dumps(call.body).count("cache_control") for call in rule.calls]
        assert marks == [1, 2, 2]
        assert [call.counted.written_5m > 0 for call in rule.calls] == [True, True, False], (
            "no attempt follows the last"
        )
        assert rule.in_units() <= 1.1 * least(sent)
    prompt = story.run("show", "code", "--prompt").out
    assert prompt.count("=== assistant ===") == 2
    assert prompt.count("=== user ===") == 2
    requests = [event["data"] for event in story.events_of("llm_request")]
    # A request that continues another one contains its files too.
    assert [[file["path"] for file in one["files"]] for one in requests] == [["rules.md", "code.md.j2"]] * 3
    assert [one["previous_bytes"] for one in requests] == [0, len(BAD.format(1)), 2 * len(BAD.format(1))]


SCRIPTED = """\
version: 1
name: conversation
stages:
  code:
    inputs: [rules.md]
    outputs: [code.txt]
    llm: {provider: scripted, model: s, answers: answers.yaml, prompt: code.md.j2, returns: RETURNS}
    retry: {max: 3, style: conversation MORE}
    verify:
      - shell: ["python3", "-c", "t = open('code.txt').read(); print('why', t); exit('good' not in t)"]
"""


def scripted(root: Path, returns: str, more: str, responses: Sequence[str], **files: str) -> Project:
    text = SCRIPTED.replace("RETURNS", returns).replace(" MORE", more)
    return Project(root).write(
        {
            "pipeline.yaml": text,
            "code.md.j2": PROMPT,
            "rules.md": "be good",
            "answers.yaml": json.dumps({"code": list(responses)}),
            **files,
        }
    )


def edit(old: str, new: str) -> str:
    search = f"{old}\n" if old else ""
    return f"code.txt\n<<<<<<< SEARCH\n{search}=======\n{new}\n>>>>>>> REPLACE\n"


def turns_of(story: Project, attempt: int) -> list[str]:
    prompt = story.run("show", "code", "--prompt", "--attempt", str(attempt)).out
    return [part.removeprefix("=== assistant ===\n\n") for part in prompt.split("\n\n=== user ===\n\n")]


def test_a_turn_shows_the_files_that_edits_have_changed(tmp_path: Path) -> None:
    responses = [edit("", "one\nbad 1"), edit("no such line", "x"), edit("bad 1", "bad 2"), edit("bad 2", "good")]
    story = scripted(tmp_path / "p", "edits", "", responses)
    assert story.build().code == 0
    *_, second = turns_of(story, 2)
    assert '"file" path="code.txt"' in second
    assert "one\nbad 1\n" in second
    assert "The changes of that response are in place." in second
    *_, third = turns_of(story, 3)
    assert '"file" path="code.txt"' not in third, "it is as the turn before has shown it"
    assert "Nothing of that response is in place." in third
    *_, fourth = turns_of(story, 4)
    assert "one\nbad 2\n" in fourth


def test_a_baseline_starts_each_response_from_the_files_of_the_first_message(tmp_path: Path) -> None:
    whole = ["code.txt\n```\nbad 1\n```\n", "code.txt\n```\nbad 2\n```\n", "code.txt\n```\ngood\n```\n"]
    story = scripted(tmp_path / "p", "blocks", ", from: baseline", whole)
    assert story.build().code == 0
    assert "starts again from the files of the first message" in turns_of(story, 3)[-1]
    assert len(turns_of(story, 3)) == 3


def test_a_prompt_for_retries_is_the_turn(tmp_path: Path) -> None:
    whole = [json.dumps({"writes": [{"path": "code.txt", "content": text}]}) for text in ("bad 1", "good")]
    again = "Attempt {{ attempt }}: {{ brief.excerpt }}\n"
    story = scripted(tmp_path / "p", "files", ", prompt: again.md.j2", whole, **{"again.md.j2": again})
    story.build()
    first, second = turns_of(story, 2)
    assert second.startswith("Attempt 2: ")
    assert "That response failed" not in second
    assert first.endswith(whole[0])
    (sent,) = [event["data"] for event in story.events_of("llm_request") if event["data"]["attempt"] == 2]
    assert [file["path"] for file in sent["files"]] == ["rules.md", "code.md.j2", "again.md.j2"]


def test_recorded_turns_are_found_again_if_only_the_output_of_the_failure_differs(tmp_path: Path) -> None:
    rule = CachedServer(in_turn("bad 1", "bad 2", "good"), lambda: 0.0)
    # The output contains the time in nanoseconds, as a traceback of another Python would have other words.
    text = PIPELINE.replace("print('why', t[:6])", "import time; print(time.monotonic_ns())")
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", server.url, text)
        assert story.build(env=KEY).code == 0
        first = story.run("show", "code", "--prompt").out
        again = story.build("--replay", "--force", "code", env=KEY)
        assert again.code == 0, again.err
        assert story.run("show", "code", "--prompt").out != first
    assert len(rule.calls) == 3


@pytest.mark.needs("vendors")
@pytest.mark.parametrize("api", ["responses", "chat"])
def test_openai_gets_the_turns(tmp_path: Path, api: str) -> None:
    left = ["bad 1", "bad 2", "good"]
    replied = response if api == "responses" else chat
    with OpenAIServer(rule=lambda _asked: replied(left.pop(0))) as server:
        text = PIPELINE.replace("provider: anthropic, model: claude-opus-5", f"provider: openai, model: m, api: {api}")
        story = project(tmp_path / "p", server.url, text)
        built = story.build(env={"OPENAI_API_KEY": "sk-story"})
        assert built.code == 0, built.err
        sent = [asked.body["input" if api == "responses" else "messages"] for asked in server.asked]
    assert [[one["role"] for one in messages] for messages in sent] == [
        ["user"],
        ["user", "assistant", "user"],
        ["user", "assistant", "user", "assistant", "user"],
    ]
    assert sent[1][:1] == sent[0]
    assert sent[2][:3] == sent[1]
    assert sent[2][3]["content"] == "bad 2"


def test_a_secret_in_a_later_message_is_refused_and_one_in_a_response_is_redacted(tmp_path: Path) -> None:
    secret = "a-secret-of-this-story-0815"
    rule = CachedServer(in_turn(f"bad {secret}", "bad 2"), lambda: 0.0)
    with loopback(rule=rule) as server:
        text = PIPELINE.replace("style: conversation", "style: conversation, prompt: again.md.j2")
        story = project(tmp_path / "p", server.url, text)
        story.write({"again.md.j2": f"{{{{ brief.kind }}}}{{% if attempt > 2 %}}{secret}{{% endif %}}"})
        built = story.build(env={**KEY, "STORY_API_KEY": secret})
    assert len(rule.calls) == 2
    assert "E601" in built.err
    assert not any(secret in json.dumps(call.body) for call in rule.calls)


def test_an_edit_of_the_style_keeps_a_stage_fresh(tmp_path: Path) -> None:
    rule = CachedServer(in_turn("good"), lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", server.url)
        assert story.build(env=KEY).code == 0
        project(tmp_path / "p", server.url, PIPELINE.replace(", style: conversation", ""))
        assert set(story.plan().values()) == {"fresh"}
