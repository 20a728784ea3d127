"""What a model costs is on every screen: in the plan before, in its stage's line, in the sum, and what is saved."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.catalogue.server import Reply, Replying, chat, error, replying
from tests.e2e.pipelines import of_any_tier, pipeline, prompt
from tests.gold import Golden
from tests.project import Outcome, Project, scripted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("vendors"),
]  # whole builds, many of them: `make test` runs them, `make check` does not

ANSWER = Reply(chat("```python\nX = 1\n```\n", tokens=(4310, 620)))
PRICES = {"small": {"input": 3, "output": 15}}
KEY = {"OPENAI_API_KEY": "a-key-for-tests"}


def paid(project: Project, server: Replying, **top: Any) -> Project:
    """Write a pipeline of a model that costs something, and of a command after it."""
    asked = {"provider": "openai", "model": "small", "base_url": server.url, "endpoint_alias": "ours"}
    stages: dict[str, dict[str, Any]] = {
        "code": {
            "inputs": ["spec.md"],
            "outputs": ["app.py"],
            "llm": {**asked, "returns": "code", "prompt": "p.j2", "max_tokens": 2000},
            "retry": 1,
        },
        "list": {"inputs": ["app.py"], "outputs": ["names.txt"], "shell": "grep -o '^[A-Z]' app.py > names.txt"},
    }
    files = scripted(stages, {}, defaults={}, **{"prices": PRICES, "stop_conditions": {"max_cost_usd": 1.5}, **top})
    return project.write({**files, "p.j2": "{{ inputs[0].text }}", "spec.md": "Write X.\n" * 400})


def masked(text: str) -> str:
    """Return a screen without durations, run ids and sandbox."""
    text = of_any_tier(text)
    text = re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{8}(-\d+)?", "RUN", text)
    text = re.sub(r"(under |~)[\dhms ]+ \(median", "TIME (median", text)
    return re.sub(r" +\d+\.\ds\b", lambda found: "0.0s".rjust(len(found.group())), text)


def held(golden: Golden, name: str, *outcomes: Outcome) -> None:
    golden.check(f"cli/money-{name}.txt", "".join(masked(f"exit {o.code}\n{o.out}{o.err}") for o in outcomes))


def test_money_is_reported_before_and_after(project: Project, golden: Golden) -> None:
    with replying(ANSWER, error(429, retry_after="0"), ANSWER) as server:
        paid(project, server)
        held(golden, "first", project.run("plan", env=KEY), project.build("-j1", env=KEY))
        project.edit("spec.md", "Write X, please.\n" * 300)
        held(golden, "edited", project.run("plan", env=KEY), project.build("-j1", env=KEY))
        project.edit("spec.md", "Write X.\n" * 400)
        again = ("--force", "code")
        held(golden, "recorded", project.run("plan", *again, env=KEY), project.build("-j1", *again, env=KEY))


def test_the_budget_of_the_command_line_is_the_limit_that_plan_and_build_show(project: Project) -> None:
    with replying(ANSWER) as server:
        paid(project, server)
        assert "; limit $2.50 ·" in project.run("plan", "--budget", "2.5", env=KEY).out
        assert "tokens, $0.0222 of $2.50\n" in project.build("--budget", "2.5", env=KEY).err


def test_an_unknown_price_is_called_unknown_and_never_nothing(project: Project) -> None:
    with replying(ANSWER) as server:
        paid(project, server, prices={}, stop_conditions={})
        reported = project.run("plan", env=KEY).out
        assert " · unknown price · " in reported
        assert "$" not in reported
        reported = project.build(env=KEY).err
        assert "4,310+620 tok   price unknown   app.py" in reported
        assert "4,310+620 tokens, price unknown\n" in reported
        assert "$" not in reported


def test_the_json_of_a_plan_has_the_numbers_of_its_footer(project: Project) -> None:
    with replying(ANSWER) as server:
        paid(project, server)
        assert project.build(env=KEY).code == 0
        project.edit("spec.md", "y" * 4000)
        code, after = project.run("plan", "--json", env=KEY).json()["stages"]
        dry = project.run("build", "-n", "--json", env=KEY).json()["stages"]
    found = code["estimate"]
    assert (found["input_tokens"], found["output_tokens"], found["earlier_answers"]) == (1000, 620, 1)
    assert found["cost_usd"]["min"] == found["cost_usd"]["likely"] == "0.0123"  # (1000 x 3 + 620 x 15) / 1,000,000
    assert float(found["cost_usd"]["max"]) > 4 * 0.0123
    assert code["llm_calls"] == {"min": 1, "max": 4}  # two attempts, each may be cut off once
    assert after["estimate"]["price"] == "none"
    assert dry == [code, after]


def test_a_fresh_clone_knows_from_its_transcripts_how_much_a_model_writes(project: Project) -> None:
    with replying(ANSWER) as server:
        paid(project, server)
        project.replace("pipeline.yaml", '"returns": "code"', '"transcripts": "answers", "returns": "code"')
        assert project.build(env=KEY).code == 0
        kept = {path: data for path, data in project.files().items() if path not in ("app.py", "names.txt")}
        clone = Project(project.root.parent / "clone").write(kept)
        clone.edit("spec.md", "z" * 400)
        clone.delete("pipeline.lock")
        assert "~100+620 tokens for first attempts" in clone.run("plan", env=KEY).out


_LOADED = """
import sys
from orch23.cli.main import main
assert main(["-C", *sys.argv[1:]]) == 0
print(*(name for name in ("genai_prices", "openai", "anthropic") if name in sys.modules), file=sys.stderr)
"""


def loaded(project: Project, *command: str) -> str:
    """Return which of the heavy libraries a command has loaded."""
    argv = [sys.executable, "-c", _LOADED, str(project.root), *(command or ("plan",))]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        argv, check=True, capture_output=True, text=True, cwd=root, env={"PYTHONPATH": str(root), "ORCH23_TRUST": "1"}
    )
    return done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_plan_loads_the_price_table_only_where_a_priced_model_would_be_asked(project: Project) -> None:
    free = pipeline(
        "  ask:\n    outputs: [a.txt]\n    llm: {prompt: ask.j2, returns: text}\n", {"ask.j2": prompt("ask", "yes")}
    )
    assert loaded(project.write(free)) == ""
    dear = Project(project.root.parent / "dear")
    with replying(ANSWER) as server:
        assert loaded(paid(dear, server, prices={})) == "genai_prices"
        assert loaded(paid(dear, server)) == ""  # its own prices come first


@pytest.mark.stride(3)
@pytest.mark.parametrize("command", [["status"], ["explain", "code"], ["validate"], ["show", "code", "--key"]])
def test_what_shows_no_estimate_loads_no_price_table(project: Project, command: list[str]) -> None:
    with replying() as server:
        assert loaded(paid(project, server, prices={}), *command) == ""


def test_a_build_that_asks_no_one_loads_no_library_of_a_vendor(project: Project) -> None:
    with replying(ANSWER) as server:
        assert paid(project, server).build(env=KEY).code == 0
        assert loaded(project, "build") == ""
        project.delete("app.py")
        assert loaded(project, "build", "--force", "code") == ""


def test_the_events_of_a_build_have_what_the_screen_says(project: Project) -> None:
    with replying(ANSWER) as server:
        reported = paid(project, server).build("--output", "jsonl", env=KEY)
    with replying(ANSWER) as server:
        quiet = paid(Project(project.root.parent / "quiet"), server).build("-q", env=KEY)
    ends = [json.loads(line)["data"] for line in reported.out.splitlines() if '"stage_finished"' in line]
    assert [(end["calls"], end["cost"]) for end in ends] == [(1, "0.02223"), (0, "0")]
    assert (quiet.code, quiet.out) == (0, "")
