"""`--live`: what steps print and models write is told while it comes; without it no journal has it."""

import json
from pathlib import Path

import pytest

from tests.e2e.pipelines import pipeline, prompt
from tests.project import Project

STAGES = """\
  ask: {inputs: [spec.md], outputs: [said.txt], llm: {prompt: ask.md.j2, returns: text}}
  talk:
    outputs: [out.txt]
    shell: |
      printf 'begin\\nroom %s\\n' $PWD
      printf '\\033[31mred\\n'
      echo to stderr >&2
      printf 'no end' | tee out.txt
    verify: [{shell: "echo seen by verify"}]
"""


@pytest.fixture
def talking(project: Project) -> Project:
    """Give a project whose model and whose program say something."""
    return project.write(pipeline(STAGES, {"spec.md": "x\n", "ask.md.j2": prompt("ask", "first line\nsecond line")}))


def events(root: Path) -> list[tuple[str, str]]:
    (journal,) = sorted((root / "logs").glob("*.jsonl"))
    found = [json.loads(line) for line in journal.read_text().splitlines()]
    return [(one["role"], one["data"]["line"]) for one in found if one["type"] in ("step_output", "llm_text")]


@pytest.mark.slow
def test_without_it_nothing_is_reported(talking: Project) -> None:
    assert talking.build().code == 0
    assert events(talking.root) == []


def test_the_journal_and_the_screen_have_each_line(talking: Project) -> None:
    outcome = talking.build("--live", "-j1")
    assert outcome.code == 0, outcome.err
    reported = events(talking.root)
    assert [line for role, line in reported if role == "talk"] == [
        "begin",
        "room /room/work",
        "\x1b[31mred",
        "to stderr",
        "no end",
        "seen by verify",
    ]
    assert [line for role, line in reported if role == "ask"] == ["first line", "second line"]
    assert "talk  | begin\n" in outcome.err
    assert "ask   | second line\n" in outcome.err
    assert "\x1b" not in outcome.err


def test_a_secret_is_not_reported(talking: Project) -> None:
    talking.write(pipeline("  a: {outputs: [a.txt], shell: 'tee a.txt < said', inputs: [said]}\n", {"said": "none\n"}))
    talking.edit("said", "key Qz7-very-secret-value-19\n")
    outcome = talking.run("build", "--live", env={"MY_API_KEY": "Qz7-very-secret-value-19"})
    assert "secret-value" not in outcome.err
    assert all("secret-value" not in line for _, line in events(talking.root))
    assert any("[redacted MY_API_KEY]" in line for _, line in events(talking.root))


@pytest.mark.parametrize("before", [1_990, 2_400, 2_505])
def test_a_long_line_is_cut_and_a_secret_in_it_is_not_reported(talking: Project, before: int) -> None:
    secret = "Qz7-very-secret-value-19"
    line = f"{'x' * before}{secret}{'y' * 500}"
    talking.write(
        pipeline("  a: {outputs: [a.txt], shell: 'tee a.txt < said', inputs: [said]}\n", {"said": f"{line}\n"})
    )
    outcome = talking.run("build", "--live", env={"MY_API_KEY": secret})
    assert outcome.code == 0, outcome.err
    (journal,) = sorted((talking.root / "logs").glob("*.jsonl"))
    (reported,) = (
        one["data"] for one in map(json.loads, journal.read_text().splitlines()) if one["type"] == "step_output"
    )
    assert reported["cut"]
    assert reported["line"].startswith("x" * min(before, 2_000))
    assert len(reported["line"]) <= 2_000
    assert "Qz7-very" not in outcome.err + journal.read_text()
    assert f"{reported['line']}..." in outcome.err
