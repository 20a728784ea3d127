"""`orch23 show`: every view of a stage that ran, failed, was restored without a run, is an item, or never ran."""

import re
import shutil
from typing import Any

import pytest

from orch23.decide.decisions import DecidedStage, StageDecider
from tests.e2e.pipelines import green, pipeline, prompt, shell
from tests.project import Project, scripted

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

STAGES = """\
  say: {inputs: [spec.md], outputs: [said.txt], llm: {prompt: say.j2, returns: text, system: system.md, transcripts: t}}
  bad:
    inputs: [spec.md]
    outputs: [bad.txt]
    llm: {prompt: bad.j2, returns: text, transcripts: t}
    verify: [{shell: 'echo not good; false'}]
    retry: 1
  each:
    foreach: {in: [x, y]}
    outputs: ['${{ item }}.txt']
    llm: {prompt: each.j2, returns: text, transcripts: t}
  copy: {inputs: [said.txt], outputs: [copied.txt], shell: 'cp said.txt copied.txt; echo copied'}
"""
FILES = {
    "spec.md": "a spec\n",
    "system.md": "be brief",
    "say.j2": prompt("say", "{{ inputs['spec.md'].text }}"),
    "bad.j2": prompt("bad {{ attempt }}", "{{ inputs['spec.md'].text }}{{ attempt }}"),
    "each.j2": prompt("each {{ item }}", "this is {{ item }}"),
}
VIEWS = ("prompt", "response", "diff", "cost", "key")


@pytest.fixture
def built(project: Project) -> Project:
    assert project.write(pipeline(STAGES, FILES)).build("-j1", "-k").code == 1
    return project


def show(project: Project, *argv: str) -> str:
    outcome = project.run("show", *argv)
    green(outcome)
    return outcome.out


def facts(project: Project, *argv: str) -> Any:
    outcome = project.run("show", *argv, "--json")
    green(outcome)
    return outcome.json()


def forget(project: Project, *folders: str) -> None:
    for folder in folders:
        for path in project.root.glob(folder):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_each_view_of_a_stage_that_ran(built: Project) -> None:
    assert show(built, "say", "--prompt") == "be brief\n\nsay\na spec\n"
    assert show(built, "say", "--response") == "a spec\n"
    assert "+a spec" in show(built, "say", "--diff")
    assert "1 call, 0 recorded responses" in show(built, "say", "--cost")
    assert "model  echo" in show(built, "say", "--key")
    everything = show(built, "say")
    assert everything.index("---- prompt, attempt 1 of ") < everything.index("---- response, attempt 1 of ")


def test_the_texts_of_an_edited_prompt_are_compared(built: Project) -> None:
    built.edit("say.j2", prompt("tell", "{{ inputs['spec.md'].text }}"))
    built.edit("system.md", "be long")
    diffs = built.run("explain", "say", "--json").json()["diffs"]
    changed = {one["subject"]: [line for line in one["diff"].splitlines()[2:] if line[0] in "+-"] for one in diffs}
    assert changed == {"prompt": ["-say", "+tell"], "system": ["-be brief", "+be long"]}


def test_all_of_a_command_is_what_it_printed(built: Project) -> None:
    *printed, command, end = show(built, "copy").splitlines()
    assert printed[1] == "copied"
    assert (command[:7], end[:8]) == ("exit 0 ", "built in")
    assert built.run("show", "copy", "--prompt").code == 66


def test_a_command_that_printed_nothing_is_shown_as_that_and_not_with_what_an_earlier_one_printed(
    project: Project,
) -> None:
    green(project.write(shell("  a: {outputs: [a.txt], shell: 'echo said; touch a.txt'}\n")).build())
    assert "\nsaid\n" in show(project, "a")
    green(project.write(shell("  a: {outputs: [a.txt], shell: 'touch a.txt'}\n")).build())
    newest = project.journals()[-1].stem
    command, end = show(project, "a").splitlines()
    assert command.endswith("$ touch a.txt")
    assert end.startswith("built in ")
    assert facts(project, "a")["run"] == newest
    assert not project.exists(f"logs/{newest}/a")


@pytest.mark.parametrize("view", ["prompt", "response"])
def test_the_texts_outlive_artifacts_journals_and_the_local_store(built: Project, view: str) -> None:
    before = show(built, "say", f"--{view}")
    forget(built, "logs/*-*[0-9a-f]")
    assert facts(built, "say", f"--{view}")["attempt"] == 1
    assert show(built, "say", f"--{view}") == before
    forget(built, "logs", ".orch23")
    assert show(built, "say", f"--{view}") == before
    built.delete("pipeline.lock")
    assert show(built, "say", f"--{view}") == before, "what the next build takes"


def test_the_outcome_of_a_response_is_that_of_its_verification(built: Project) -> None:
    assert facts(built, "bad", "--response", "--attempt", "1")["outcome"] == "failed"
    assert "outcome" not in facts(built, "copy")
    transcripts = {path: path.read_bytes() for path in (built.root / "t").rglob("*.json")}
    forget(built, "logs/*-*[0-9a-f]")
    assert facts(built, "bad", "--response", "--attempt", "2")["outcome"] == "failed", "from the journal and the store"
    forget(built, "logs")
    assert facts(built, "bad", "--response")["outcome"] == "failed", "of the next build"
    again = built.build("-j1", "-k")
    assert again.code == 1
    assert "2 responses are recorded" in again.err, "a failed response is used again, and fails in the same way"
    assert {path: path.read_bytes() for path in (built.root / "t").rglob("*.json")} == transcripts


def test_a_stage_restored_without_a_run_is_shown_from_the_transcripts(built: Project) -> None:
    forget(built, "logs", ".orch23", "said.txt")
    assert built.plan()["say"] == "restore"
    reported = facts(built, "say", "--response")
    assert (reported["text"], reported["outcome"]) == ("a spec\n", "accepted")
    assert "run" not in reported
    assert len(reported["exchange"]) == 64
    assert "model  echo" in show(built, "say", "--key")
    assert "+a spec" in show(built, "say", "--diff"), "its bytes are made again from the answer"
    missing = built.run("show", "say", "--cost")
    assert (missing.code, "no model was called for `say` in any run" in missing.err) == (66, True)


def test_a_failed_stage_has_all_but_a_result(built: Project) -> None:
    assert show(built, "bad", "--response") == "a spec\n2\n"
    assert show(built, "bad", "--response", "--attempt", "1") == "a spec\n1\n"
    assert show(built, "bad", "--prompt", "--attempt", "1").startswith("bad 1\n")
    assert "not good" in show(built, "bad")
    assert "2 calls" in show(built, "bad", "--cost")
    assert "(no result has it yet)" in show(built, "bad", "--key")
    missing = built.run("show", "bad", "--diff")
    assert missing.code == 66
    assert "`bad` has no result yet" in missing.err
    forget(built, "logs/*-*[0-9a-f]")
    reported = facts(built, "bad", "--response", "--attempt", "1")
    assert (reported["text"], reported["attempt"]) == ("a spec\n1\n", 1)


def test_an_item_is_shown_by_its_name_and_a_foreach_names_its_items(built: Project) -> None:
    assert show(built, "each@y", "--response") == "this is y\n"
    assert "+this is y" in show(built, "each@y", "--diff")
    for view in VIEWS:
        green(built.run("show", "each@x", f"--{view}"))
    family = built.run("show", "each", "--response")
    assert family.code == 66
    assert "name an item: each@x, each@y" in family.err
    assert facts(built, "each", "--cost")["runs"][0]["calls"] == 2


def test_runs_and_attempts_are_chosen_by_name(built: Project) -> None:
    first = built.journals()[-1].stem
    built.edit("spec.md", "another spec\n")
    built.build("-j1", "-k")
    second = built.journals()[-1].stem
    assert show(built, "say", "--response") == "another spec\n"
    assert show(built, "say", "--response", "--run", first) == "a spec\n"
    assert facts(built, "say", "--prompt", "--run", second)["run"] == second
    for argv in (("--attempt", "7"), ("--run", second, "--attempt", "2"), ("--run", "19990101")):
        missing = built.run("show", "say", "--response", *argv)
        assert (missing.code, missing.out) == (66, "")


@pytest.mark.stride(3)
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_has_a_document(built: Project, view: str) -> None:
    reported = facts(built, "say", f"--{view}")
    assert (reported["orch23_show"], reported["stage"]) == (1, "say")
    assert reported["text"] == show(built, "say", f"--{view}")


def test_nothing_kept_says_what_to_do(project: Project) -> None:
    project.write(pipeline(STAGES, FILES))
    for view in VIEWS:
        outcome = project.run("show", "say", f"--{view}")
        assert outcome.code == (0 if view == "key" else 66)
        assert outcome.code == 0 or "help:" in outcome.err


def test_what_a_person_wrote_is_said_to_be_so(project: Project) -> None:
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "text", "transcripts": "t"}}}
    green(project.write(scripted(stages, {"a": ["by hand"]})).build())
    assert "(scripted: written by hand, no model was asked)" in show(project, "a")
    forget(project, "logs", ".orch23")
    assert "(scripted: written by hand, no model was asked)" in show(project, "a")
    assert "written by hand" in facts(project, "a", "--response")["provenance"]


def test_a_secret_in_an_answer_is_not_shown(built: Project) -> None:
    for place in ("artifact", "exchange"):
        outcome = built.run("show", "each@x", "--response", env={"SOME_TOKEN": "this is x"})
        assert outcome.code == 0
        assert "this is x" not in outcome.out, place
        forget(built, "logs/*-*[0-9a-f]")


# ---- money --------------------------------------------------------------------------------------------


def test_recorded_answers_are_reported_apart_from_paid_ones_by_run(built: Project) -> None:
    green(built.build("--force", "say", "say"))
    second, first = facts(built, "say", "--cost")["runs"]
    assert (first["calls"], first["recorded_answers"]) == (1, 0)
    assert (second["calls"], second["recorded_answers"]) == (0, 1)
    assert len(show(built, "say", "--cost").splitlines()) >= 2
    assert [one["run"] for one in facts(built, "say", "--cost", "--run", first["run"])["runs"]] == [first["run"]]


@pytest.mark.usefixtures("priced_programs")
def test_an_unknown_price_is_said_to_be_unknown_and_a_known_one_bounds_what_was_not_counted(built: Project) -> None:
    assert facts(built, "say", "--cost")["runs"][0]["paid"] is None
    assert "price unknown" in show(built, "say", "--cost")
    assert "$" not in show(built, "say", "--cost")
    built.write({"pipeline.yaml": f"{built.read('pipeline.yaml')}prices: {{echo: {{input: 1000, output: 2000}}}}\n"})
    built.edit("spec.md", "a dear spec\n")
    built.build("-j1", "-k")
    newest = facts(built, "say", "--cost")["runs"][0]
    assert newest["paid"] == "0"
    assert float(newest["possible"]) > 0
    assert newest["prices"]
    text = show(built, "say", "--cost")
    assert "paid $0, at most $" in text
    assert f"prices: {newest['prices'][0]}" in text


def test_what_no_one_pays_for_costs_nothing(project: Project) -> None:
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "text"}}}
    green(project.write(scripted(stages, {"a": ["by hand"]})).build())
    (reported,) = facts(project, "a", "--cost")["runs"]
    assert (reported["calls"], float(reported["paid"])) == (1, 0.0)


def test_what_each_step_of_a_verification_printed_is_kept_whole_whether_it_passed_or_not(project: Project) -> None:
    steps: list[dict[str, Any]] = [
        {"shell": "echo first"},
        {"check": "python_syntax"},
        {"shell": "seq 3000; exit 3"},
    ]
    stages = {"a": {"outputs": ["a.py"], "llm": {"returns": "text"}, "verify": steps, "retry": 1}}
    assert project.write(scripted(stages, {"a": ["x = 1", "x = 2"]})).build().code == 1
    run = project.journals()[-1].stem
    for attempt in (1, 2):
        kept = f"logs/{run}/a/attempt-{attempt}"
        assert project.read(f"{kept}/verify-2.txt") == "first\n"
        assert project.read(f"{kept}/verify-3.txt") == "".join(f"{n}\n" for n in range(1, 3001))
        assert not project.exists(f"{kept}/verify-1.txt"), "checks run first, and print nothing"
    reported = [
        (e["data"]["attempt"], e["data"]["printed"], e["data"]["exit_code"]) for e in project.events_of("check_result")
    ]
    once = [("", 0), ("verify-2.txt", 0), ("verify-3.txt", 3)]
    assert reported == [(attempt, *one) for attempt in (1, 2) for one in once]
    text = show(project, "a")
    assert (
        text.index("---- response")
        < text.index("---- verify-2")
        < text.index("---- verify-3")
        < text.index("---- failure")
    )


def test_what_a_verification_of_a_recorded_result_printed_is_kept_apart_from_the_attempts(project: Project) -> None:
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "text"}, "verify": [{"shell": "echo first"}]}}
    assert project.write(scripted(stages, {"a": ["text"]})).build().code == 0
    project.replace("pipeline.yaml", "echo first", "echo second")
    assert project.build().code == 0
    run = project.journals()[-1].stem
    assert project.read(f"logs/{run}/a/attempt-0/verify-1.txt") == "second\n"
    assert "---- response, attempt 1 of" in show(project, "a"), "the newest run had no attempt"


def test_what_a_verification_printed_is_kept_without_secrets(project: Project) -> None:
    steps: list[dict[str, Any]] = [{"shell": "printf '%s-%s-%s' hunter2 hunter2 hunter2; printf ' said'"}]
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "text"}, "verify": steps}}
    env = {"DEMO_API_KEY": "hunter2-hunter2-hunter2"}
    assert project.write(scripted(stages, {"a": ["text"]})).build(env=env).code == 0
    run = project.journals()[-1].stem
    assert project.read(f"logs/{run}/a/attempt-1/verify-1.txt") == "[redacted DEMO_API_KEY] said"


def test_the_key_of_a_result_needs_no_decision_on_other_stages(built: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[str] = []
    decide = StageDecider.decide

    def noting(self: StageDecider, name: str, **more: Any) -> DecidedStage:
        decided.append(name)
        return decide(self, name, **more)

    monkeypatch.setattr(StageDecider, "decide", noting)
    assert "model  echo" in show(built, "each@x", "--key")
    assert decided == ["each@x"]


def test_a_prompt_is_shown_from_the_transcripts_as_it_was_sent(project: Project) -> None:
    """The system prompt too: its delimiters are those of the request, and not of its fingerprint."""
    llm = {"returns": "text", "transcripts": "t", "system": "s.j2"}
    stages = {"a": {"inputs": ["one.md", "two.md"], "outputs": ["a.txt"], "llm": llm}}
    files = {"one.md": "1", "two.md": "2", "s.j2": "{{ inputs | blocks }}"}
    green(project.write({**scripted(stages, {"a": ["by hand"]}), **files}).build())
    sent = show(project, "a", "--prompt")
    assert len(set(re.findall(r"--- end (\w+) ---", sent))) == 2
    forget(project, "logs", ".orch23")
    assert show(project, "a", "--prompt") == sent


def test_a_link_in_the_logs_is_not_followed(built: Project) -> None:
    outside = built.root.parent / "outside"
    (folder,) = (built.root / "logs").glob("*/say")
    folder.rename(outside)
    (outside / "attempt-1" / "response.txt").write_text("planted\n")
    folder.symlink_to(outside)
    assert show(built, "say", "--response") == "a spec\n", "the recorded response"


RAN = """\
version: 1
stages:
  a:
    inputs: [i]
    outputs: [o]
    shell: 'cp i o; ! grep -q bad i'
    verify: [{shell: 'test -s o'}, {shell: [sh, -c, 'cat o']}]
  r: {inputs: [o, t.j2], outputs: [r], render: {template: t.j2}}
  t: {shell: sleep 60, timeout: 0.2s}
"""


def test_a_stage_shows_what_it_ran_and_log_lists_the_commands(project: Project) -> None:
    project.write({"pipeline.yaml": RAN, "i": "1\n", "t.j2": "x"})
    project.build("-k", "-j1")
    shown = project.run("show", "a").out
    lines = [line for line in shown.splitlines() if "$" in line]
    assert [line.partition("  $ ")[2] for line in lines] == ["cp i o; ! grep -q bad i", "test -s o", "sh -c 'cat o'"]
    assert all(line.startswith("exit 0 ") for line in lines)
    assert re.search(r"^built in \d+\.\ds: o$", shown, re.MULTILINE)
    assert re.fullmatch(r"built in \d+\.\ds: r\n", project.run("show", "r").out)
    facts = project.run("show", "--json", "a").json()
    assert [(one["command"], one["exit_code"]) for one in facts["commands"]][1:] == [
        ("test -s o", 0),
        ("sh -c 'cat o'", 0),
    ]
    assert (facts["status"], facts["outputs"]) == ("built", ["o"])
    listed = project.run("log", "--commands").out.splitlines()
    assert [line.partition("  $ ")[2] for line in listed if line.startswith("a  attempt 1  exit 0")] == [
        "cp i o; ! grep -q bad i",
        "test -s o",
        "sh -c 'cat o'",
    ]
    assert any(re.match(r"t  attempt 1  killed +0\.2s  \$ sleep 60", line) for line in listed)
    document = project.run("log", "--commands", "--json").json()
    assert [one["stage"] for one in document["commands"]].count("a") == 3
    assert {"stage", "attempt", "command", "exit_code", "duration_s"} == set(document["commands"][0])


def test_a_run_that_ran_no_command_says_so(project: Project) -> None:
    stage = "{inputs: [t.j2], outputs: [r], render: {template: t.j2}}"
    project.write({"pipeline.yaml": f"version: 1\nstages:\n  r: {stage}\n", "t.j2": "x"})
    assert project.build().code == 0
    runs = project.run("runs", "--json").json()["runs"]
    assert project.run("log", "--commands").out == f"the run {runs[0]['run']} ran no command\n"
    project.write({"pipeline.yaml": "version: 1\nstages:\n  s: {outputs: [o], shell: [touch, o]}\n"})
    assert project.build().code == 0
    assert project.build().code == 0
    idle, built, *_ = (one["run"] for one in project.run("runs", "--json").json()["runs"])
    expected = f"the run {idle} ran no command; the last one that did is {built}: `orch23 log {built} --commands`\n"
    assert project.run("log", "--commands").out == expected
    assert project.run("log", built, "--commands").out.endswith("  $ touch o\n")


def test_the_commands_of_a_verification_alone_are_listed(project: Project) -> None:
    project.write({"pipeline.yaml": RAN, "i": "1\n", "t.j2": "x"})
    project.build("-k")
    project.replace("pipeline.yaml", "test -s o", "test -f o")
    project.build("a")
    assert [line.partition("  $ ")[2] for line in project.run("log", "--commands").out.splitlines()] == [
        "test -f o",
        "sh -c 'cat o'",
    ]


def test_the_diff_of_a_stage_that_failed_since_says_so(project: Project) -> None:
    project.write({"pipeline.yaml": RAN, "i": "1\n", "t.j2": "x"})
    project.build("a")
    project.edit("i", "2\n")
    project.build("a")
    good = project.run("runs", "--json").json()["runs"][0]["run"]
    before = project.run("show", "--diff", "a").out
    assert "failed" not in before
    project.edit("i", "bad\n")
    project.build("a")
    bad = project.run("runs", "--json").json()["runs"][0]["run"]
    note = f"the last attempt failed, in {bad}: this shows the last result, of {good}\n"
    assert project.run("show", "--diff", "a").out == note + before
    assert project.run("show", "--diff", "--json", "a").json()["failed_in"] == bad
    project.edit("i", "2\n")
    project.build("a")
    assert project.run("show", "--diff", "a").out == before
