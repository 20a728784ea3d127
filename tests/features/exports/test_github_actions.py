"""A build in a job of GitHub Actions: a group, annotations of causes, a summary; and no step can command the runner."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.pipelines import shell
from tests.project import Project

STAGES = """\
  good: {outputs: [good.txt], shell: "echo '::error::forged'; echo good > good.txt"}
  bad: {inputs: [good.txt], outputs: [bad.txt], shell: "echo '::warning::forged | <b>*x*</b>'; exit 3"}
  after: {inputs: [bad.txt], outputs: [after.txt], shell: cp bad.txt after.txt}
"""
COMMAND = re.compile(r"::([a-z-]+|[0-9a-f]{32})( [^:]*)?::(.*)")


def job(project: Project, **more: str) -> dict[str, str]:
    summary = project.root / "summary.md"
    checkout = project.root.parent
    return {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_WORKSPACE": str(checkout), **more}


def obeyed(log: str) -> list[tuple[str, Mapping[str, str], str]]:
    """Return the commands of a log that GitHub obeys, with their properties and their text."""
    found: list[tuple[str, Mapping[str, str], str]] = []
    token = None
    for line in log.splitlines():
        command = COMMAND.fullmatch(line.strip())
        if command is None or (token is not None and command[1] != token):
            continue
        if token is not None:
            token = None
        elif command[1] == "stop-commands":
            token = command[3]
        else:
            named = (one.partition("=") for one in (command[2] or "").strip().split(",") if one)
            text = command[3].replace("%0A", "\n").replace("%25", "%")
            found.append((command[1], {name: value.replace("%3A", ":") for name, _, value in named}, text))
    return found


def test_a_failure_is_an_annotation_of_its_stage_and_what_it_blocked_is_not(project: Project) -> None:
    project.write(shell(STAGES))
    outcome = project.build("-k", env=job(project))
    assert outcome.code == 1
    group, end, error = obeyed(outcome.err)
    assert (group[0], end[0]) == ("group", "endgroup")
    kind, properties, text = error
    line = 1 + project.read("pipeline.yaml").splitlines().index(STAGES.splitlines()[1])
    assert (kind, properties["file"], properties["line"]) == ("error", f"{project.root.name}/pipeline.yaml", str(line))
    assert properties["title"] == "bad: exited with 3"
    assert text.startswith("$ echo '::warning::forged | <b>*x*</b>'; exit 3\n")


@pytest.mark.slow
def test_no_line_of_a_step_is_obeyed(project: Project) -> None:
    project.write(shell(STAGES))
    log = project.build("--live", env=job(project)).err
    assert "::error::forged" in log
    assert not any("forged" in text for kind, _, text in obeyed(log) if kind != "error")
    assert len([kind for kind, _, _ in obeyed(log) if kind == "error"]) == 1
    tokens = set(re.findall(r"::stop-commands::([0-9a-f]{32})", log))
    again = set(re.findall(r"::stop-commands::([0-9a-f]{32})", project.build(env=job(project)).err))
    assert len(tokens) == len(again) == len(tokens | again) - 1, "each build has a token of its own"


@pytest.mark.slow
def test_at_most_ten_failures_are_annotated_and_the_last_one_counts_the_others(project: Project) -> None:
    project.write(shell("".join(f'  s{number:02}: {{shell: "exit 1"}}\n' for number in range(12))))
    log = project.build("-k", "-j1", env=job(project)).err
    errors = [(properties.get("title"), text) for kind, properties, text in obeyed(log) if kind == "error"]
    assert [title for title, _ in errors[:9]] == [f"s{number:02}: exited with 1" for number in range(9)]
    assert errors[9:] == [(None, "3 more stages failed: see the log, or the summary of the job")]


def test_the_summary_of_the_job_has_a_table_with_failures_first(project: Project) -> None:
    project.write(shell(STAGES))
    summary = project.root / "summary.md"
    summary.write_text("an earlier step\n")
    project.build("-k", env=job(project))
    text = summary.read_text()
    assert text.startswith("an earlier step\n### ")
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["stage", "result"],
        ["bad", "failed"],
        ["good", "built"],
    ]
    assert "\n1 blocked by &#96;bad&#96;&#58; after\n" in text
    assert "<b>" not in text
    assert "&lt;b&gt;*x*&lt;/b&gt;" in text, "in <pre>, where Markdown has no meaning"


@pytest.mark.slow
def test_a_summary_that_is_nearly_full_gets_whole_lines_and_no_more_than_its_limit(project: Project) -> None:
    project.write(shell(STAGES))
    summary = project.root / "summary.md"
    summary.write_text("x" * 1_048_400 + "\n")
    assert project.build("-k", env=job(project)).code == 1
    assert 1_048_401 < summary.stat().st_size <= 1_048_576
    assert summary.read_text().endswith("\n")


def test_a_summary_that_cannot_be_written_loses_no_result(project: Project) -> None:
    project.write(shell("  good: {outputs: [good.txt], shell: echo good > good.txt}\n"))
    (project.root / "folder").mkdir()
    outcome = project.build(env=job(project, GITHUB_STEP_SUMMARY=str(project.root / "folder")))
    assert outcome.code == 64
    assert "`GITHUB_STEP_SUMMARY` cannot write" in outcome.err


def test_an_invalid_pipeline_is_annotated(project: Project) -> None:
    project.write(shell("  s: {shell: 'true', outptus: [a]}\n"))
    outcome = project.build(env=job(project))
    assert outcome.code == 65
    (error,) = obeyed(outcome.err)
    assert (error[0], error[1]["title"], error[1]["file"]) == ("error", "E802", f"{project.root.name}/pipeline.yaml")


@pytest.mark.parametrize("output", ["plain", "quiet", "jsonl"])
def test_another_output_turns_it_off(project: Project, output: str) -> None:
    project.write(shell(STAGES))
    outcome = project.build("--output", output, env=job(project))
    assert obeyed(outcome.err + outcome.out) == []
    assert not (project.root / "summary.md").exists()


def test_outside_of_actions_nothing_changes(project: Project, tmp_path: Path) -> None:
    project.write(shell(STAGES))
    log = project.build(env={"GITHUB_STEP_SUMMARY": str(tmp_path / "s.md")}).err
    assert not any(line.startswith("::") for line in log.splitlines())
    assert not (tmp_path / "s.md").exists()


def test_a_build_with_nothing_to_do_is_one_line_and_a_summary(project: Project) -> None:
    project.write(shell("  good: {outputs: [good.txt], shell: echo good > good.txt}\n"))
    assert {project.build(env=job(project)).code for _ in range(2)} == {0}
    outcome = project.build(env=job(project))
    lines = [line for line in outcome.err.splitlines() if not line.startswith("::")]
    assert (len(lines), lines[0].endswith("up to date (1 stage)")) == (1, True)
    assert project.read("summary.md").count("1 fresh") == 2


def test_each_failed_test_is_an_annotation_of_its_place(project: Project) -> None:
    block = "  ---\\n  error: no\\n  at: t.js:7\\n  ..."
    tap = f"TAP version 13\\nnot ok 1 sum\\n{block}\\nnot ok 2 without a place\\n1..2\\n"
    project.write({"web/t.js": "\n"})
    project.write(shell(f"  test: {{inputs: [web/t.js], cwd: web, shell: \"printf '{tap}'\"}}\n"))
    errors = [one for one in obeyed(project.build(env=job(project)).err) if one[0] == "error"]
    assert [one[1]["title"] for one in errors] == ["test: 2 failed: no (and 1 more cause)", "test: sum"]
    assert (errors[1][1]["file"], errors[1][1]["line"]) == (f"{project.root.name}/web/t.js", "7")
