"""Who is asked, how often and for how much, as a command line says it."""

import json
import re

import pytest

from tests.e2e.pipelines import calls, green, pipeline, prompt
from tests.project import Project

pytestmark = pytest.mark.needs("vendors", "local")

ONE = """\
  a: {llm: {prompt: a.j2, returns: text}, outputs: [a.txt]}
  each:
    foreach: {in: [u, v], as: n}
    llm: {prompt: each.j2, returns: text}
    retry: {max: 1, escalate: [echo, louder]}
    outputs: ["${{ n }}.txt"]
"""
FILES = {"a.j2": prompt("a", "A"), "each.j2": prompt("{{ item }}", "{{ item }}!")}

HOSTED = """\
version: 1
name: hosted
defaults:
  llm: {provider: openai, model: gpt-9, prompt: p.j2, returns: text}
stages:
  a: {llm: {effort: high, api: chat, base_url: "http://127.0.0.1:9/v1"}, outputs: [a.txt]}
  b: {llm: {api: chat, seed: 4}, outputs: [b.txt]}
  each: {foreach: {in: [u], as: n}, llm: {endpoint_alias: e}, outputs: ["${{ n }}.txt"]}
"""


def hosted(project: Project) -> Project:
    return project.write({"pipeline.yaml": HOSTED, "p.j2": "hello"})


def asked(project: Project, *argv: str, env: dict[str, str] | None = None) -> tuple[list[str], list[str]]:
    outcome = project.run("plan", "--json", *argv, env=env)
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    return document["providers"], document["models"]


# ---- --provider and --model -------------------------------------------------------------------


def test_a_provider_and_a_model_are_asked_in_place_of_those_of_the_pipeline(project: Project) -> None:
    hosted(project)
    reported = project.run("plan", "--provider", "local", "--model", "smollm2")
    assert reported.code == 0, reported.err
    assert "provider local smollm2" in reported.out
    assert reported.err.count("note[W802]") == 1
    assert (
        "`--provider local` drops `api`, `base_url`, `effort`, `endpoint_alias`, `seed` of a, b, each" in reported.err
    )
    same = project.run("plan", "--provider", "openai")
    assert same.code == 0, same.err
    assert "W802" not in same.err


@pytest.mark.needs("inspecting")
def test_the_same_flags_mean_the_same_to_each_command(project: Project) -> None:
    hosted(project)
    flags = ("--provider", "local", "--model", "smollm2")
    note = project.run("plan", *flags).err
    assert note
    for command in (("status",), ("explain", "b"), ("validate",), ("build", "-n")):
        outcome = project.run(*command, *flags)
        assert outcome.code == 0, outcome.err
        assert outcome.err == note, command
    for command, code in ((("show", "b"), 66), (("accept", "b"), 64)):
        outcome = project.run(*command, *flags)
        assert outcome.code == code, outcome.err
        assert outcome.err.startswith(note), command


@pytest.mark.slow
def test_a_build_with_another_model_is_another_build(project: Project) -> None:
    project.write(pipeline(ONE, FILES))
    green(project.build())
    assert sorted(calls(project)) == ["a", "u", "v"]
    assert project.plan("--model", "other") == {"a": "run", "each@u": "run", "each@v": "run"}
    reported = project.build("--model", "other")
    green(reported)
    assert "`--model other` drops `retry.escalate` of each" in reported.err
    assert sorted(calls(project)) == ["a", "a", "u", "u", "v", "v"]
    assert {event["data"]["model"] for event in project.events_of("llm_request")} == {"other"}
    assert set(project.plan("--model", "other").values()) == {"fresh"}
    green(project.build("--model", "other"))
    green(project.build())
    assert len(calls(project)) == 6


def test_an_unknown_provider_is_the_error_that_it_is_in_yaml(project: Project) -> None:
    hosted(project)
    for command in ("plan", "build", "status", "validate"):
        refused = project.run(command, "--provider", "scriptd")
        assert refused.code == 65, refused.err
        assert refused.err.startswith("error[E405]: there is no provider `scriptd`\n"), refused.err
        assert re.search(r"did you mean `(orch23 .*--provider )?scripted`\?", refused.err), refused.err
    project.replace("pipeline.yaml", "provider: openai", "provider: scriptd")
    assert "error[E405]: there is no provider `scriptd`" in project.build().err


def test_what_a_provider_needs_is_not_made_up(project: Project) -> None:
    hosted(project)
    refused = project.build("--provider", "command")
    assert refused.code == 65
    assert refused.err.count("error[E407]") == 1, refused.err  # it is written once, in `defaults`
    assert "llm.command" in refused.err or "`command" in refused.err


def test_the_environment_gives_flags_and_nothing_else(project: Project) -> None:
    hosted(project)
    local = {"ORCH23_PROVIDER": "local", "ORCH23_MODEL": "smollm2"}
    first = project.run("plan", env=local)
    assert "provider local smollm2" in first.out
    assert (
        "provider local smollm2" in project.run("plan", env={f"ORCH23_PLAN_{n[7:]}": v for n, v in local.items()}).out
    )
    keys = {
        "ANTHROPIC_API_KEY": "k",
        "OPENAI_BASE_URL": "http://127.0.0.1:1",
        "OPENAI_API_KEY": "k",
        "ANTHROPIC_MODEL": "m",
    }
    named = " requests go to http://127.0.0.1:1, from OPENAI_BASE_URL\n"
    assert project.run("plan", env=keys).out.replace(named, "", 1) == project.run("plan").out
    assert project.run("plan", "--provider", "openai", "--model", "gpt-9", env=local).out == project.run("plan").out


@pytest.mark.parametrize("flag", ["--provider", "--model"])
def test_a_flag_that_names_no_one_is_a_usage_error(project: Project, flag: str) -> None:
    hosted(project)
    refused = project.build(flag, " ")
    assert refused.code == 64
    assert f"`{flag}` must not be empty" in refused.err


# ---- --budget ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "0.00", "-1", "much", "1e3", "$2", "", "nan", "1,50"])
@pytest.mark.parametrize("command", ["build", "plan"])
def test_a_budget_is_dollars(project: Project, command: str, text: str) -> None:
    project.write(pipeline(ONE, FILES))
    refused = project.run(command, "--budget", text)
    assert refused.code == 64, refused.err
    assert refused.err.startswith(f"error[E641]: `--budget` must be greater than 0, not `{text}`\n")
    assert "--budget 2.50" in refused.err
    assert not project.exists("logs")


def test_a_budget_of_the_command_line_stands_in_the_place_of_the_pipelines(project: Project) -> None:
    project.write(pipeline(ONE, FILES, head="stop_conditions: {max_cost_usd: 0.30}\n"))
    for budget in ("0.1", "2"):
        reported = project.run("plan", "--json", "--budget", budget)
        assert reported.code == 0, reported.err
        assert float(json.loads(reported.out)["max_cost_usd"]) == float(budget)


@pytest.mark.slow
@pytest.mark.usefixtures("priced_programs")
def test_a_budget_on_the_command_line_is_the_runs(project: Project) -> None:
    price = "prices: {command/echo: {input: 1, output: 1}, louder: {input: 1, output: 1}}\n"
    project.write(pipeline(ONE, FILES, head=price))
    refused = project.build("--budget", "0.000001")
    assert refused.code == 4, refused.err
    assert calls(project) == []
    green(project.build("--budget", "100"))
    assert sorted(calls(project)) == ["a", "u", "v"]


# ---- --offline, --resample, --replay ----------------------------------------------------------


@pytest.mark.slow
def test_resample_asks_again_and_nothing_else_does(project: Project) -> None:
    project.write(pipeline(ONE, FILES))
    green(project.build())
    green(project.build("--force", "a"))
    assert sorted(calls(project)) == ["a", "u", "v"]
    assert project.plan("--force", "a")["a"] == "run"
    green(project.build("--resample", "a"))
    assert sorted(calls(project)) == ["a", "a", "u", "v"]
    green(project.build("--resample", "each@u"))
    assert sorted(calls(project)) == ["a", "a", "u", "u", "v"]
    green(project.build("--resample", "each", "--resample", "a"))
    assert sorted(calls(project)) == ["a", "a", "a", "u", "u", "u", "v", "v"]
    green(project.build())
    assert len(calls(project)) == 8


def test_resample_of_no_stage_is_not_found(project: Project) -> None:
    project.write(pipeline(ONE, FILES))
    for argv in (("--resample", "ech"), ("-n", "--resample", "ech"), ("--resample", "a", "--resample", "ech")):
        refused = project.build(*argv)
        assert refused.code == 66, refused.err
        assert "no stage is named `ech`" in refused.err
    assert calls(project) == []


@pytest.mark.slow
def test_a_dry_run_says_what_a_resample_runs(project: Project) -> None:
    project.write(pipeline(ONE, FILES))
    green(project.build())
    reported = project.build("-n", "--json", "--resample", "each@u")
    actions = {one["stage"]: one["action"] for one in json.loads(reported.out)["stages"]}
    assert actions == {"a": "fresh", "each@u": "run", "each@v": "fresh"}


@pytest.mark.parametrize("other", [("--resample", "a"), ("--offline",)])
def test_flags_that_contradict_each_other_are_refused(project: Project, other: tuple[str, ...]) -> None:
    project.write(pipeline(ONE, FILES))
    for dry in ((), ("-n",)):
        refused = project.build("--replay", *other, *dry)
        assert refused.code == 64, refused.err
        assert "error[E641]: `--replay` and " in refused.err
        assert "= help: " in refused.err
    assert not project.exists("logs")


# ---- many mistakes ----------------------------------------------------------------------------

MANY = """\
version: 1
name: many
stop_conditions:
  max_cost: 2
  max_tokens: lots
prices:
  gpt-9: {inputs: 1, output: 2, input: 3}
  gpt-8: {input: cheap, output: 2}
  gpt-7: {input: 1}
defaults:
  llm: {provider: openai, model: gpt-9, prompt: p.j2, returns: text}
stages:
  a:
    llm: {api: respnses}
    outputs: [a.txt]
  b:
    llm: {on_truncated: {retires: 1}}
    outputs: [b.txt]
  c:
    llm: {on_truncated: {factor: 9}}
    outputs: [c.txt]
  d:
    llm: {secrets: redcat}
    outputs: [d.txt]
  e:
    llm: {}
    stop_conditions: {max_failed_stages: 1}
    outputs: [e.txt]
  each:
    foreach: {in: [1], as: n}
    llm: {}
    stop_conditions: {max_cost_usd: free}
    outputs: ["f.txt"]
"""
PLACES = {
    "4:3": "max_cost_usd",
    "5:15": "2M",
    "7:11": "`input`",
    "8:18": "2.50",
    "9:3": "`output: ",
    "14:16": "responses",
    "17:26": "retries",
    "20:34": "2 to 8",
    "23:20": "redact",
    "27:23": "max_",
    "32:37": "dollars",
}


@pytest.mark.parametrize("command", ["validate", "build", "plan"])
def test_all_mistakes_in_these_keys_are_named_in_one_run(project: Project, command: str) -> None:
    project.write({"pipeline.yaml": MANY, "p.j2": "x"})
    refused = project.run(command)
    assert refused.code == 65
    blocks = {
        place: block for place in PLACES for block in refused.err.split("\n\n") if f"pipeline.yaml:{place}\n" in block
    }
    assert [place for place in PLACES if place not in blocks] == [], refused.err
    for place, word in PLACES.items():
        assert "= help: " in blocks[place], blocks[place]
        assert word in blocks[place].partition("= help: ")[2], blocks[place]
    assert refused.err.count("error[") == len(PLACES), refused.err


ITEMS = {
    "a static list": "foreach: {in: [u, v]}, llm: {provider: opanai}",
    "a list that is made": "foreach: {from: list.json}, llm: {provider: opanai}",
    "items that differ": "foreach: {in: [opanai]}, llm: {provider: '${{ item }}'}",
}


@pytest.mark.parametrize("form", ITEMS)
def test_the_provider_of_a_foreach_is_checked_before_it_has_items(project: Project, form: str) -> None:
    text = "version: 1\ndefaults: {llm: {model: m, prompt: p.j2, returns: text}}\nstages:\n"
    text += "  list: {shell: \"echo '[1]' > list.json\", outputs: [list.json]}\n"
    project.write(
        {"pipeline.yaml": f"{text}  each: {{{ITEMS[form]}, outputs: ['${{{{ item }}}}.txt']}}\n", "p.j2": "x"}
    )
    for command in ("plan", "build"):
        refused = project.run(command)
        assert refused.code == 65, refused.err
        assert "there is no provider `opanai`" in refused.err
        # A value of a list is not tried in an edited copy: then all are named.
        hint = "use one of: " if "item }}'" in ITEMS[form] else "did you mean `openai`?"
        assert hint in refused.err, refused.err
        assert re.search(r"--> pipeline\.yaml:5:\d+\n", refused.err), refused.err
    assert not project.exists("logs")


# ---- what is in the key -----------------------------------------------------------------------

KEYED = """\
version: 1
name: keyed
stages:
  a:
    outputs: [a.txt]
    llm: {provider: openai, model: m, prompt: p.j2, returns: text}
"""
OUTSIDE = {
    "prices": ("stages:", "prices: {m: {input: 1, output: 2}}\nstages:"),
    "limits of the run": ("stages:", "stop_conditions: {max_cost_usd: 1, max_tokens: 9k, max_wall: 9h}\nstages:"),
    "limits of the stage": ("    outputs", "    stop_conditions: {max_cost_usd: 1, max_llm_calls: 9}\n    outputs"),
    "on_truncated": ("returns: text", "returns: text, on_truncated: {retries: 3, factor: 4}"),
    "secrets": ("returns: text", "returns: text, secrets: redact"),
    "timeout": ("returns: text", "returns: text, timeout: 9s"),
    "retry": ("    outputs", "    retry: 7\n    outputs"),
}
INSIDE = {
    "api": ("returns: text", "returns: text, api: chat"),
    "effort": ("returns: text", "returns: text, effort: high"),
    "max_tokens": ("returns: text", "returns: text, max_tokens: 9k"),
    "model": ("model: m", "model: n"),
    "base_url": ("returns: text", "returns: text, api: responses, base_url: 'http://127.0.0.1:1/v1'"),
}


def key_of(project: Project) -> str:
    outcome = project.run("plan", "--json")
    assert outcome.code == 0, outcome.err
    (stage,) = json.loads(outcome.out)["stages"]
    assert stage["key"]
    return str(stage["key"])


@pytest.mark.parametrize("change", [*OUTSIDE, *INSIDE])
def test_the_key_holds_who_is_asked_and_how_and_no_limit(project: Project, change: str) -> None:
    project.write({"pipeline.yaml": KEYED, "p.j2": "x"})
    before = key_of(project)
    project.replace("pipeline.yaml", *(OUTSIDE | INSIDE)[change])
    assert (key_of(project) == before) is (change in OUTSIDE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["it", "it[*]"])
def test_both_names_of_all_items_of_a_foreach_are_taken_wherever_a_stage_is_named(project: Project, name: str) -> None:
    body = '    outputs: ["t/${{ item }}.txt"]\n    shell: [touch, "t/${{ item }}.txt"]\n'
    for_each = "  it:\n    foreach: {in: [x, y]}\n" + body
    generated = "  gen:\n    foreach: {from: l.json}\n" + body.replace("t/", "g/")
    more = "  l: {outputs: [l.json], shell: 'echo [] > l.json'}\n  last: {needs: ['it[*]'], shell: 'true'}\n"
    project.write({"pipeline.yaml": f"version: 1\nstages:\n{for_each}{generated}{more}"})
    items = ["it@x", "it@y"]
    for arguments, built in (
        (["build", name], items),
        (["build", "--only", name, "-f", name], items),
        (["build", "--downstream", name, "--force", name], [*items, "last"]),
        (["build", name.replace("it", "gen")], ["l"]),
    ):
        assert project.run(*arguments).code == 0
        ends = {e["role"]: e["data"]["status"] for e in project.events_of("stage_finished")}
        assert sorted(n for n, status in ends.items() if status == "built") == sorted(built)
    assert project.run("plan", "--force", name, name).out.count("it@") == 2
    unknown = project.build("no[*]")
    assert (unknown.code, "E823" in unknown.err) == (66, True)
