"""Whole builds against a server of OpenAI's interfaces: asked once, collected after a crash, cancelled on Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import green
from tests.openai_server import Asked, OpenAIServer, Reply, chat, error, page, response, stream
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

_PROGRAM = "from orch23.entry import run; run()"
_REPOSITORY = str(Path(__file__).parents[3])
SUBMIT, POLL, CANCEL = "POST /v1/responses", "GET /v1/responses/resp_1", "POST /v1/responses/resp_1/cancel"
CHAT = "POST /v1/chat/completions"


def story(project: Project, url: str | None, api: str | None = None, more: str = "") -> None:
    keys = "".join(f", {name}: {value}" for name, value in (("base_url", url), ("api", api)) if value)
    project.write(
        {
            "ask.md.j2": "Say something.",
            "pipeline.yaml": f"""\
version: 1
name: story
stages:
  ask:
    outputs: [said.txt]
    llm: {{provider: openai, model: m, prompt: ask.md.j2, returns: text{keys}{more}}}
""",
        }
    )


def start(project: Project) -> "subprocess.Popen[bytes]":
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY, "ORCH23_TRUST": "1"}
    argv = [sys.executable, "-c", _PROGRAM, "-C", str(project.root), "build"]
    return subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def answers_after_restart(restarted: list[bool]):
    """Return the rule of a server that works until the build is started again, and has the answer then."""
    cancelled: list[bool] = []

    def rule(asked: Asked) -> Reply:
        if asked.path.endswith("/cancel"):
            cancelled.append(True)
            return response(status="cancelled")
        if asked.method == "POST":
            return response("asked anew", response_id="resp_2") if restarted else response(status="queued")
        if cancelled:
            return response(status="cancelled")
        return response("the paid answer") if restarted else response(status="in_progress")

    return rule


# ---- builds that go well --------------------------------------------------------------------------


def test_an_answer_is_submitted_collected_and_never_asked_for_again(project: Project) -> None:
    with OpenAIServer(response(status="queued"), response("an answer")) as server:
        story(project, server.url, "responses")
        green(project.build())
        assert project.read("said.txt") == "an answer\n"
        assert server.lines() == [SUBMIT, POLL]
        (reported,) = project.events_of("call_submitted")
        assert reported["role"] == "ask"
        assert reported["data"]["response_id"] == "resp_1"
        project.delete("said.txt")
        green(project.build("--force", "ask"))
        assert server.lines() == [SUBMIT, POLL]


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_the_schema_of_a_stage_is_sent(project: Project, api: str) -> None:
    answer = '{"title": "a"}'
    with OpenAIServer(response(answer) if api == "responses" else chat(answer)) as server:
        story(project, server.url, api, more=", schema: s.json")
        project.replace("pipeline.yaml", "returns: text", "returns: json")
        schema = {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}}
        project.write({"s.json": json.dumps({**schema, "additionalProperties": False})})
        green(project.build())
        body = server.asked[0].body
    sent = body["text"]["format"] if api == "responses" else body["response_format"]["json_schema"]
    assert sent["schema"]["required"] == ["title"]
    assert sent["schema"]["properties"] == {"title": {"type": "string"}}


def test_a_compatible_server_is_asked_by_chat(project: Project) -> None:
    with OpenAIServer(chat("an answer")) as server:
        story(project, server.url, more=", seed: 3, temperature: 0.5, max_tokens: 7777")
        green(project.build(env={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_ORG_ID": "org-x"}))
        assert project.read("said.txt") == "an answer\n"
        assert server.lines() == [CHAT]
        body = server.asked[0].body
        assert (body["model"], body["seed"], body["temperature"], body["max_tokens"]) == ("m", 3, 0.5, 7777)
        assert "openai-organization" not in server.asked[0].headers


def test_an_answer_that_was_cut_off_is_asked_for_once_more_with_twice_the_sandbox_dir(project: Project) -> None:
    half = response("half", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    with OpenAIServer(half, response("all of it")) as server:
        story(project, server.url, "responses", more=", max_tokens: 100")
        green(project.build())
        assert [one.body["max_output_tokens"] for one in server.asked] == [100, 200]
    assert project.read("said.txt") == "all of it\n"


def test_a_fault_that_passes_is_no_attempt_of_the_stage(project: Project) -> None:
    with OpenAIServer(error(429, "slow down", retry_after="0"), chat("an answer")) as server:
        story(project, server.url)
        green(project.build())
        assert server.lines() == [CHAT, CHAT]
    assert len(project.events_of("http_retry")) == 1
    assert len(project.events_of("attempt_started")) == 1


# ---- builds that do not ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "api", "code"),
    [
        (page(), "chat", "E421"),
        (page(), "responses", "E421"),
        (error(401, "no such key"), "chat", "E414"),
        (error(400, "no such model"), "responses", "E415"),
        (stream(b"data: {\n\n"), "chat", "E421"),
    ],
)
def test_what_asking_again_does_not_help_is_asked_once(project: Project, reply: Reply, api: str, code: str) -> None:
    with OpenAIServer(reply) as server:
        story(project, server.url, api)
        outcome = project.build()
        assert (outcome.code, len(server.asked)) == (5, 1)
    assert code in outcome.out + outcome.err


def test_a_server_elsewhere_needs_a_key_before_the_first_stage(project: Project) -> None:
    story(project, None)
    outcome = project.build()
    assert outcome.code == 78
    assert "E412" in outcome.out + outcome.err
    assert "OPENAI_API_KEY" in outcome.out + outcome.err
    assert not project.exists("said.txt")


# ---- builds that are broken off -------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_killed_build_submitted_is_collected_and_paid_once(project: Project) -> None:
    restarted: list[bool] = []
    with OpenAIServer(rule=answers_after_restart(restarted)) as server:
        story(project, server.url, "responses")
        priced = "prices: {m: {input: 1, output: 1}}\nstop_conditions: {max_cost_usd: 0.05, max_llm_calls: 1}\n"
        project.edit("pipeline.yaml", project.read("pipeline.yaml") + priced)
        process = start(project)
        try:
            server.await_line(POLL)
        finally:
            process.kill()
            process.communicate()
        assert CANCEL not in server.lines(), "a crash cancels nothing"
        restarted.append(True)
        green(project.build())
        assert project.read("said.txt") == "the paid answer\n"
        assert server.lines().count(SUBMIT) == 1
        assert CANCEL not in server.lines()
    assert project.events_of("call_reserved")[-1]["data"]["collects"] is True
    end = project.events_of("run_finished")[-1]["data"]
    assert (end["calls"], end["possible_cost"], end["before"]["calls"]) == (1, "0", 0), "it counts once"
    assert end["cost"] == project.events_of("llm_response")[-1]["data"]["cost"] != "0"


@pytest.mark.slow
def test_what_an_interrupted_build_submitted_is_cancelled_and_asked_for_again(project: Project) -> None:
    restarted: list[bool] = []
    with OpenAIServer(rule=answers_after_restart(restarted)) as server:
        story(project, server.url, "responses")
        process = start(project)
        try:
            server.await_line(POLL)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
        assert process.returncode == 130, err
        assert server.lines().count(CANCEL) == 1
        restarted.append(True)
        green(project.build())
        assert project.read("said.txt") == "asked anew\n"
        assert server.lines().count(SUBMIT) == 2
    assert not project.events_of("warning")


def test_a_response_is_stored_at_the_server_unless_background_is_false(project: Project) -> None:
    with OpenAIServer(response("stored")) as server:
        story(project, server.url, "responses")
        assert f"responses are stored at {server.url}" in project.run("plan").out
        green(project.build())
        assert server.asked[-1].body["store"] is True
        story(project, server.url, "responses", ", background: false")
        assert "up to date" in project.run("plan").out, "it is not part of the key"
        project.edit("ask.md.j2", "Say something else.")
        assert "stored at" not in project.run("plan").out
    with OpenAIServer(response("streamed")) as server:
        story(project, server.url, "responses", ", background: false")
        project.edit("ask.md.j2", "Say something else.")
        green(project.build())
        assert [one.body["store"] for one in server.asked] == [False]


def test_background_is_for_the_responses_interface(project: Project) -> None:
    story(project, "http://127.0.0.1:9/v1", "chat", ", background: true")
    refused = project.run("validate")
    assert refused.code != 0
    assert "E409" in refused.err
    assert "`api: responses`" in refused.err


def test_what_cannot_be_collected_now_is_collected_by_the_next_build(project: Project) -> None:
    lost = error(401, "no such key")
    with OpenAIServer(response(status="queued"), lost, response("the paid answer")) as server:
        story(project, server.url, "responses")
        assert project.build().code == 5
        green(project.build())
        assert project.read("said.txt") == "the paid answer\n"
        assert server.lines() == [SUBMIT, POLL, POLL]


def test_what_a_run_over_its_budget_could_not_collect_is_not_forgotten_with_it(project: Project) -> None:
    with OpenAIServer(response(status="queued"), error(401, "no such key"), response("the paid answer")) as server:
        story(project, server.url, "responses")
        project.edit("pipeline.yaml", project.read("pipeline.yaml") + "prices: {m: {input: 1, output: 1}}\n")
        assert project.build().code == 5
        assert project.build("--budget", "0.000001").code == 4
        assert len(server.asked) == 2
        green(project.build())
        assert project.read("said.txt") == "the paid answer\n"
        assert server.lines() == [SUBMIT, POLL, POLL]


# ---- a server that others wrote, and its verdict --------------------------------------------------


@pytest.mark.stride(7)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "fault"),
    [
        *((api, fault) for api in ("chat", "responses") for fault in ("none", "rate limit", "outage")),
        *(("chat", fault) for fault in ("disconnect", "truncate", "corrupt")),  # of what is streamed
    ],
)
def test_llmock_finds_no_fault_with_the_client(project: Project, api: str, fault: str) -> None:
    from llmock.scenarios import Behavior, Fail, Match, StreamFault  # noqa: PLC0415  - it brings a web framework
    from llmock.verdict import judge  # noqa: PLC0415  - likewise

    faults: dict[str, Behavior] = {
        "rate limit": Fail(429, retry_after=1.0, times=1),
        "outage": Fail(503, times=2),
        "disconnect": StreamFault("disconnect", after_chunks=1, times=1, match=Match(stream=True)),
        "truncate": StreamFault("truncate", after_chunks=1, times=1, match=Match(stream=True)),
        "corrupt": StreamFault("malformed", after_chunks=1, times=1, match=Match(stream=True)),
    }
    from llmock.testing import LLMockServer  # noqa: PLC0415  it loads a whole server, which other tests need not wait for

    with LLMockServer() as server:
        story(project, server.base_url("openai"), api)
        if fault in faults:
            server.state.scenarios.add(faults[fault])
        outcome = project.build()
        verdict = judge(server.state.journal.records())
    # An answer this short is sent whole before its spoilt part is read: llmock cannot see that reading stopped there.
    verdict.assert_ok(strict=fault != "corrupt")
    green(outcome)
    assert verdict.attempts == {"none": 1, "outage": 3}.get(fault, 2)
