"""What planner_coder_tester promises of its roles: prompts, communication log, reports, ids, and what may run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from orch23.resolve.templates import render_text
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
from tests.repository import Repository

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("templates"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds with pytest in them

ONE = "def one():\n    return 1\n"
PASSING = {"test_a.py": "from a import one\n\n\ndef test_one():\n    assert one() == 1\n"}
LLM = ("--set", "tester=llm")
TEMPLATE = "prompts/planner_coder_tester/communication_log.jsonl.j2"


@pytest.fixture
def template(project: Project) -> Project:
    return pct.placed(project)


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Build the template once for all tests that start after its first build."""
    made = pct.placed(Project(tmp_path_factory.mktemp("first") / "project"))
    assert made.build(PIPELINE).code == 0
    return made


@pytest.fixture
def built(first_build: Project, tmp_path: Path) -> Project:
    """Give a copy of the template after its own first build."""
    return first_build.copy(tmp_path / "project")


def red(project: Project, printed: int) -> None:
    """Build a task whose tests fail, and print so many characters."""
    test = f"from a import one\n\n\ndef test_one():\n    print('x' * {printed})\n    assert one() == 2\n"
    answered(project, {"plan": plan(task(1, "a.py")), "code@T1": edits({"a.py": ONE})}, tests={"test_a.py": test})
    assert project.build(PIPELINE).code == 1


# ---- what may run, and what keys are called ---------------------------------------------------------


def test_pytest_is_the_only_program_that_the_pipeline_runs_and_its_time_is_limited() -> None:
    pipeline = yaml.safe_load((HERE / PIPELINE).read_text())
    stages = pipeline["stages"].values()
    assert [stage["pytest"]["args"] for stage in stages if {"shell", "pytest"} & stage.keys()] == [["-q"]]
    steps = [step for stage in stages for step in (stage.get("verify") or {"steps": []}) if isinstance(step, dict)]
    steps += [step for stage in stages if isinstance(stage.get("verify"), dict) for step in stage["verify"]["steps"]]
    assert [sorted(step) for step in steps if "check" not in step] == [["pytest"]]
    assert next(step["pytest"]["args"] for step in steps if "pytest" in step) == ["-q"]
    assert pipeline["defaults"]["timeout"] == "120s"
    assert pipeline["defaults"]["retry"] == 0


def test_no_provider_is_reported_to_force_a_schema_on_a_role_since_each_may_state_an_error(template: Project) -> None:
    shown = template.run("show", PIPELINE, "plan", "--key").out
    assert '"structured_output": false' in shown


def _keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from schema.get("required", [])
        for value in schema.values():
            yield from _keys(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _keys(value)


@pytest.mark.parametrize("path", sorted((HERE / "specs").rglob("*.json")), ids=lambda path: path.name)
def test_every_key_of_every_shipped_schema_is_in_snake_case(path: Any) -> None:
    keys = set(_keys(json.loads(path.read_text())))
    assert all(key.replace("_", "a").isalnum() and key == key.lower() for key in keys), keys


def test_texts_of_the_roles_have_a_greatest_length_but_for_files() -> None:
    for path in ("specs/schemas/plan.v1.json", "specs/planner_coder_tester/report.v1.json"):
        texts = [value for value in _values(json.loads((HERE / path).read_text())) if value.get("type") == "string"]
        free = [value for value in texts if value.get("maxLength", 9999) > 4000]
        assert all(len(value) <= 2 for value in free), "ids and paths, which are held by the check of the plan"
    report = json.loads((HERE / "specs/planner_coder_tester/report.v1.json").read_text())
    assert report["properties"]["report"]["maxLength"] == 4000


def _values(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from _values(value)


# ---- the prompts ------------------------------------------------------------------------------------


def _input(text: str, role: str) -> Any:
    """Return the JSON in the block that is a role's input."""
    _, _, rest = text.partition(f'"input of the {role}"')
    body = rest.partition("---\n")[2].partition("\n--- end")[0]
    return json.loads(body)


@pytest.mark.parametrize("stage", ["plan", "code@T1"])
def test_every_role_is_reported_the_rules(built: Project, stage: str) -> None:
    sent = built.run("show", PIPELINE, stage, "--prompt").out
    for rule in (
        "no prose, no Markdown, no code fence",
        '{"status": "error", "reason"',
        "snake_case",
        "a secret, a key",
    ):
        assert rule in sent


def test_the_planner_is_given_goal_summary_and_id_and_asked_for_a_plan(built: Project) -> None:
    sent = built.run("show", PIPELINE, "plan", "--prompt").out
    given = _input(sent, "planner")
    assert list(given) == ["goal", "repo_summary", "plan_id"]
    assert given["goal"] == built.read(GOAL)
    assert given["repo_summary"] == built.read(f"{RUNS}/repo_summary.txt")
    assert given["plan_id"] == "plan_0001"
    assert '"title": "plan.v1"' in sent
    assert "you write no code" in sent
    assert "def test_" not in sent, "a summary has first lines alone"


def test_the_coder_is_given_one_task_and_its_files_and_no_test(built: Project) -> None:
    sent = built.run("show", PIPELINE, "code@T2", "--prompt").out
    given = _input(sent, "coder")
    assert list(given) == ["task", "context_files"]
    assert list(given["task"]) == ["id", "title", "rationale", "acceptance", "artifacts"]
    assert given["task"]["id"] == "T2"
    assert given["task"]["artifacts"] == [f"{SRC}/stats/__main__.py", f"{SRC}/stats/summary.py"]
    (shown,) = given["context_files"]
    assert list(shown) == ["path", "content"]
    assert shown["path"] == f"{SRC}/stats/summary.py"
    assert "def get_user_stats" in shown["content"]
    assert "format_user_stats" not in shown["content"], "it is shown as T1 left it"
    assert "test_summary" not in sent
    assert "T1" not in sent
    assert "change no plan and no tests" in sent


def test_the_summary_has_sorted_paths_each_with_its_first_line(template: Project) -> None:
    template.write(
        {
            f"{SRC}/b/empty.py": "",
            f"{SRC}/b/plain.py": "import os\n",
            f"{SRC}/a.py": '\n"""What a is for.\n\nAt length."""\n',
            f"{SRC}/a.md": "# All of a\n",
            f"{SRC}/run.sh": f"#!/bin/{'x' * 200}\n",
        }
    )
    template.build(PIPELINE, "summary")
    summary = template.read(f"{RUNS}/repo_summary.txt")
    lines = summary.splitlines()
    assert lines[:5] == [
        "a.md: All of a",
        "a.py: What a is for.",
        "b/empty.py",
        "b/plain.py",
        f"run.sh: bin/{'x' * 73}...",
    ]
    assert lines[5:] == [
        f"{TESTS}/test_command_line.py: What `python -m stats` has to print, once there is one.",
        f"{TESTS}/test_summary.py: What `get_user_stats` has to give.",
    ]
    template.delete(f"{RUNS}/repo_summary.txt")
    template.run("reset", PIPELINE)
    template.build(PIPELINE, "summary")
    assert template.read(f"{RUNS}/repo_summary.txt") == summary


# ---- ids, order, snapshots ----------------------------------------------------------------------------


def test_another_plan_id_is_echoed_and_names_the_snapshot(template: Project) -> None:
    other = {"plan": plan(task(1, "a.py"), plan_id="plan_0002"), "code@T1": edits({"a.py": ONE})}
    answered(template, other, tests=PASSING)
    assert template.build(PIPELINE, "--set", "plan_id=plan_0002").code == 0
    assert json.loads(template.read(f"{RUNS}/plan_0002.json"))["plan_id"] == "plan_0002"
    assert not template.exists(f"{RUNS}/plan_0001.json")


def test_a_released_plan_stays_beside_the_next_one(built: Project) -> None:
    first = built.read(f"{RUNS}/plan_0001.json")
    assert built.run("release", PIPELINE, "plan").code == 0
    other = {"plan": plan(task(1, "a.py"), plan_id="plan_0002"), "code@T1": edits({"a.py": ONE})}
    answered(built, other, tests=PASSING)
    for _ in range(2):
        assert built.build(PIPELINE, "--set", "plan_id=plan_0002").code == 0
    assert built.read(f"{RUNS}/plan_0001.json") == first
    assert json.loads(built.read(f"{RUNS}/plan_0002.json"))["plan_id"] == "plan_0002"


NEXT = {"test_b.py": "import a\n\n\ndef test_two():\n    assert not hasattr(a, 'two') or a.two() == 2\n"}


def first_goal(project: Project) -> dict[str, bytes]:
    """Build a plan of two tasks, and prepare the answers for another goal, whose task extends a file of the first."""
    first = {"plan": plan(task(1, "a.py"), task(2, "more.py")), "code@T1": edits({"a.py": ONE})}
    answered(project, {**first, "code@T2": edits({"more.py": ONE})}, tests=PASSING)
    assert project.build(PIPELINE).code == 0
    built = project.files(SRC)
    project.edit(GOAL, "# Goal\n\nAdd `two`.\n")
    project.write({f"{TESTS}/{name}": text for name, text in NEXT.items()})
    return built


AT_STAKE = f"may replace or remove {SRC}/a.py {SRC}/more.py: `orch23 release` of this stage keeps them"


def test_a_next_goal_extends_what_was_built_once_it_is_released(template: Project) -> None:
    """As the page describes it."""
    built = first_goal(template)
    first_plan = template.read(f"{RUNS}/plan_0001.json")
    assert template.run("release", PIPELINE, "plan", "code").code == 0
    template.replace(PIPELINE, "plan_id: plan_0001 ", "plan_id: plan_0002 ")
    two = ONE + "\n\ndef two():\n    return 2\n"
    answered(template, {"plan": plan(task(1, "a.py"), plan_id="plan_0002"), "code@T1": edits({"a.py": two})})
    planned = template.run("plan", PIPELINE).out
    assert "may replace" not in planned
    assert "would remove" not in planned
    outcome = template.build(PIPELINE)
    assert outcome.code == 0, outcome.err
    assert "its new list replaces" not in outcome.err
    assert template.files(SRC) == {**built, f"{SRC}/a.py": two.encode()}
    assert template.read(f"{RUNS}/repo_summary.txt").splitlines()[:2] == ["a.py", "more.py"]
    asked = template.run("show", PIPELINE, "code@T1", "--prompt").out
    assert _input(asked, "coder")["context_files"] == [{"path": f"{SRC}/a.py", "content": ONE}]
    assert template.read(f"{RUNS}/plan_0001.json") == first_plan
    assert "up to date" in template.build(PIPELINE).err
    assert template.run("clean", PIPELINE).code == 0
    assert template.files(SRC) == built


@pytest.mark.parametrize("plan_id", ["plan_0001", "plan_0002"])
def test_what_a_next_goal_would_replace_is_named_before_it_happens(template: Project, plan_id: str) -> None:
    first_goal(template)
    answered(template, {"plan": plan(task(1, "a.py", title="two"), plan_id=plan_id), "code@T1": STOP})
    planned = template.run("plan", PIPELINE, "--set", f"plan_id={plan_id}")
    assert AT_STAKE in planned.out
    assert AT_STAKE in str(template.run("plan", "--json", PIPELINE, "--set", f"plan_id={plan_id}").json())
    outcome = template.build(PIPELINE, "--set", f"plan_id={plan_id}")
    assert outcome.code == 1
    way = f"to keep them, stop this build and run `orch23 release {PIPELINE} code --set plan_id={plan_id}`"
    assert f"warning: code: its new list replaces or removes {SRC}/a.py, {SRC}/more.py; {way}\n" in outcome.err
    names = [one["type"] for one in template.events() if one["role"] in ("code", "code@T1")]
    assert names.index("warning") < names.index("stage_started"), "before a task has run"


def test_a_list_that_stays_the_same_replaces_nothing(template: Project) -> None:
    first_goal(template)
    outcome = template.build(PIPELINE)
    assert outcome.code == 0, outcome.err
    assert "its new list" not in outcome.err
    assert AT_STAKE not in template.run("plan", PIPELINE).out


def test_edits_in_another_order_are_taken_and_reported_by_path(template: Project) -> None:
    unsorted = edits({"b.py": ONE, "a.py": ONE})
    answered(template, {"plan": plan(task(1, "a.py", "b.py")), "code@T1": unsorted}, tests=PASSING)
    assert template.build(PIPELINE).code == 0
    assert reported(template)[1]["data"]["files"] == [f"{SRC}/a.py", f"{SRC}/b.py"]


def test_the_plan_of_every_run_that_planned_is_kept_in_its_log(built: Project) -> None:
    assert (reported(built)[0]["role"], reported(built)[0]["type"]) == ("planner", "plan")
    first = reported(built)[0]["data"]
    run = built.journals()[-1].stem
    built.edit(GOAL, built.read(GOAL) + "- Also the median.\n")
    assert built.build(PIPELINE).code == 0
    second = reported(built)[0]["data"]
    assert json.loads(built.read(f"logs/{run}/communication_log.jsonl").splitlines()[0])["data"] == first
    assert first != second == json.loads(built.read(f"{RUNS}/plan_0001.json"))


# ---- the communication log and the tester by rule -------------------------------------------------------


def test_the_log_says_who_said_what_in_time_order_and_is_never_written_again(built: Project) -> None:
    said = reported(built)
    assert all(list(one) == ["ts", "role", "type", "data"] for one in said)
    assert [(one["role"], one["type"]) for one in said] == [
        ("planner", "plan"),
        ("coder", "patch"),
        ("tester", "test_result"),
        ("coder", "patch"),
        ("tester", "test_result"),
    ]
    assert [one["ts"] for one in said] == sorted(one["ts"] for one in said)
    assert list(said[0]["data"]) == ["plan_id", "tasks"]
    assert said[1]["data"] == {"task_id": "T1", "files": [f"{SRC}/stats/__init__.py", f"{SRC}/stats/summary.py"]}
    (log,) = (built.root / "logs").glob("*/communication_log.jsonl")
    before = log.read_bytes()
    assert built.build(PIPELINE).code == 0
    built.replace(PIPELINE, "jobs: 1", "jobs: 2")
    assert built.build(PIPELINE).code == 0
    assert list((built.root / "logs").glob("*/communication_log.jsonl")) == [log], "these runs had nothing to say"
    assert log.read_bytes() == before


def test_a_report_is_made_without_a_model_and_has_its_keys_in_order(built: Project) -> None:
    before = calls(built)
    reports = [one["data"] for one in reported(built) if one["type"] == "test_result"]
    assert [list(report) for report in reports] == [["task_id", "passed", "report"]] * 2
    assert [(report["task_id"], report["passed"]) for report in reports] == [("T1", True), ("T2", True)]
    assert "3 passed, 1 skipped in " in reports[0]["report"]
    assert "4 passed in " in reports[1]["report"]
    assert before == 3, "a planner and two coders"


def test_a_failing_task_has_a_report_too_and_its_exit_code(template: Project) -> None:
    red(template, 10)
    last = reported(template)[-1]
    assert (last["role"], last["type"]) == ("tester", "test_result")
    assert (last["data"]["task_id"], last["data"]["passed"]) == ("T1", False)
    assert "1 failed" in last["data"]["report"]
    assert not template.exists(f"{RUNS}/report_T1.json"), "files are for tasks that have passed"


def test_an_output_over_4000_characters_is_cut_to_its_ends_to_the_character(template: Project) -> None:
    red(template, 9000)
    run = template.journals()[-1].stem
    whole = template.read(f"logs/{run}/code@T1/attempt-1/verify-1.txt")
    assert len(whole) > 9000
    report = reported(template)[-1]["data"]["report"]
    assert report == f"{whole[:2500]}\n...\n{whole[-1000:]}"
    assert len(report) == 3505


@pytest.mark.parametrize(("size", "cut"), [(0, 0), (3999, 3999), (4000, 4000), (4001, 3505), (90_000, 3505)])
def test_the_limit_is_4000(size: int, cut: int) -> None:
    facts = {"exit_code": 0, "passed": True, "printed": "verify-1.txt", "attempt": 1}
    event = {"ts": "now", "role": "code@T1", "type": "check_result", "data": facts, "text": "é" * size}
    line = render_text((HERE / TEMPLATE).read_text(), {"events": [event], "vars": {}}, TEMPLATE)
    assert len(json.loads(line)["data"]["report"]) == cut


def test_the_first_build_writes_the_reports_as_files_and_the_next_one_keeps_them(
    built: Project,
) -> None:
    schema = json.loads((HERE / "specs/planner_coder_tester/report.v1.json").read_text())
    for _ in range(2):
        for number in (1, 2):
            report = json.loads(built.read(f"{RUNS}/report_T{number}.json"))
            assert report == {"task_id": f"T{number}", "passed": True, "report": "4 passed"}
            assert list(report) == ["task_id", "passed", "report"]
            jsonschema.validate(report, schema)
        assert built.build(PIPELINE).code == 0


def test_a_log_that_cannot_be_rendered_is_an_error_before_anything_runs(template: Project) -> None:
    for path, code in (("prompts/gone.j2", "E831"), ("../log.j2", "E850")):
        template.replace(PIPELINE, TEMPLATE, path)
        refused = template.build(PIPELINE)
        assert (refused.code, code in refused.err) == (65, True), refused.err
        template.replace(PIPELINE, path, TEMPLATE)
    template.write({TEMPLATE: "{{ evnts }}"})
    assert template.build(PIPELINE).code == 65
    assert not template.journals()


def test_a_task_whose_own_tests_were_all_skipped_says_so(template: Project) -> None:
    own = "import pytest\n\n\n@pytest.mark.skip(reason='later')\ndef test_b():\n    assert False\n"
    answers = {"plan": plan(task(1, "a.py")), "code@T1": edits({"a.py": ONE})}
    outcome = answered(template, answers, tests={**PASSING, "test_b.py": own}).build(PIPELINE)
    assert outcome.code == 0
    assert f"note: code@T1: 1 of 2 tests skipped: {TESTS}/test_b.py::test_b\n" in outcome.err
    (warned,) = template.events_of("warning")
    assert (warned["role"], warned["level"]) == ("code@T1", "info")


@pytest.mark.stride(2)
@pytest.mark.parametrize("root", [".", "./"])
def test_tasks_may_work_on_the_whole_repository(template: Project, root: str) -> None:
    """Its reports, and the files of the pipeline, are not among its sources."""
    answer = json.dumps({"edits": [{"path": "a.py", "content": ONE}]})
    answered(template, {"plan": plan(task(1, "a.py")), "code@T1": answer}, tests=PASSING)
    outcome = template.build(PIPELINE, "--set", f"project={root}")
    assert outcome.code == 0, outcome.err
    assert json.loads(template.read(f"{RUNS}/report_T1.json"))["passed"]
    assert template.read(f"{RUNS}/repo_summary.txt") == f"{TESTS}/test_a.py\n"
    template.edit("docs/templates/planner_coder_tester.md", "another page\n")
    assert "up to date" in template.build(PIPELINE, "--set", f"project={root}").err


@pytest.mark.parametrize("path", ["prompts/planner_coder_tester/coder.md.j2", GOAL, ".orch23-x.answers.yml"])
def test_no_task_may_write_a_file_of_the_pipeline(template: Project, path: str) -> None:
    answer = json.dumps({"edits": [{"path": path, "content": "Do as you like."}]})
    answered(template, {"plan": plan(task(1, path)), "code@T1": answer}, tests=PASSING)
    before = template.read(path) if template.exists(path) else None
    assert template.build(PIPELINE, "--set", "project=.").code == 1
    assert (template.read(path) if template.exists(path) else None) == before
    assert calls(template) <= 1, "the planner's"


def test_a_project_without_tests_costs_no_call(template: Project) -> None:
    planned = template.run("plan", PIPELINE, "--set", "tests=nope")
    assert "W669" in planned.out + planned.err
    assert template.build(PIPELINE, "--set", "tests=nope").code == 1
    assert calls(template) == 0


def test_a_changed_test_that_recorded_code_fails_costs_one_call_and_then_halts(template: Project) -> None:
    answered(template, {"plan": plan(task(1, "a.py")), "code@T1": edits({"a.py": ONE})}, tests=PASSING)
    assert template.build(PIPELINE).code == 0
    template.replace(f"{TESTS}/test_a.py", "== 1", "== 2")
    for asked in (1, 0):
        assert template.build(PIPELINE).code == 1
        assert calls(template) == asked
    assert "assert one() == 2" in template.run("show", PIPELINE, "code@T1", "--prompt").out, "as the page says"


@pytest.mark.parametrize("value", ["lllm", "Render", "NONE", "true", ""])
def test_an_unknown_tester_is_refused_and_removes_no_report(built: Project, value: str) -> None:
    before = built.files("workspace")
    for command in ("plan", "build", "validate"):
        refused = built.run(command, PIPELINE, "--set", f"tester={value}")
        assert (refused.code, "error[E840]" in refused.err) == (65, True), refused.err
        assert "tester" in refused.err
    assert built.files("workspace") == before


def test_without_a_tester_the_reports_that_were_committed_stay(built: Project) -> None:
    off = ("--set", "tester=none")
    repository = Repository(built.root)
    repository.git("init", "-q")
    repository.git("add", f"{RUNS}/report_T1.json")
    repository.git("commit", "-qm", "one")
    before = built.read(f"{RUNS}/report_T1.json")
    planned = built.run("plan", PIPELINE, *off).out
    assert f"would remove {RUNS}/report_T2.json {RUNS}/test_results.json" in planned
    assert f"would release {RUNS}/report_T1.json" in planned
    assert built.build(PIPELINE, *off).code == 0
    assert built.read(f"{RUNS}/report_T1.json") == before
    assert not built.exists(f"{RUNS}/report_T2.json")
    assert built.build(PIPELINE).code == 0
    assert built.exists(f"{RUNS}/report_T2.json")


# ---- a model as the tester ------------------------------------------------------------------------------


def test_a_model_may_be_the_tester_in_the_first_build_and_costs_a_call_a_task_once(template: Project) -> None:
    assert template.plan(PIPELINE, *LLM)["tester"] == "expand"
    assert template.build(PIPELINE, *LLM).code == 0
    assert calls(template) == 5
    report = json.loads(template.read(f"{RUNS}/report_T2.json"))
    assert list(report) == ["task_id", "passed", "report"]
    assert report["passed"] is True
    assert [(one["role"], one["type"], one["data"]) for one in reported(template)][-1] == ("tester", "report", report)
    assert template.build(PIPELINE, *LLM).code == 0
    assert calls(template) == 0


def test_the_tester_is_given_id_exit_code_and_results_cut_to_3505(template: Project) -> None:
    many = "".join(f"def test_{number}():\n    pass\n\n\n" for number in range(200))
    said = json.dumps({"task_id": "T1", "passed": True, "report": "all passed"})
    answers = {"plan": plan(task(1, "a.py")), "code@T1": edits({"a.py": ONE}), "tester@T1": said}
    answered(template, answers, tests={**PASSING, "test_many.py": many})
    outcome = template.build(PIPELINE, *LLM)
    assert outcome.code == 0, outcome.err
    sent = template.run("show", PIPELINE, *LLM, "tester@T1", "--prompt").out
    given = _input(sent, "tester")
    assert list(given) == ["task_id", "pytest_exit_code", "pytest_output"]
    assert (given["pytest_exit_code"], len(given["pytest_output"])) == (0, 3505)
    assert "you do not judge the code, and you do not fix it" in sent


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ('{"task_id": "T1", "passed": false, "report": "red"}', "E334"),
        ('{"task_id": "T2", "passed": true, "report": "fine"}', "E334"),
        ('{"passed": true, "task_id": "T1", "report": "fine"}', "E335"),
        ('{"task_id": "T1", "passed": "no", "report": "red"}', "E860"),
        (json.dumps({"task_id": "T1", "passed": True, "report": "r" * 4001}), "E860"),
        ('{"status": "error", "reason": "no output"}', "E217"),
    ],
)
def test_a_tester_is_held_to_the_exit_code_and_the_form(template: Project, said: str, code: str) -> None:
    answers = {"plan": plan(task(1, "a.py")), "code@T1": edits({"a.py": ONE}), "tester@T1": said}
    outcome = answered(template, answers, tests=PASSING).build(PIPELINE, *LLM)
    assert outcome.code == 1
    assert code in outcome.err
    assert not template.exists(f"{RUNS}/report_T1.json")
    assert (reported(template)[-1]["role"], reported(template)[-1]["type"]) == ("tester", "error")
