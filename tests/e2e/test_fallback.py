"""`llm.fallback`: another provider is called while that of the stage is down, and its response stays."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.model.errors import ExitCode
from tests.loopback import Loopback, Reply, error_reply, loopback, message_reply
from tests.openai_server import OpenAIServer, chat
from tests.project import Outcome, Project

pytestmark = [pytest.mark.slow, pytest.mark.needs("vendors")]  # whole builds

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-story", "OPENAI_API_KEY": "sk-story", "ORCH23_TRUST": "1"}
# The server says at once that it will be down for longer than a build waits.
DOWN = error_reply(529, "overloaded_error", "overloaded", {"retry-after": "7200"})
PIPELINE = """\
version: 1
name: story
prices: {claude-story: {input: 1, output: 5}, gpt-story: {input: 2, output: 10}}
defaults:
  llm:
    provider: anthropic
    model: claude-story
    base_url: "CLAUDE"
    endpoint_alias: claude
    effort: low
    transcripts: recorded
    returns: text
    fallback:
      - {provider: openai, model: gpt-story, base_url: "GPT", endpoint_alias: gpt, effort: high}
stages:
  code: {outputs: [a.txt], llm: {prompt: a.j2}}
"""
MORE = "".join(f"  more{n}: {{outputs: [{n}.txt], needs: [code], llm: {{prompt: {n}.j2}}}}\n" for n in range(3))


@pytest.fixture
def claude() -> Iterator[Loopback]:
    """Return a server of Anthropic's interface that is down, after the replies that it is given."""
    with loopback(rule=lambda _asked: DOWN) as server:
        yield server


@pytest.fixture
def gpt() -> Iterator[OpenAIServer]:
    """Return a server of OpenAI's interface that responds."""
    with OpenAIServer(rule=lambda _asked: chat("from the fallback")) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, claude: Loopback, gpt: OpenAIServer) -> Project:
    """Return the project."""
    return written(tmp_path / "p", claude, gpt)


def written(root: Path, claude: Loopback, gpt: OpenAIServer, text: str = PIPELINE) -> Project:
    prompts = {f"{name}.j2": f"Write {name}." for name in "a012"}
    return Project(root).write({"pipeline.yaml": text.replace("CLAUDE", claude.url).replace("GPT", gpt.url), **prompts})


def built(outcome: Outcome) -> Outcome:
    assert outcome.code == ExitCode.OK, outcome.err
    return outcome


def exchanges(project: Project) -> list[dict[str, str]]:
    found = [json.loads(path.read_text()) for path in (project.root / "recorded").glob("*.json")]
    return [one["request"] for one in found]


def test_a_fallback_responds_while_the_provider_is_down(project: Project, claude: Loopback, gpt: OpenAIServer) -> None:
    first = built(project.build(env=KEYS))
    assert project.read("a.txt").strip() == "from the fallback"
    assert (len(claude.asked), len(gpt.asked)) == (1, 1)
    (asked,) = gpt.asked
    assert (asked.body["model"], asked.body["reasoning_effort"]) == ("gpt-story", "high")
    assert asked.body["messages"][-1]["content"] == "Write a."
    # The screen, the journal and `show` say who responded, the exchange and the price are the fallback's.
    assert "E417" not in first.err
    assert "requires a wait of 2h 00m" in first.err
    assert "calls the fallback openai gpt-story" in first.err
    assert "1 response of a fallback" in first.err + first.out
    (started,) = project.events_of("run_started")
    assert started["data"]["model"] == ["claude-story", "gpt-story"]
    (response,) = project.events_of("llm_response")
    assert (response["data"]["fallback"], response["data"]["cost"]) == (True, "0.000064")
    assert "of the fallback openai gpt-story" in response["message"]
    assert "by the fallback openai gpt-story" in project.run("show", "code").out
    assert "response received of the fallback openai gpt-story" in project.run("log").out
    assert [(one["provider"], one["model"]) for one in exchanges(project)] == [("openai", "gpt-story")]


def test_its_response_stays_until_it_is_sampled_again(
    tmp_path: Path, project: Project, claude: Loopback, gpt: OpenAIServer
) -> None:
    built(project.build(env=KEYS))
    assert project.plan()["code"] == "fresh"
    built(project.build(env=KEYS))
    # Without a store, as in CI: from the transcripts, without a key and without a call.
    clone = written(tmp_path / "clone", claude, gpt)
    recorded = {path: data for path, data in project.files().items() if path.startswith("recorded/")}
    clone.write(recorded)
    shown = clone.run("plan", "--json").json()["stages"][0]["estimate"]
    assert shown["saved"]["calls"] == 1
    for arguments in (["--replay"], ["--offline"], []):
        built(clone.build(*arguments, "--force", "code"))
        assert clone.read("a.txt").strip() == "from the fallback"
        assert "sk-" not in str(clone.files())
    clone.replace("pipeline.yaml", "returns: text", "returns: text\n    mode: replay")
    built(clone.build("--force", "code"))
    assert (len(claude.asked), len(gpt.asked)) == (1, 1)
    # The provider is up again, and a new sample is wanted.
    claude.add(message_reply("from the provider"))
    built(project.build("--resample", "code", env=KEYS))
    assert project.read("a.txt").strip() == "from the provider"
    assert (len(claude.asked), len(gpt.asked)) == (2, 1)
    again = written(tmp_path / "again", claude, gpt)
    again.write({path: data for path, data in project.files().items() if path.startswith("recorded/")})
    built(again.build("--replay"))
    assert again.read("a.txt").strip() == "from the provider"


def test_a_new_sample_of_a_fallback_replaces_its_former_one(
    tmp_path: Path, project: Project, claude: Loopback, gpt: OpenAIServer
) -> None:
    built(project.build(env=KEYS))
    gpt.replies = [chat("the second")]
    built(project.build("--resample", "code", env=KEYS))
    assert (len(claude.asked), len(gpt.asked)) == (2, 2)
    clone = written(tmp_path / "clone", claude, gpt)
    clone.write({path: data for path, data in project.files().items() if path.startswith("recorded/")})
    built(clone.build("--replay"))
    assert clone.read("a.txt").strip() == "the second"


def test_an_outage_is_waited_for_once_in_a_run(tmp_path: Path, claude: Loopback, gpt: OpenAIServer) -> None:
    project = written(tmp_path / "p", claude, gpt, PIPELINE + MORE)
    claude.add(*[Reply(500, {"retry-after-ms": "1"})] * 12)
    built(project.build("-j1", env=KEYS))
    assert (len(claude.asked), len(gpt.asked)) == (3, 4)


def test_a_required_wait_of_more_than_a_minute_is_an_outage_only_if_there_is_a_fallback_to_call(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    claude.add(*[error_reply(529, "overloaded_error", "overloaded", {"retry-after": "90"})] * 2)
    text = f"{PIPELINE}    stop_conditions: {{max_wall: 80s}}\n".replace("code: {", "code:\n    ").replace(
        "outputs: [a.txt], llm: {prompt: a.j2}}", "outputs: [a.txt]\n    llm: {prompt: a.j2}"
    )
    near = built(written(tmp_path / "p", claude, gpt, text).build(env=KEYS))
    assert "longer than the 1m 00s that a build waits" in near.err
    far = text.replace(', base_url: "GPT", endpoint_alias: gpt', "")
    env = {name: value for name, value in KEYS.items() if name != "OPENAI_API_KEY"}
    failed = written(tmp_path / "q", claude, gpt, far).build(env=env)
    assert "that `max_wall` leaves" in failed.err


def test_a_call_that_took_too_long_goes_to_the_fallback_and_is_repeated_if_there_is_none(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    claude.add(Reply(hold=True), Reply(hold=True), message_reply("from the provider"))
    slow = PIPELINE.replace("returns: text", "returns: text\n    timeout: 0.5s").replace(
        "  llm:\n", "  retry: 1\n  llm:\n"
    )
    near = written(tmp_path / "p", claude, gpt, slow)
    built(near.build(env=KEYS))
    assert near.read("a.txt").strip() == "from the fallback"
    far = written(tmp_path / "q", claude, gpt, slow.replace(', base_url: "GPT", endpoint_alias: gpt', ""))
    built(far.build(env={name: value for name, value in KEYS.items() if name != "OPENAI_API_KEY"}))
    assert far.read("a.txt").strip() == "from the provider"


def test_a_new_sample_of_a_fallback_replaces_the_response_of_the_provider(
    tmp_path: Path, project: Project, claude: Loopback, gpt: OpenAIServer
) -> None:
    claude.add(message_reply("from the provider"))
    built(project.build(env=KEYS))
    built(project.build("--resample", "code", env=KEYS))
    assert project.read("a.txt").strip() == "from the fallback"
    clone = written(tmp_path / "clone", claude, gpt)
    clone.write({path: data for path, data in project.files().items() if path.startswith("recorded/")})
    built(clone.build("--replay"))
    assert clone.read("a.txt").strip() == "from the fallback"


def test_errors_that_last_are_an_outage(project: Project, claude: Loopback, gpt: OpenAIServer) -> None:
    claude.add(*[Reply(500, {"retry-after-ms": "1"})] * 3)
    built(project.build(env=KEYS))
    assert (len(claude.asked), len(gpt.asked)) == (3, 1)
    # Three calls may have been charged, one is known.
    (ended,) = project.events_of("stage_finished")
    assert ended["data"]["cost"] == "0.000064"
    assert float(ended["data"]["possible_cost"]) > 0.16


def test_a_server_that_is_gone_is_an_outage(project: Project, claude: Loopback, gpt: OpenAIServer) -> None:
    claude.close()
    built(project.build(env=KEYS))
    assert len(gpt.asked) == 1


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (400, "invalid_request_error", "no such parameter"),
        (401, "authentication_error", "wrong key"),
        (400, "invalid_request_error", "Your credit balance is too low"),
    ],
)
def test_a_refused_request_a_key_and_an_empty_account_are_no_outage(
    project: Project, claude: Loopback, gpt: OpenAIServer, status: int, kind: str, message: str
) -> None:
    claude.add(error_reply(status, kind, message))
    failed = project.build(env=KEYS)
    assert failed.code != ExitCode.OK
    assert message in failed.err
    assert gpt.asked == []


def test_a_refusal_of_the_model_is_no_outage(project: Project, claude: Loopback, gpt: OpenAIServer) -> None:
    claude.add(message_reply("", stop="refusal"))
    assert project.build(env=KEYS).code == ExitCode.FAILED
    assert gpt.asked == []


@pytest.mark.needs("doctor")
def test_a_fallback_without_a_key_is_a_warning_as_long_as_the_provider_works(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    far = PIPELINE.replace(', base_url: "GPT", endpoint_alias: gpt', "")
    project = written(tmp_path / "p", claude, gpt, far)
    env = {name: value for name, value in KEYS.items() if name != "OPENAI_API_KEY"}
    claude.add(message_reply("from the provider"))
    warned = built(project.build(env=env))
    assert "the fallback openai gpt-story cannot be called" in warned.err
    assert "OPENAI_API_KEY" in warned.err
    found = {one["name"]: one["ok"] for one in project.run("doctor", "--json", env=env).json()["facts"]}
    assert (found["model anthropic claude-story"], found["model openai gpt-story"]) == (True, False)
    # Both are named if neither can be called.
    failed = project.build("--resample", "code", env=env)
    assert failed.code != ExitCode.OK
    assert "requires a wait of 2h 00m" in failed.err
    assert "OPENAI_API_KEY" in failed.err


def test_nothing_is_sent_to_a_fallback_without_consent(project: Project, claude: Loopback, gpt: OpenAIServer) -> None:
    near = gpt.url.removesuffix("/v1")
    shown = project.run("trust", env={**KEYS, "ORCH23_TRUST": ""})
    assert near in shown.out + shown.err
    without = (
        project.read("pipeline.yaml").partition("    fallback:")[0] + "stages:\n" + PIPELINE.partition("stages:\n")[2]
    )
    project.run("trust", "--revoke")
    whole = project.read("pipeline.yaml")
    project.edit("pipeline.yaml", without)
    built(project.run("trust", env={**KEYS, "ORCH23_TRUST": ""}))
    project.edit("pipeline.yaml", whole)
    failed = project.build(env={**KEYS, "ORCH23_TRUST": ""})
    assert failed.code != ExitCode.OK
    assert "the fallback openai gpt-story cannot be called: you have not allowed" in failed.err
    assert gpt.asked == []
    assert len(claude.asked) == 1


def test_the_price_of_a_fallback_must_be_known_under_a_limit_of_cost(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    text = PIPELINE.replace(", gpt-story: {input: 2, output: 10}", "")
    refused = written(tmp_path / "p", claude, gpt, f"{text}stop_conditions: {{max_cost_usd: 3}}\n").build(env=KEYS)
    assert "the price of openai `gpt-story` is not known" in refused.err
    assert claude.asked == []


def test_the_bound_of_a_plan_is_that_of_the_dearest(tmp_path: Path, claude: Loopback, gpt: OpenAIServer) -> None:
    alone = PIPELINE.partition("    fallback:")[0] + "stages:\n" + PIPELINE.partition("stages:\n")[2]
    bounds = [
        float(
            written(tmp_path / name, claude, gpt, text)
            .run("plan", "--json")
            .json()["stages"][0]["estimate"]["cost_usd"]["max"]
        )
        for name, text in (("p", PIPELINE), ("q", alone))
    ]
    # A response of the fallback that is cut off, and one with twice the tokens.
    assert bounds[0] > (32_000 + 64_000) * 10 / 1_000_000 > 32_000 * 10 / 1_000_000 > bounds[1]


def test_the_list_is_in_the_key_only_if_there_is_one(project: Project, claude: Loopback, gpt: OpenAIServer) -> None:
    built(project.build(env=KEYS))
    assert project.plan()["code"] == "fresh"
    project.replace("pipeline.yaml", gpt.url, "http://127.0.0.1:9/v1")  # the alias is in the key, not the address
    assert project.plan()["code"] == "fresh"
    project.replace("pipeline.yaml", "model: gpt-story", "model: gpt-other")
    assert "openai gpt-other" in (shown := project.run("plan", "--verbose").out), shown
    assert project.plan()["code"] == "run"
    assert "fallback" in project.run("show", "code", "--key").out


def test_all_errors_of_entries_come_at_once_with_their_places(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    wrong = PIPELINE.replace(
        "    fallback:\n", "    fallback:\n      - {}\n      - claude-story\n      - {provider: local}\n"
    ).replace("effort: high}", "effort: high, max_token: 3}")
    refused = written(tmp_path / "p", claude, gpt, wrong).run("validate")
    assert refused.code == ExitCode.INVALID
    assert "max_token" in refused.err
    wrong = wrong.replace(", max_token: 3", ", thinking: adaptive")
    refused = written(tmp_path / "q", claude, gpt, wrong).run("validate")
    for line, said in (
        (14, "the entry states nothing"),
        (15, "is what `llm` itself calls"),
        (16, "`model` is missing"),
    ):
        assert said in refused.err
        assert f"pipeline.yaml:{line}:" in refused.err
    unknown = PIPELINE.replace("effort: high}", "thinking: adaptive}\n      - {provider: gtp, model: m}")
    refused = written(tmp_path / "r", claude, gpt, unknown).run("validate")
    for line, said in ((14, "the provider `openai` does not have `thinking`"), (15, "there is no provider `gtp`")):
        assert said in refused.err
        assert f"pipeline.yaml:{line}:" in refused.err


def test_the_command_line_drops_the_list_and_says_so(project: Project) -> None:
    for option in (("--model", "other"), ("--provider", "openai")):
        assert f"`{' '.join(option)}` drops `llm.fallback` of code" in project.run("validate", *option).err
