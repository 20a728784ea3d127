"""The template planner_coder_tester: its life, and the ways in which a run halts."""

import json
from typing import Any

import pytest

from tests.e2e import planner_coder_tester as pct
from tests.e2e.planner_coder_tester import (
    GOAL,
    HERE,
    PIPELINE,
    RUNS,
    SRC,
    STOP,
    TESTS,
    answered,
    calls,
    edits,
    plan,
    reported,
    task,
)
from tests.project import Project

SKIPPED = {"tester": "skipped"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("templates"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds with pytest in them

ONE = "def one():\n    return 1\n"
NUMBERS = {
    "test_numbers.py": "from numbers_ import one\n\n\ndef test_one():\n    assert one() == 1\n",
}
THREE = plan(task(1, "numbers_.py"), task(2, "numbers_.py"), task(3, "more.py"))


@pytest.fixture
def template(project: Project) -> Project:
    return pct.placed(project)


def build(project: Project, *argv: str) -> Any:
    return project.build(PIPELINE, *argv)


def statuses(project: Project) -> dict[str, str]:
    return {event["role"]: event["data"]["status"] for event in project.events_of("stage_finished")}


def halted(project: Project, answers: dict[str, str], code: str, **more: Any) -> Any:
    """Build with these answers, and see the run end with 1 and this code."""
    outcome = build(answered(project, answers, tests=NUMBERS, **more))
    assert outcome.code == 1, outcome.err
    assert code in outcome.err
    return outcome


# ---- its life -------------------------------------------------------------------------------------


def test_a_goal_is_planned_coded_and_tested_edited_and_taken_back(template: Project) -> None:
    assert template.run("validate", PIPELINE).code == 0
    later = {"code": "expand", "report": "expand", **SKIPPED}
    assert template.plan(PIPELINE) == {"summary": "run", "plan": "run", "tests": "run", **later}
    built = build(template)
    assert built.code == 0, built.err
    first = template.files(SRC)
    assert set(first) == {f"{SRC}/stats/{name}.py" for name in ("__init__", "__main__", "summary")}
    kept = {f"{RUNS}/{name}" for name in ("plan_0001.json", "repo_summary.txt", "test_results.json")}
    kept |= {f"{RUNS}/report_T{number}.json" for number in (1, 2)}
    assert set(template.files("workspace")) == {*first, *kept}
    assert calls(template) == 3
    assert build(template).err == "planner_coder_tester: up to date (7 stages, 1 skipped)\n"
    assert calls(template) == 0

    goal = template.read(GOAL)
    template.edit(GOAL, goal.replace("`mean` (their mean", "`mean` and `median` (their mean and median"))
    planned = template.plan(PIPELINE)
    assert planned == {"summary": "fresh", "plan": "run", "tests": "maybe", **later}
    assert build(template).code == 0
    assert calls(template) == 3
    assert "median" in template.read(f"{SRC}/stats/summary.py")

    template.edit(GOAL, goal)
    assert build(template).code == 0
    assert calls(template) == 0
    assert template.files(SRC) == first


def test_it_builds_offline_and_from_recordings_alone(template: Project) -> None:
    assert build(template, "--offline").code == 0
    assert template.run("reset", PIPELINE).code == 0
    replayed = build(template, "--replay")
    assert replayed.code == 0, replayed.err
    assert calls(template) == 0


def test_a_new_test_is_run_on_what_is_there_and_only_the_planner_is_reported_of_it(template: Project) -> None:
    build(template)
    template.write(
        {f"{TESTS}/test_package.py": "import stats\n\n\ndef test_it_has_a_docstring():\n    assert stats.__doc__\n"}
    )
    assert build(template).code == 0
    assert statuses(template) == {
        "summary": "built",
        "plan": "built",
        "code@T1": "verified",
        "code@T2": "verified",
        "tests": "built",
        "report@T1": "built",
        "report@T2": "built",
        **SKIPPED,
    }
    assert calls(template) == 1
    assert [one["data"]["report"].count("5 passed") for one in reported(template) if one["type"] == "test_result"] == [
        0,
        1,
    ]


def test_files_that_were_there_are_shown_to_the_coder_edited_in_place_and_given_back(template: Project) -> None:
    before = '"""Numbers."""\n\n\ndef zero():\n    return 0\n'
    template.write({f"{SRC}/numbers_.py": before})
    answered(
        template, {"plan": plan(task(1, "numbers_.py")), "code@T1": edits({"numbers_.py": before + ONE})}, tests=NUMBERS
    )
    assert build(template).code == 0
    assert template.read(f"{SRC}/numbers_.py") == before + ONE
    assert "numbers_.py: Numbers." in template.read(f"{RUNS}/repo_summary.txt")
    asked = template.run("show", PIPELINE, "code@T1", "--prompt").out
    assert json.dumps(before) in asked
    assert build(template).err.startswith("planner_coder_tester: up to date"), (
        "the planner goes on seeing the file as it was"
    )
    assert template.run("clean", PIPELINE).code == 0
    assert template.read(f"{SRC}/numbers_.py") == before


def test_sources_and_their_tests_may_be_one_folder_anywhere(template: Project) -> None:
    here = ("--set", "project=src", "--set", "tests=src/tests")
    template.write({f"src/tests/{name}": text for name, text in NUMBERS.items()})
    answer = json.dumps({"edits": [{"path": "src/numbers_.py", "content": ONE}]})
    answered(template, {"plan": plan(task(1, "numbers_.py")), "code@T1": answer})
    assert build(template, *here).code == 0
    assert set(template.files("src")) == {"src/numbers_.py", "src/tests/test_numbers.py"}
    assert template.read(f"{RUNS}/repo_summary.txt") == "tests/test_numbers.py\n"
    assert build(template, *here).err.startswith("planner_coder_tester: up to date")


# ---- how it halts ---------------------------------------------------------------------------------


def test_the_first_failing_task_halts_the_run_and_can_be_looked_at(template: Project) -> None:
    answers = {
        "plan": THREE,
        "code@T1": edits({"numbers_.py": ONE}),
        "code@T2": edits({"numbers_.py": ONE.replace("return 1", "return 2")}),
        "code@T3": edits({"more.py": ONE}),
    }
    halted(template, answers, "test_numbers.py::test_one")
    ends = statuses(template)
    assert (ends["code@T1"], ends["code@T2"], ends["code@T3"]) == ("built", "failed", "blocked")
    assert "return 2" in template.read(f"{SRC}/numbers_.py"), "what failed is there, for a person to look at"
    assert not template.exists(f"{SRC}/more.py")
    assert "code@T3" not in template.ran()
    said = reported(template)
    assert [(one["role"], one["type"], one["data"].get("passed")) for one in said] == [
        ("planner", "plan", None),
        ("coder", "patch", None),
        ("tester", "test_result", True),
        ("coder", "patch", None),
        ("tester", "test_result", False),
    ]
    assert "1 failed" in said[-1]["data"]["report"]
    assert build(template).code == 1, "the failure stays one"
    assert calls(template) == 0, "and costs nothing"
    answered(template, {**answers, "code@T2": edits({"numbers_.py": ONE + "\n\nTWO = 2\n"})})
    assert build(template).code == 0
    assert set(statuses(template).values()) == {"fresh", "built", "skipped"}
    assert template.exists(f"{SRC}/more.py")


def test_a_coder_that_needs_another_file_says_so_and_nothing_is_touched(template: Project) -> None:
    template.write({f"{SRC}/numbers_.py": ONE})
    halted(template, {"plan": plan(task(1, "numbers_.py"), task(2, "more.py")), "code@T1": STOP}, "E217")
    assert template.files(SRC) == {f"{SRC}/numbers_.py": ONE.encode()}
    assert statuses(template)["code@T2"] == "blocked"
    last = reported(template)[-1]
    assert (last["role"], last["type"], last["data"]["status"]) == ("coder", "error", "error")
    assert "tax.py is not in artifacts" in last["data"]["reason"]


def test_a_planner_that_cannot_plan_says_so_and_no_one_codes(template: Project) -> None:
    halted(template, {"plan": STOP}, "E217")
    assert template.files(SRC) == {}
    assert [(one["role"], one["type"]) for one in reported(template)] == [("planner", "error")]


@pytest.mark.stride(3)
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (f"```json\n{plan(task(1, 'a.py'))}\n```", "E201"),
        (f"Here is the plan: {plan(task(1, 'a.py'))}", "E201"),
        (plan(task(1, "a.py"), plan_id="plan_0002"), "E330"),
        (plan(task(2, "a.py")), "E331"),
        (plan(task(1, "a.py"), task(3, "b.py")), "E331"),
        (plan(task(1, "../../../pipelines/a.yaml")), "E332"),
        (plan(task(1, "Numbers_.py")), "E332"),
        (plan(task(1, "test_a.py")), "E333"),
        (plan(task(1)), "E860"),
        (plan(task(1, "a.py", title="t" * 4001)), "E860"),
        (plan(task(1, "a.py", dueDate="now")), "E860"),
    ],
)
def test_a_plan_that_is_not_as_agreed_is_refused_and_no_one_codes(template: Project, answer: str, code: str) -> None:
    template.write({f"{SRC}/numbers_.py": ONE})
    halted(template, {"plan": answer}, code)
    assert not template.exists(f"{RUNS}/plan_0001.json")
    assert [one["type"] for one in reported(template)] == ["error"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (edits({"numbers_.py": ONE}) * 2, "E201"),
        (f"```json\n{edits({'numbers_.py': ONE})}\n```", "E201"),
        (edits({"numbers_.py": ONE, "other.py": ONE}), "E204"),
        (json.dumps({"edits": [{"path": f"{TESTS}/test_numbers.py", "content": "def test_one(): pass\n"}]}), "E204"),
        (edits({"numbers_.py": "--- a/numbers_.py\n+++ b/numbers_.py\n@@ -1 +1 @@\n-x\n+y\n"}), "E221"),
        (edits({"numbers_.py": "def one():\n    # ... rest of code unchanged\n"}), "E214"),
        (json.dumps({"edits": [], "files_changed": 1}), "E203"),
        (json.dumps({"edits": {"numbers_.py": [ONE]}}), "E202"),
    ],
)
def test_edits_that_are_not_as_agreed_are_refused_and_nothing_is_touched(
    template: Project, answer: str, code: str
) -> None:
    halted(template, {"plan": plan(task(1, "numbers_.py")), "code@T1": answer}, code)
    assert template.files(SRC) == {}
    assert template.read(f"{TESTS}/test_numbers.py") == NUMBERS["test_numbers.py"]


def test_a_plan_that_lists_a_file_among_the_tests_is_refused(template: Project) -> None:
    template.write({f"src/tests/{name}": text for name, text in NUMBERS.items()})
    answered(template, {"plan": plan(task(1, "tests/data.json"))})
    outcome = build(template, "--set", "project=src", "--set", "tests=src/tests")
    assert outcome.code == 1
    assert "E852" in outcome.err
    assert set(template.files("src")) == {"src/tests/test_numbers.py"}


def test_an_artifact_that_is_not_made_is_an_error_and_no_test_result(template: Project) -> None:
    halted(template, {"plan": plan(task(1, "numbers_.py", "more.py")), "code@T1": edits({"numbers_.py": ONE})}, "E303")
    assert [one["type"] for one in reported(template)] == ["plan", "patch", "error"]


def test_tests_that_do_not_end_are_killed_and_halt_the_run(template: Project) -> None:
    template.replace(PIPELINE, "timeout: 120s", "timeout: 3s")
    endless = {"numbers_.py": "def one():\n    while True:\n        pass\n"}
    halted(template, {"plan": plan(task(1, "numbers_.py")), "code@T1": edits(endless)}, "E304")
    assert [one["type"] for one in reported(template)] == ["plan", "patch", "error"]


def test_code_that_makes_pytest_end_with_0_has_no_test_result(template: Project) -> None:
    cheat = {"numbers_.py": "import os\n\nos._exit(0)\n"}
    halted(template, {"plan": plan(task(1, "numbers_.py")), "code@T1": edits(cheat)}, "E308")
    assert [one["type"] for one in reported(template)] == ["plan", "patch", "error"]


def test_the_picture_on_its_page_is_what_the_graph_is(template: Project) -> None:
    drawn = template.run("graph", PIPELINE, "--format", "mermaid").out
    assert drawn in (HERE / "docs/templates/planner_coder_tester.md").read_text()
