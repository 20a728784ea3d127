"""Steps that fail and pass in another run (`reruns`): the step passes, and what is flaky is named everywhere."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.project import Outcome, Project, scripted

# Which runs pass is written in a file outside of the sandbox directory, so that no run depends on luck.
TEST = """
def test_coin():
    with open({runs!r}, "a+") as file:
        file.write("x")
    assert len(open({runs!r}).read()) >= {passes}

def test_other():
    pass
"""
TAP = (
    'echo x >> {runs}; n=$(wc -l < {runs}); echo "TAP version 13"; echo "1..1"; '
    '[ $n -ge {passes} ] || printf "not "; echo "ok 1 coin"'
)


def built(project: Project, tmp_path: Path, stage: Mapping[str, Any], passes: int = 3, *options: str) -> Outcome:
    """Build a stage whose test passes from the run `passes` on."""
    runs = str(tmp_path / "runs")
    texts = {"runs": runs, "passes": passes}
    body = {key: value.format(**texts) if key == "shell" else value for key, value in stage.items()}
    files = scripted({"test": {"sandbox": "off", "timeout": "20s", **body}}, {})
    project.write({**files, "t/test_a.py": TEST.format(**texts), "a.txt": ""})
    return project.build("--allow-unsandboxed", "--junit", "j.xml", *options)


def number_of_runs(tmp_path: Path) -> int:
    return (tmp_path / "runs").read_text().count("x")


def flaky(project: Project) -> list[tuple[str, str]]:
    return [
        (one["subject"], one["message"])
        for event in project.events_of("warning")
        for one in event["data"].get("flaky", ())
    ]


PYTEST: Mapping[str, Any] = {"inputs": ["t/test_a.py"], "pytest": {"paths": ["t"]}, "reruns": 2}
OF_TAP: Mapping[str, Any] = {"shell": TAP, "test_results": {"tap": "stdout"}, "reruns": 2}


def test_a_flaky_test_is_named_on_the_screen_in_junit_and_in_the_report(project: Project, tmp_path: Path) -> None:
    stage = {**PYTEST, "pytest": {"paths": ["t"], "report": "r.json"}, "outputs": ["r.json"]}
    outcome = built(project, tmp_path, stage)
    assert outcome.code == 0, outcome
    message = "failed with AssertionError in run 1, and passed in run 3"
    assert f"warning: test: [W329] flaky: t/test_a.py::test_coin {message}" in outcome.err
    assert flaky(project) == [("t/test_a.py::test_coin", message)]
    assert json.loads(project.read("r.json"))["tests"] == {
        "t/test_a.py::test_coin": "flaky",
        "t/test_a.py::test_other": "passed",
    }
    suite = ET.parse(project.root / "j.xml").getroot()[0]
    cases = {str(case.get("name")): [(one.tag, one.get("message")) for one in case] for case in suite}
    assert cases == {"test": [], "t/test_a.py::test_coin": [("flakyFailure", message)]}
    assert suite.get("failures") == "0"
    assert suite.findtext("testcase/flakyFailure/stackTrace") == message
    assert message in project.run("report", "-o", "-").out


def test_a_flaky_test_of_another_runner_is_a_warning_of_github(project: Project, tmp_path: Path) -> None:
    outcome = built(project, tmp_path, OF_TAP, 2, "--output", "github")
    assert outcome.code == 0, outcome
    assert "::warning::test: [W329] flaky: coin failed in run 1, and passed in run 2" in outcome.err


def test_a_step_that_fails_in_each_run_fails_with_the_last_results(project: Project, tmp_path: Path) -> None:
    outcome = built(project, tmp_path, PYTEST, 9)
    assert outcome.code == 1
    assert number_of_runs(tmp_path) == 3
    assert "assert 3 >= 9" in outcome.err
    assert "(in run 3 of 3)" in outcome.err
    assert flaky(project) == []


def test_a_step_of_verify_without_results_is_flaky_itself(project: Project, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    step = {"shell": f"echo x >> {runs}; [ $(wc -l < {runs}) -ge 2 ]", "reruns": 1}
    outcome = built(project, tmp_path, {"shell": "echo 1 > out", "outputs": ["out"], "verify": [step]})
    assert outcome.code == 0, outcome
    assert [message for _, message in flaky(project)] == ["exited with 1 in run 1, and passed in run 2"]


@pytest.mark.parametrize(
    "ends",
    ["exit 127", "exit 126", "printf 'TAP version 13\\n1..1\\nnot ok 1 a\\n'; kill -SEGV $$", "exit 0 # no report"],
    ids=["not-found", "not-executable", "crash", "no-report"],
)
def test_what_another_run_cannot_help_runs_once(project: Project, tmp_path: Path, ends: str) -> None:
    stage = {**OF_TAP, "shell": f"echo x >> {{runs}}; {ends}"}
    assert built(project, tmp_path, stage).code == 1
    assert number_of_runs(tmp_path) == 1


def test_no_run_begins_when_the_wall_time_is_over(project: Project, tmp_path: Path) -> None:
    stage = {**OF_TAP, "shell": f"sleep 0.3; {TAP}", "stop_conditions": {"max_wall": 0.2}}
    built(project, tmp_path, stage)
    assert number_of_runs(tmp_path) == 1
    assert [one["code"] for one in project.events_of("stage_finished")[0]["data"]["problems"]] == ["E301"]


def test_the_key_has_the_number_of_reruns(project: Project, tmp_path: Path) -> None:
    assert built(project, tmp_path, {**OF_TAP, "reruns": 0}, 0).code == 0
    assert built(project, tmp_path, OF_TAP, 0).code == 0
    assert [one["subject"] for one in project.events_of("stage_decided")[0]["data"]["reasons"]] == ["reruns"]


def test_reruns_belong_to_steps_whose_verdict_another_run_can_change(project: Project) -> None:
    stages: dict[str, Any] = {
        "a": {"shell": "true", "reruns": 1},
        "b": {"shell": "true", "verify": [{"check": "python_syntax", "reruns": 1}]},
        "c": {"pytest": {"paths": ["t"], "must_fail": True}, "reruns": 1},
        "d": {"shell": "true", "verify": [{"shell": "true", "reruns": 11}]},
    }
    found = project.write({**scripted(stages, {}), "t/test_a.py": ""}).run("validate").err
    for text in (
        "`reruns` of a shell stage needs",
        "is for shell and pytest",
        "and `must_fail` contradict",
        "the maximum is 10",
    ):
        assert text in found, text
