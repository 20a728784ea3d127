"""What `--output` shows of a build is the whole of it, also where there is nothing to do, or only a part is reached."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree as ET

import pytest

from tests.e2e.pipelines import shell
from tests.project import Project

STAGES = "".join(f"  s{n}: {{inputs: [in/{n}], outputs: [out/{n}], shell: [cp, in/{n}, out/{n}]}}\n" for n in range(4))


@pytest.fixture
def several(project: Project) -> Project:
    """Give a project of four stages."""
    return project.write(shell(STAGES, {f"in/{number}": f"{number}\n" for number in range(4)}))


@pytest.mark.slow
def test_a_report_has_each_stage_in_each_build(several: Project) -> None:
    with patch("orch23.engine.idle_build.FEWEST", 0):
        for number in range(4):
            if number > 1:
                several.edit("in/2", f"edit {number}\n")
            outcome = several.build("--output", "junit")
            assert outcome.code == 0, outcome.err
            suite = ET.fromstring(outcome.out)[0]
            assert (suite.get("tests"), suite.get("failures")) == ("4", "0")
            assert "stages" in outcome.err, "people read the text"


@pytest.mark.slow
def test_a_report_says_what_failed(several: Project) -> None:
    several.delete("in/1")
    several.write({"in/1": "x\n"})
    several.edit("pipeline.yaml", (several.root / "pipeline.yaml").read_text().replace("[cp, in/1", "['false', in/1"))
    outcome = several.build("--output", "junit", "-k")
    assert outcome.code == 1
    suite = ET.fromstring(outcome.out)[0]
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert (failed, suite.get("tests")) == (["s1"], "4")


@pytest.mark.slow
def test_a_build_writes_its_documents_to_files_beside_any_output(several: Project) -> None:
    files = ("--junit", "reports/deep/junit.xml", "--trace", "reports/trace.json")
    for output in ("auto", "jsonl", "quiet"):
        with patch("orch23.engine.idle_build.FEWEST", 0):
            several.edit("in/2", f"for {output}\n")
            built, idle = (several.build("--output", output, *files) for _ in range(2))
        assert (built.code, idle.code) == (0, 0)
        suite = ET.parse(several.root / "reports/deep/junit.xml").getroot()[0]
        assert (suite.get("tests"), suite.get("failures")) == ("4", "0"), "also when there is nothing to do"
        assert json.loads(several.read("reports/trace.json"))["otherData"]["status"] == "ok"
    assert several.build("--junit", "reports/deep/junit.xml", "-k").code == 0


@pytest.mark.slow
def test_a_document_of_the_environment_is_written_also_with_nothing_to_do(several: Project) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(several.home), "PYTHONPATH": str(Path(__file__).parents[2])}
    environ |= {"ORCH23_BUILD_JUNIT": "junit.xml", "XDG_STATE_HOME": str(several.home / "state")}
    program = [sys.executable, "-c", "from orch23.entry import run; run()", "build"]
    for _ in range(3):
        (several.root / "junit.xml").unlink(missing_ok=True)
        done = subprocess.run(program, cwd=several.root, env=environ, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert (several.root / "junit.xml").exists()


def test_a_document_has_failures_too(several: Project) -> None:
    several.edit("pipeline.yaml", (several.root / "pipeline.yaml").read_text().replace("[cp, in/1", "['false', in/1"))
    outcome = several.build("--junit", "junit.xml", "--trace", "trace.json", "-j1")
    assert outcome.code == 1
    suite = ET.parse(several.root / "junit.xml").getroot()[0]
    assert suite.get("failures") == "1"
    assert json.loads(several.read("trace.json"))["otherData"]["exit_code"] == 1


@pytest.mark.parametrize("option", ["--junit", "--trace"])
@pytest.mark.parametrize(("file", "why"), [("in", "is not a regular file"), ("in/1/x.xml", "Not a directory")])
def test_a_file_that_cannot_be_written_is_an_error_before_anything_runs(
    several: Project, option: str, file: str, why: str
) -> None:
    outcome = several.build(option, file)
    assert (outcome.code, why in outcome.err, f"`{option}` cannot write" in outcome.err) == (64, True, True)
    assert not (several.root / "out").exists()


@pytest.mark.slow
def test_a_document_that_cannot_be_written_at_the_end_loses_no_result(several: Project) -> None:
    stage = f"  s4: {{outputs: [out/4], sandbox: off, shell: 'mkdir -p {several.root}/r/j.xml; echo 4 > out/4'}}\n"
    several.edit("pipeline.yaml", (several.root / "pipeline.yaml").read_text() + stage)
    outcome = several.build("--junit", "r/j.xml", "--allow-unsandboxed")
    assert outcome.code == 74, outcome.err
    assert f"error[E650]: is not a regular file: {several.root}/r/j.xml" in outcome.err
    assert several.build().err.endswith("up to date (5 stages)\n")


def test_a_dry_run_writes_no_document(several: Project) -> None:
    outcome = several.build("-n", "--junit", "junit.xml")
    assert (outcome.code, "drop `--dry-run`" in outcome.err) == (64, True)


@pytest.mark.slow
def test_what_is_shown_otherwise_leaves_stdout_alone(several: Project) -> None:
    for name in ("auto", "plain", "quiet"):
        assert several.build("--output", name).out == ""


@pytest.mark.slow
def test_the_plan_of_a_build_has_what_each_stage_comes_after(project: Project) -> None:
    stages = """\
  b: {inputs: [a], outputs: [b], shell: cp a b}
  a: {outputs: [a], shell: "echo a > a"}
  c: {needs: [b], shell: "true"}
  list: {outputs: [names.json], shell: 'echo [1, 2] > names.json'}
  each:
    foreach: {from: names.json, as: one}
    inputs: [a]
    outputs: ["each/${{ one }}"]
    shell: [cp, a, "each/${{ one }}"]
  last: {inputs: ["each/*"], shell: "true"}
"""
    project.write(shell(stages, {}))
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    (plan,) = project.events_of("plan")
    assert plan["data"] == {
        "stages": {"a": "shell", "b": "shell", "c": "shell", "list": "shell", "each": "shell", "last": "shell"},
        "needs": {"b": ["a"], "c": ["b"], "each": ["a", "list"], "last": ["each"]},
    }
    assert project.build("c", "--only", "--force", "c").code == 0
    (plan,) = project.events_of("plan")
    assert plan["data"] == {"stages": {"c": "shell"}, "needs": {"c": ["b"]}}, "b is not decided"
