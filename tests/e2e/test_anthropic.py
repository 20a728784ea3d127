"""Whole builds whose model is behind Anthropic's Messages API, here a server of ours: what is asked, paid and kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orch23.model.digest import digest_json
from orch23.model.errors import ExitCode
from orch23.providers.wire import FILES_SCHEMA
from tests.loopback import Loopback, error_reply, events_reply, loopback, message_events, message_reply
from tests.project import Project, files_answer

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

KEY = {"ANTHROPIC_API_KEY": "sk-ant-story"}
CONTEXT = "a line of the specification\n" * 700
PIPELINE = """\
version: 1
name: story
defaults:
  llm: {provider: anthropic, model: claude-story, base_url: "URL", endpoint_alias: claude, prompt: code.md.j2}
stages:
  code:
    inputs: [spec.md]
    outputs: [a.py]
    llm: {returns: files}
    retry: {max: 2}
    verify:
      - shell: ["python3", "-c", "import sys; sys.exit('x = 2' not in open('a.py').read())"]
"""
PROMPT = "Write a.py.\n{{ inputs['spec.md'].text }}\n{% if brief %}It failed: {{ brief.kind }}\n{% endif %}"
GOOD = files_answer({"a.py": "x = 2\n"})
BAD = files_answer({"a.py": "x = 1\n"})


def project(root: Path, server: Loopback, pipeline: str = PIPELINE) -> Project:
    files = {"pipeline.yaml": pipeline.replace("URL", server.url), "code.md.j2": PROMPT, "spec.md": CONTEXT}
    return Project(root).write(files)


def test_a_build_asks_once_and_a_second_one_not_at_all(tmp_path: Path) -> None:
    with loopback(message_reply(GOOD[:9], GOOD[9:], usage={"cache_read_input_tokens": 5})) as server:
        story = project(tmp_path / "p", server)
        assert story.build(env=KEY).code == ExitCode.OK
        assert story.read("a.py") == "x = 2\n"
        (answered,) = story.events_of("llm_response")
        assert answered["data"]["input_tokens"] == 16
        assert answered["data"]["model"] == "claude-test-1"
        assert story.build().code == ExitCode.OK, "without the key: nobody is asked"
        story.delete("a.py")
        assert story.build().code == ExitCode.OK
        assert story.read("a.py") == "x = 2\n"
        assert len(server.asked) == 1
        assert server.asked[0].headers["authorization"] == "Bearer sk-ant-story"


def test_what_is_kept_of_an_exchange_holds_no_key_and_no_address(tmp_path: Path) -> None:
    with loopback(message_reply(GOOD)) as server:
        story = project(tmp_path / "p", server)
        story.build(env=KEY)
        kept = [
            path.read_text() for path in (story.root / ".orch23").rglob("*.json") if "claude-test-1" in path.read_text()
        ]
        assert kept
        assert all("sk-ant" not in text and "127.0.0.1" not in text for text in kept)
        (exchange,) = [json.loads(text) for text in kept if '"request"' in text]
        assert exchange["client"].startswith("anthropic ")
        assert exchange["request"]["endpoint"] == "claude"


def test_a_second_attempt_sends_the_same_marked_block_again(tmp_path: Path) -> None:
    with loopback(message_reply(BAD), message_reply(GOOD)) as server:
        story = project(tmp_path / "p", server)
        assert story.build(env=KEY).code == ExitCode.OK
        first, second = (asked.json()["messages"][0]["content"] for asked in server.asked)
    assert first[0] == second[0]
    assert first[0]["cache_control"] == {"type": "ephemeral"}
    assert first[0]["text"].removeprefix("Write a.py.\n").strip() == CONTEXT.strip()
    assert "It failed: verify_failed" in second[1]["text"]
    assert "cache_control" not in second[1]


def test_an_answer_is_held_to_the_envelope(tmp_path: Path) -> None:
    with loopback(message_reply(GOOD)) as server:
        story = project(tmp_path / "p", server)
        story.build(env=KEY)
        sent = server.asked[0].json()["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["required"] == ["summary", "writes", "deletes", "error"]
    # No digest is requested. The fingerprint has the schema of earlier versions, so that their recordings are found.
    assert sent["schema"]["properties"]["writes"]["items"]["required"] == ["path", "content"]
    kept = [json.loads(path.read_text()) for path in (story.root / ".orch23/exchanges").rglob("*.json")]
    (exchange,) = kept
    assert exchange["request"]["sent_schema"] == sent["schema"]
    assert exchange["request"]["schema"] == FILES_SCHEMA
    parts = {name: value for name, value in exchange["request"].items() if not name.startswith("sent")}
    assert exchange["fingerprint"] == digest_json(parts)


def test_the_schema_is_left_out_for_a_server_that_refuses_it_and_the_answer_is_judged_all_the_same(
    tmp_path: Path,
) -> None:
    off = PIPELINE.replace("prompt: code.md.j2}", "prompt: code.md.j2, structured_output: false}")
    with loopback(message_reply("no JSON"), message_reply(GOOD), message_reply(GOOD)) as server:
        story = project(tmp_path / "p", server, off)
        assert story.build(env=KEY).code == ExitCode.OK
        assert [asked.json().get("output_config") for asked in server.asked] == [None, None]
        story.edit("pipeline.yaml", PIPELINE.replace("URL", server.url))
        assert story.plan()["code"] == "run", "whether the server holds the model to a form may change its answer"
        assert story.build(env=KEY).code == ExitCode.OK
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("status", "kind", "code"), [(401, "authentication_error", "E414"), (400, "invalid_request_error", "E415")]
)
def test_a_request_that_is_refused_ends_the_build_after_one_request(
    tmp_path: Path, status: int, kind: str, code: str
) -> None:
    with loopback(error_reply(status, kind, "not like this")) as server:
        story = project(tmp_path / "p", server)
        outcome = story.build(env=KEY)
        assert outcome.code == ExitCode.PROVIDER
        assert code in outcome.err + outcome.out
        assert "not like this" in outcome.err + outcome.out
        assert len(server.asked) == 1
        assert not story.exists("a.py")
        server.add(message_reply(GOOD))
        assert story.build(env=KEY).code == ExitCode.OK, "the next build asks again"


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
        (402, "billing_error", "no money"),
        (403, "billing_error", "no money"),
    ],
)
def test_an_empty_account_ends_the_build_after_one_request(tmp_path: Path, status: int, kind: str, said: str) -> None:
    with loopback(error_reply(status, kind, said)) as server:
        outcome = project(tmp_path / "p", server).build(env=KEY)
        assert (outcome.code, len(server.asked)) == (ExitCode.PROVIDER, 1)
    assert "E427" in outcome.err + outcome.out


def test_a_limit_that_a_reply_states_holds_the_next_request_back(tmp_path: Path) -> None:
    stated = {
        "anthropic-ratelimit-requests-limit": "1",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-02-15T14:30:04Z",
        "date": "Sun, 15 Feb 2026 14:30:00 GMT",
    }
    first = message_reply(BAD)
    with loopback(replace(first, headers={**first.headers, **stated}), message_reply(GOOD)) as server:
        story = project(tmp_path / "p", server)
        assert story.build(env=KEY).code == ExitCode.OK
    (shown,) = story.events_of("rate_limit_wait")
    assert shown["data"]["limit"] == "1 requests, as the server states"
    assert story.events_of("http_retry") == []


def test_a_fault_that_passes_is_in_the_journal_and_is_no_attempt(tmp_path: Path) -> None:
    wait = {"retry-after-ms": "5"}
    with loopback(
        error_reply(429, "rate_limit_error", headers=wait),
        error_reply(529, "overloaded_error", headers=wait),
        message_reply(GOOD),
    ) as server:
        story = project(tmp_path / "p", server)
        assert story.build(env=KEY).code == ExitCode.OK
        assert len(server.asked) == 3
    retries = [
        (e["role"], e["data"]["status"], e["data"]["code"], e["data"]["try"]) for e in story.events_of("http_retry")
    ]
    assert retries == [("code", 429, "E416", 2), ("code", 529, "E417", 3)]
    assert len(story.events_of("attempt_started")) == 1
    assert story.events_of("llm_response")[0]["data"]["requests"] == 3


def test_a_wait_of_an_hour_is_not_slept(tmp_path: Path) -> None:
    with loopback(error_reply(429, "rate_limit_error", headers={"retry-after": "3600"})) as server:
        outcome = project(tmp_path / "p", server).build(env=KEY)
        assert (outcome.code, len(server.asked)) == (ExitCode.PROVIDER, 1)
    assert "E418" in outcome.err + outcome.out
    assert "1h 00m" in outcome.err + outcome.out


def test_a_refusal_is_not_asked_again(tmp_path: Path) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "it is harmful"}
    with loopback(message_reply(stop="refusal", stop_details=details)) as server:
        outcome = project(tmp_path / "p", server).build(env=KEY)
        assert (outcome.code, len(server.asked)) == (ExitCode.FAILED, 1)
    assert "it is harmful" in outcome.err + outcome.out


@pytest.mark.slow
def test_a_deadline_is_a_failed_attempt_of_the_stage(tmp_path: Path) -> None:
    held = events_reply(message_events(GOOD)[:3], hold=True)
    with loopback(held, message_reply(GOOD)) as server:
        pipeline = PIPELINE.replace("llm: {returns: files}", "llm: {returns: files, timeout: 1s}")
        story = project(tmp_path / "p", server, pipeline)
        assert story.build(env=KEY).code == ExitCode.OK
        assert len(server.asked) == 2
    assert story.events_of("attempt_finished")[0]["data"]["kind"] == "timeout"


def test_without_a_key_no_one_is_asked(tmp_path: Path) -> None:
    with loopback() as server:
        outcome = project(tmp_path / "p", server).build()
        assert (outcome.code, server.asked) == (ExitCode.CONFIG, [])
    assert "ANTHROPIC_API_KEY" in outcome.err + outcome.out


def test_a_parameter_that_the_api_lost_is_a_error_before_anything_runs(tmp_path: Path) -> None:
    with loopback() as server:
        pipeline = PIPELINE.replace("llm: {returns: files}", "llm: {returns: files, temperature: 0.5}")
        outcome = project(tmp_path / "p", server, pipeline).build(env=KEY)
        assert (outcome.code, server.asked) == (ExitCode.INVALID, [])
    assert "E409" in outcome.err + outcome.out
