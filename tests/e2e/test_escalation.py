"""`retry.escalate` with settings: another provider, model, effort or token limit for an attempt."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.model.errors import ExitCode
from tests.loopback import Loopback, loopback, message_reply
from tests.openai_server import OpenAIServer, chat
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.needs("vendors")]  # whole builds

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-story", "OPENAI_API_KEY": "sk-story", "ORCH23_TRUST": "1"}
PIPELINE = """\
version: 1
name: story
prices: {claude-story: {input: 1, output: 5}, gpt-story: {input: 2, output: 10}}
defaults:
  llm: {provider: anthropic, model: claude-story, base_url: "CLAUDE", endpoint_alias: claude, effort: low}
stages:
  code:
    outputs: [a.txt]
    llm: {prompt: p.j2, returns: text}
    retry:
      max: 2
      escalate:
        - claude-story
        - {effort: max, max_tokens: 9000}
        - {provider: openai, model: gpt-story, base_url: "GPT", effort: high}
    verify:
      - shell: ["python3", "-c", "import sys; sys.exit('good' not in open('a.txt').read())"]
"""


@pytest.fixture
def claude() -> Iterator[Loopback]:
    """Return a server of Anthropic's interface."""
    with loopback() as server:
        yield server


@pytest.fixture
def gpt() -> Iterator[OpenAIServer]:
    """Return a server of OpenAI's interface."""
    with OpenAIServer(rule=lambda _asked: chat("good")) as server:
        yield server


def written(root: Path, claude: Loopback, gpt: OpenAIServer, text: str = PIPELINE) -> Project:
    files = {"pipeline.yaml": text.replace("CLAUDE", claude.url).replace("GPT", gpt.url), "p.j2": "Write a.txt."}
    return Project(root).write(files)


def test_each_attempt_is_sent_with_the_settings_of_its_entry(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    claude.add(message_reply("bad"), message_reply("worse"))
    project = written(tmp_path / "p", claude, gpt)
    built = project.build(env=KEYS)
    assert built.code == ExitCode.OK, built.err
    first, second = (asked.json() for asked in claude.asked)
    assert (first["output_config"]["effort"], second["output_config"]["effort"]) == ("low", "max")
    assert (first["max_tokens"], second["max_tokens"]) == (32_000, 9000)
    (third,) = gpt.asked
    assert (third.body["model"], third.body["reasoning_effort"]) == ("gpt-story", "high")
    assert third.headers["authorization"] == "Bearer sk-story"
    # The address of the stage's own server is not that of another provider.
    assert claude.url not in str(project.events_of("llm_request")[2])
    asked = [(one["data"]["provider"], one["data"]["model"]) for one in project.events_of("llm_request")]
    assert asked == [("anthropic", "claude-story")] * 2 + [("openai", "gpt-story")]
    # 7 tokens of input, 5 of output: each by the prices of its model.
    assert project.events_of("llm_response")[2]["data"]["cost"] == "0.000064"
    project.delete("a.txt")
    assert project.build("--replay").code == ExitCode.OK
    assert (len(claude.asked), len(gpt.asked)) == (2, 1)


def test_a_refusal_goes_to_the_next_entry_also_of_another_provider(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    claude.add(message_reply("", stop="refusal"))
    project = written(tmp_path / "p", claude, gpt, PIPELINE.replace("        - {effort: max, max_tokens: 9000}\n", ""))
    built = project.build(env=KEYS)
    assert built.code == ExitCode.OK, built.err
    assert (len(claude.asked), len(gpt.asked)) == (1, 1)
    assert gpt.asked[0].body["messages"][-1]["content"] == "Write a.txt."


def test_another_effort_of_the_same_model_is_another_entry(tmp_path: Path, claude: Loopback, gpt: OpenAIServer) -> None:
    claude.add(message_reply("", stop="refusal"), message_reply("good"))
    built = written(tmp_path / "p", claude, gpt).build(env=KEYS)
    assert built.code == ExitCode.OK, built.err
    assert [asked.json()["output_config"]["effort"] for asked in claude.asked] == ["low", "max"]


def test_the_first_entry_is_in_the_key_and_later_ones_are_not(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    claude.add(message_reply("good"))
    project = written(tmp_path / "p", claude, gpt)
    assert project.build(env=KEYS).code == ExitCode.OK
    project.replace("pipeline.yaml", "effort: max, max_tokens: 9000", "effort: medium")
    assert project.plan()["code"] == "fresh"
    # A name and a mapping with the name alone are the same.
    project.replace("pipeline.yaml", "- claude-story", "- {model: claude-story}")
    assert project.plan()["code"] == "fresh"
    project.replace("pipeline.yaml", "- {model: claude-story}", "- {model: claude-story, effort: high}")
    assert project.plan()["code"] == "run"


def test_a_key_or_consent_for_a_later_entry_is_missed_before_the_first_call(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    far = PIPELINE.replace(', base_url: "GPT"', "")
    project = written(tmp_path / "p", claude, gpt, far)
    refused = project.build(env={name: value for name, value in KEYS.items() if name != "OPENAI_API_KEY"})
    assert refused.code == ExitCode.CONFIG
    assert "E412" in refused.err
    assert "OPENAI_API_KEY" in refused.err
    offline = project.build("--offline", env=KEYS)
    assert "openai gpt-story is not on this machine" in offline.err
    near = written(tmp_path / "q", claude, gpt)
    near.run("trust", "--revoke")
    refused = near.build(env={**KEYS, "ORCH23_TRUST": ""})
    assert refused.code == ExitCode.CONSENT
    assert "OPENAI_API_KEY" in refused.err
    assert gpt.url.removesuffix("/v1") in refused.err
    assert claude.asked == []


def test_the_price_of_a_later_entry_must_be_known_under_a_limit_of_cost(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    text = PIPELINE.replace(", gpt-story: {input: 2, output: 10}", "")
    project = written(tmp_path / "p", claude, gpt, f"{text}stop_conditions: {{max_cost_usd: 3}}\n")
    refused = project.build(env=KEYS)
    assert "the price of openai `gpt-story` is not known" in refused.err
    assert claude.asked == []


@pytest.mark.needs("doctor")
def test_plan_and_doctor_know_every_entry(tmp_path: Path, claude: Loopback, gpt: OpenAIServer) -> None:
    project = written(tmp_path / "p", claude, gpt)
    shown = project.run("plan", "--json", env=KEYS).json()
    # The bound has the third attempt at the prices of its own model.
    cheap = written(tmp_path / "q", claude, gpt, PIPELINE.replace("{input: 2, output: 10}", "{input: 0, output: 0}"))
    bound, less = (
        float(one["stages"][0]["estimate"]["cost_usd"]["max"]) for one in (shown, cheap.run("plan", "--json").json())
    )
    assert bound - less > 32_000 * 10 / 1_000_000
    found = project.run("doctor", "--json", env=KEYS).json()["facts"]
    assert [one["name"] for one in found if one["name"].startswith(("model a", "model o"))] == [
        "model anthropic claude-story",
        "model openai gpt-story",
    ]


def test_all_errors_of_entries_come_at_once_with_their_places(
    tmp_path: Path, claude: Loopback, gpt: OpenAIServer
) -> None:
    text = PIPELINE.replace("{effort: max, max_tokens: 9000}", "{effort: max, thinking: never}")
    text = text.replace("effort: high}", "effort: high, thinking: adaptive}")
    refused = written(tmp_path / "p", claude, gpt, text).run("validate")
    assert refused.code == ExitCode.INVALID
    assert "pipeline.yaml:14:" in refused.err  # no mode of anthropic
    assert "pipeline.yaml:15:" in refused.err  # openai has no thinking
    wrong = PIPELINE.replace("- claude-story", "- {}").replace("{effort: max, max_tokens: 9000}", "{provider: openai}")
    wrong = wrong.replace('base_url: "GPT"', "base_url: ftp://x, max_tokens: 0")
    refused = written(tmp_path / "q", claude, gpt, wrong).run("validate")
    assert refused.code == ExitCode.INVALID
    for line, said in ((13, "the entry states nothing"), (14, "`model` is missing"), (15, "ftp://x")):
        assert said in refused.err
        assert f"pipeline.yaml:{line}:" in refused.err


def test_the_command_line_drops_the_entries_and_says_so(tmp_path: Path, claude: Loopback, gpt: OpenAIServer) -> None:
    project = written(tmp_path / "p", claude, gpt)
    claude.add(message_reply("good"))
    assert "`--model other` drops `retry.escalate` of code" in project.run("validate", "--model", "other").err
    # Names alone would be models of the other provider; an entry with settings may have a provider of its own.
    assert "`--provider openai` drops `retry.escalate` of code" in project.run("validate", "--provider", "openai").err
