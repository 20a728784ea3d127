"""What `--output` shows of a build is the whole of it, also where there is nothing to do, or only a part is reached."""

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


def test_a_report_says_what_failed(several: Project) -> None:
    several.delete("in/1")
    several.write({"in/1": "x\n"})
    several.edit("pipeline.yaml", (several.root / "pipeline.yaml").read_text().replace("[cp, in/1", "['false', in/1"))
    outcome = several.build("--output", "junit", "-k")
    assert outcome.code == 1
    suite = ET.fromstring(outcome.out)[0]
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert (failed, suite.get("tests")) == (["s1"], "4")


def test_what_is_shown_otherwise_leaves_stdout_alone(several: Project) -> None:
    for name in ("auto", "plain", "quiet"):
        assert several.build("--output", name).out == ""


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
