"""What asking a model needs is looked for before the first stage starts, and only where somebody would be asked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from orch23.decide.dry_run import Preview, preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.plan.planner import Selection
from tests.e2e.pipelines import calls, green, note, noted, pipeline, prompt
from tests.project import Outcome, Project, scripted

pytestmark = [
    pytest.mark.needs("local"),
    pytest.mark.needs("vendors"),
    pytest.mark.slow,  # whole builds, many of them: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # they note outside of their sandbox that they ran
]

HOSTED = """\
version: 1
name: hosted
defaults:
  llm: {provider: openai, model: gpt-9, prompt: p.j2, returns: text}
stages:
  first: {shell: 'NOTE'}
  a: {llm: {}, outputs: [a.txt]}
  b: {llm: {base_url: "https://models.example/v1"}, outputs: [b.txt]}
  each: {foreach: {in: [u, v], as: n}, llm: {}, outputs: ["${{ n }}.txt"]}
  small: {llm: {provider: local, model: smollm2, max_tokens: 99}, outputs: [s.txt]}
  prog: {llm: {provider: command, command: [no-such-program-here]}, outputs: [p.txt]}
"""


def hosted(project: Project, text: str = HOSTED) -> Project:
    return project.write({"pipeline.yaml": text.replace("NOTE", note(project, "first")), "p.j2": "hello"})


def blocks(outcome: Outcome) -> dict[str, str]:
    """Return the errors, each by its code and the stage that it is told of."""
    found = re.split(r"\n\n(?=error\[)", outcome.err)
    heads = [re.match(r"(?:.*\n)*?error\[(E\d+)\]: ([^:]+):", block) for block in found]
    return {f"{head[1]} {head[2]}": block for head, block in zip(heads, found, strict=True) if head is not None}


def untouched(project: Project) -> None:
    assert noted(project) == []
    assert not project.exists("logs")
    assert not project.exists("pipeline.lock")


# ---- what is missing --------------------------------------------------------------------------


def test_all_that_is_missing_is_named_before_anything_starts(project: Project) -> None:
    hosted(project)
    before = project.files()
    refused = project.build()
    assert refused.code == 78
    found = blocks(refused)
    assert {name for name in found if "E412" in name} == {"E412 a", "E412 b"}
    assert "E407 prog" in found
    assert "pipeline.yaml:4:19" in found["E412 a"]  # where the provider is written
    assert "pipeline.yaml:9:" in found["E412 a"]
    assert "`each` needs it too" in found["E412 a"]
    assert "pipeline.yaml:4:19" in found["E412 b"]
    for block in found.values():
        assert re.search(r"= help: .*--provider", block), block
    assert "OPENAI_API_KEY" in found["E412 a"]
    assert project.files() == before
    untouched(project)


def test_what_is_not_asked_for_needs_nothing(project: Project) -> None:
    hosted(project)
    green(project.build("first"))
    assert noted(project) == ["first"]
    assert set(blocks(project.build("b"))) == {"E412 b"}


def test_another_provider_is_a_way_forward(project: Project) -> None:
    project.write(scripted({"a": {"llm": {"returns": "text"}, "outputs": ["a.txt"]}}, {"a": ["A"]}))
    project.replace("pipeline.yaml", '      "provider": "scripted",\n', "")
    refused = project.build("--provider", "openai")
    assert refused.code == 78
    assert set(blocks(refused)) == {"E412 a"}
    green(project.build("--provider", "scripted"))
    assert project.read("a.txt") == "A\n"


# ---- what is recorded -------------------------------------------------------------------------

RECORDED = """\
  a: {llm: {prompt: a.j2, returns: text, transcripts: kept}, outputs: [a.txt]}
  b: {llm: {prompt: b.j2, returns: text, transcripts: kept}, inputs: [a.txt], outputs: [b.txt]}
"""
PROMPTS = {"a.j2": prompt("a", "A"), "b.j2": prompt("b", "{{ inputs[0].text }}B")}


def recorded(project: Project) -> Project:
    """Build with a program that is gone afterwards, as is all but what a person would commit."""
    program = project.root.parent / "program"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -SE model.py\n")
    program.chmod(0o755)
    files = pipeline(RECORDED, PROMPTS)
    files["pipeline.yaml"] = re.sub(
        r"command: \[.*?\]", f"command: [{program}], read: [model.py]", files["pipeline.yaml"]
    )
    green(project.write(files).build())
    program.unlink()
    for path in ("a.txt", "b.txt", "pipeline.lock"):
        project.delete(path)
    subprocess.run(["rm", "-r", str(project.root / ".orch23"), str(project.root / "logs")], check=True)
    return project


def test_recorded_answers_need_nothing(project: Project) -> None:
    recorded(project)
    green(project.build())
    assert project.read("b.txt") == "A\nB\n"
    assert calls(project) == ["a", "b"]


def test_a_changed_question_needs_somebody_to_ask(project: Project) -> None:
    recorded(project)
    project.edit("a.j2", prompt("a", "C"))
    refused = project.build()
    assert refused.code == 78
    assert set(blocks(refused)) == {"E407 a"}
    assert not project.exists("logs")


def test_replay_looks_for_recordings_alone(project: Project) -> None:
    recorded(project)
    green(project.build("--replay"))
    project.edit("a.j2", prompt("a", "C"))
    refused = project.build("--replay")
    assert refused.code == 5
    assert "E403" in refused.err
    assert "E407" not in refused.err
    assert project.exists("logs")


@pytest.mark.parametrize("mode", ["resample", "record"])
def test_asking_again_needs_somebody_to_ask_although_it_is_recorded(project: Project, mode: str) -> None:
    recorded(project)
    if mode == "record":
        project.replace("pipeline.yaml", "a.j2, returns: text", "a.j2, mode: record, returns: text")
    refused = project.build(*(("--resample", "a") if mode == "resample" else ()))
    assert refused.code == 78
    assert set(blocks(refused)) == {"E407 a"}


def test_a_stage_that_says_replay_asks_no_one(project: Project) -> None:
    recorded(project)
    project.replace("pipeline.yaml", "a.j2, returns: text", "a.j2, mode: replay, returns: text")
    project.edit("a.j2", prompt("a", "C"))
    assert project.build().code == 5


# ---- offline ----------------------------------------------------------------------------------


def test_offline_refuses_what_would_leave_the_machine_before_anything_starts(project: Project) -> None:
    hosted(project, "\n".join(line for line in HOSTED.splitlines() if "small" not in line) + "\n")
    refused = project.build("--offline", env={"OPENAI_API_KEY": "k"})
    assert refused.code == 5
    found = blocks(refused)
    assert set(found) == {"E423 a", "E423 prog"}
    assert "`b` needs it too" in found["E423 a"]
    assert "`each` needs it too" in found["E423 a"]
    assert "--offline" in found["E423 a"]
    untouched(project)


def test_offline_builds_what_is_recorded_or_answered_here(project: Project) -> None:
    recorded(project)
    green(project.build("--offline"))
    other = Project(project.root.parent / "other")
    other.write(scripted({"a": {"llm": {"returns": "text"}, "outputs": ["a.txt"]}}, {"a": ["A"]}))
    green(other.build("--offline"))


def test_offline_a_model_on_this_machine_still_needs_to_be_installed(project: Project) -> None:
    hosted(project)
    refused = project.build("--offline", "small", "a")
    assert refused.code == 78
    found = blocks(refused)
    assert set(found) == {"E423 a", "E410 small"}
    assert found["E410 small"].count("model install") == 1, "the way out of a missing model is another model"


# ---- money ------------------------------------------------------------------------------------

PROGRAM = "  a: {llm: {prompt: a.j2, returns: text}MORE, outputs: [a.txt]}\n"
CAPS = {
    "run": ("stop_conditions: {max_cost_usd: 5}\n", "", ()),
    "stage": ("", ", stop_conditions: {max_cost_usd: 5}", ()),
    "items": ("", ", foreach: {in: [u]}, stop_conditions: {max_cost_usd: 5}", ()),
    "flag": ("", "", ("--budget", "5")),
}


@pytest.mark.parametrize("cap", CAPS)
def test_a_price_that_no_one_knows_is_refused_before_anything_starts(project: Project, cap: str) -> None:
    head, more, flags = CAPS[cap]
    text = PROGRAM.replace("MORE", more) + f"  first: {{shell: '{note(project, 'first')}'}}\n"
    project.write(pipeline(text, {"a.j2": prompt("a", "A")}, head=head))
    refused = project.build(*flags)
    assert refused.code == 78, refused.err
    assert set(blocks(refused)) == {"E424 a"}
    assert "prices:" in refused.err
    untouched(project)
    assert calls(project) == []
    project.replace("pipeline.yaml", "stages:", "prices: {command/echo: {input: 1, output: '2.5'}}\nstages:")
    bounded = project.build(*flags)
    assert bounded.code == 78, "a program may call a model any number of times"
    assert "any number of times" in bounded.err
    project.replace("pipeline.yaml", "{input: 1, output: '2.5'}", "0")
    green(project.build(*flags))
    assert calls(project) == ["a"]
    project.replace("pipeline.yaml", "prices: {command/echo: 0}\n", "")
    green(project.build(*flags))


def test_a_price_of_a_later_attempt_counts_too(project: Project) -> None:
    head = "stop_conditions: {max_cost_usd: 5}\nprices: {echo: 0}\n"
    text = PROGRAM.replace("MORE", ", retry: {max: MAX, escalate: [echo, louder]}")
    project.write(pipeline(text.replace("MAX", "1"), {"a.j2": prompt("a", "A")}, head=head))
    refused = project.build()
    assert refused.code == 78
    assert "`louder`" in refused.err
    project.replace("pipeline.yaml", "max: 1", "max: 0")  # the second model is never asked
    green(project.build())


# ---- what shows only later --------------------------------------------------------------------

LATER = """\
version: 1
name: later
defaults:
  llm: {provider: openai, model: gpt-9, prompt: p.j2, returns: text}
stages:
  list: {shell: 'NOTE; echo "[1, 2]" > list.json', outputs: [list.json]}
  each: {foreach: {from: list.json, as: n}, llm: {}, outputs: ["${{ n }}.txt"]}
"""


def test_who_asks_only_later_fails_then_with_the_same_error(project: Project) -> None:
    hosted(project, LATER)
    failed = project.build()
    assert failed.code == 78, failed.err
    assert noted(project) == ["first"]
    assert "E412" in failed.err
    assert "OPENAI_API_KEY" in failed.err
    again = project.build()
    assert again.code == 78
    assert set(blocks(again)) == {"E412 each"}
    assert len(project.journals()) == 1


def test_a_condition_that_does_not_hold_comes_before_any_key(project: Project) -> None:
    text = "version: 1\nstages:\n  a:\n    llm: {provider: openai, model: m, prompt: p.j2, returns: text}\n"
    hosted(project, text + "    requires: {file_exists: gate.txt}\n    outputs: [a.txt]\n")
    failed = project.build()
    assert failed.code == 1
    assert "requires file_exists gate.txt" in failed.err
    project.write({"gate.txt": ""})
    assert project.build().code == 78


def test_an_edit_is_accepted_without_a_key(project: Project) -> None:
    recorded(project)
    green(project.build())
    project.edit("a.txt", "mine")
    project.edit("b.j2", prompt("b", "other"))
    green(project.run("accept", "a"))


# ---- what looking costs -----------------------------------------------------------------------


def test_a_build_is_not_looked_at_twice_where_nothing_could_be_missing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []

    def look(opened: OpenPipeline, selection: Selection) -> Preview:
        looked.append(opened)
        return preview(opened, selection)

    monkeypatch.setattr("orch23.cli.build_run.preview", look)
    project.write(pipeline(RECORDED, PROMPTS))
    for flags in ((), (), ("--replay",)):
        green(project.build(*flags))
    assert looked == []
    project.replace("pipeline.yaml", sys.executable, "no-such-program-here")  # the program is of the key
    assert project.build().code == 78
    assert len(looked) == 1


# ---- what is imported -------------------------------------------------------------------------


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "argv", [["validate"], ["plan"], ["status"], ["doctor"], ["build"], ["build", "--budget", "1"]]
)
def test_no_one_is_imported_who_is_not_asked(project: Project, argv: list[str]) -> None:
    project.write(scripted({"a": {"llm": {"returns": "text"}, "outputs": ["a.txt"]}}, {"a": ["A"]}))
    script = "import sys; from orch23.cli.main import main; main(sys.argv[1:])\n"
    script += "heavy = ('anthropic', 'openai', 'genai_prices', 'httpx2', 'pydantic', 'xllamacpp')\n"
    script += "print([name for name in heavy if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script, "-C", str(project.root), *argv],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
