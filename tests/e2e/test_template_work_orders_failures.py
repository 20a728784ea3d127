"""The template work_orders where it fails: what is refused, with which code and exit status, and what is left."""

import hashlib
import json
import sys
from typing import Any

import pytest

from tests.e2e.pipelines import ends, green
from tests.e2e.work_order_template import (
    ANSWERS,
    PIPELINE,
    PLACE,
    REPO,
    answered,
    calls,
    copied,
    failures,
    kept,
    makes,
    repository,
    verified_by,
)
from tests.project import Project, files_answer
from tests.unit.checks.orders import absent, exists, manifest, order

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("templates"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds, many of them

VERIFY_SH = {"scripts/verify.sh": "exit 0\n"}


# ---- the planner ----------------------------------------------------------------------------------

ORDER = order(1)
WRONG: dict[str, tuple[Any, str]] = {
    "E001": (manifest(order(2)), "[E001] work_orders[0]: has the id `WO-02`"),
    "E003": (manifest(order(acceptance_commands=["python f1.py | cat"])), "[E003] WO-01 acceptance_commands[0]:"),
    "E004": (manifest(order(context_files=["*.py"])), "[E004] WO-01 context_files[0]:"),
    "E005": (manifest(order(context_files=["./f1.py"])), "[E005] WO-01 context_files[0]:"),
    "E006": (manifest(order(acceptance_commands=["python -c 'def'"])), "[E006] WO-01 acceptance_commands[0]:"),
    "E007": (manifest(order(acceptance_commands=["python -c 'x"])), "[E007] WO-01 acceptance_commands[0]:"),
    "E101": (manifest(order(preconditions=exists("gone.py"))), "[E101] WO-01 preconditions[0]:"),
    "E102": (manifest(order(preconditions=[*exists("f1.py"), *absent("f1.py")])), "[E102] WO-01 preconditions[0]:"),
    "E103": (manifest(order(postconditions=exists("f1.py", "g.py"))), "[E103] WO-01 postconditions[1]:"),
    "E104": (manifest(order(allowed_files=["f1.py", "g.py"])), "[E104] WO-01 allowed_files[1]:"),
    "E105": (manifest(order(acceptance_commands=["bash  scripts/verify.sh"])), "[E105] WO-01 acceptance_commands[0]:"),
    "E106": (manifest(order(), verify_contract={"requires": exists("x")}), "[E106] verify_contract requires[0]:"),
    "E860: no orders": (manifest(), "[E860] work_orders:"),
    "E860: an order is a text": (manifest("WO-01"), "[E860] work_orders[0]:"),
    "E835: a program that is not allowed": (manifest(order(acceptance_commands=["rm f1.py"])), "`rm` is not allowed"),
    "E822: a context file that nobody makes": (manifest(order(context_files=["gone.py"])), "[E822]"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_plan_that_stays_wrong_ends_with_2_and_leaves_its_errors_and_no_orders(project: Project, name: str) -> None:
    plan, reported = WRONG[name]
    outcome = verified_by(answered(project, [plan] * 3)).build(PIPELINE)
    assert outcome.code == 2, outcome.err
    assert calls(project) == ["plan"] * 3
    assert all(reported in kept(project, "plan", attempt, "failure.txt") for attempt in (1, 2, 3))
    assert repository(project) == VERIFY_SH
    assert [path for path in ("plan.json", "orders") if project.exists(f"{PLACE}/{path}")] == []


@pytest.mark.stride(3)
@pytest.mark.parametrize("name", ["E005", "E835: a program that is not allowed", "E860: an order is a text"])
def test_the_planner_is_reported_and_the_first_right_plan_is_taken(project: Project, name: str) -> None:
    plan, reported = WRONG[name]
    green(verified_by(answered(project, [plan, manifest(ORDER)], {"WO-01": [makes()]})).build(PIPELINE))
    assert calls(project) == ["plan", "plan", "factory@WO-01"]
    assert reported in kept(project, "plan", 2, "prompt.txt")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("Here is the plan: {}", id="prose"),
        pytest.param(f"```json\n{json.dumps(manifest(ORDER))}\n```\n" * 2, id="two fences"),
        pytest.param('{"work_orders": [], "work_orders": []}', id="a key twice"),
    ],
)
def test_a_plan_that_is_no_json_ends_with_4(project: Project, answer: str) -> None:
    assert answered(project, [answer] * 3).build(PIPELINE).code == 4
    assert [one["kind"] for one in failures(project)] == ["llm_output_invalid"] * 3
    assert not project.exists(f"{PLACE}/plan.json")


def test_a_plan_in_a_code_fence_is_a_plan(project: Project) -> None:
    plan = f"Here is the plan:\n\n```json\n{json.dumps(manifest(ORDER))}\n```\n"
    green(verified_by(answered(project, [plan], {"WO-01": [makes()]})).build(PIPELINE))
    assert calls(project) == ["plan", "factory@WO-01"]
    assert json.loads(project.read(f"{PLACE}/plan.json")) == manifest(ORDER)


def test_a_provider_that_fails_ends_with_3(project: Project) -> None:
    assert answered(project, []).build(PIPELINE).code == 3, "there is no answer"
    reported = "    provider: scripted\n    model: scripted\n    answers: pipelines/work_orders.answers.yaml\n"
    broken = "    provider: command\n    model: m\n    command: [python3, -c, 'raise SystemExit(1)']\n"
    project.replace(PIPELINE, reported, broken)
    assert project.build(PIPELINE, "--replay").code == 3, "nothing is recorded"
    failed = project.build(PIPELINE)
    assert (failed.code, "E401" in failed.err) == (3, True)
    assert not project.exists(f"{PLACE}/plan.json")


@pytest.mark.needs("vendors")
@pytest.mark.parametrize("command", ["build", "plan", "validate"])
def test_a_fault_of_the_configuration_is_neither_a_refused_plan_nor_a_failed_call(
    project: Project, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(project, [])
    for fault in ("spec=specs/gone.md", "plce=elsewhere", "spec=../spec.md"):
        assert project.run(command, PIPELINE, "--set", fault).code == 65, fault
    project.replace(
        PIPELINE, "    provider: scripted\n    model: scripted\n", "    provider: openai\n    model: gpt-5.2\n"
    )
    project.replace(PIPELINE, "    answers: pipelines/work_orders.answers.yaml\n", "")
    if command == "build":
        assert (project.build(PIPELINE).code, "E412" in project.build(PIPELINE).err) == (78, True)
        monkeypatch.setitem(sys.modules, "openai", None)
        missing = project.run("build", PIPELINE, env={"OPENAI_API_KEY": "sk-none"})
        assert (missing.code, "E413" in missing.err) == (78, True)


def test_a_plan_that_only_warns_is_taken(project: Project) -> None:
    plan = manifest(order(acceptance_commands=["python -c 'if False: import gone'"]))
    outcome = verified_by(answered(project, [plan], {"WO-01": [makes()]})).build(PIPELINE)
    green(outcome)
    assert "[W101] WO-01 acceptance_commands[0]" in outcome.out + outcome.err


# ---- before the engineer is asked -----------------------------------------------------------------


def test_a_precondition_that_is_broken_since_ends_before_any_call(project: Project) -> None:
    plan = manifest(order(1, preconditions=exists("base.py")), order(2))
    verified_by(answered(project, [plan], {"WO-01": [makes(1)], "WO-02": [makes(2)]}))
    project.write({f"{REPO}/base.py": "B = 1\n"})
    green(project.build(PIPELINE, "orders"))
    project.delete(f"{REPO}/base.py")
    outcome = project.build(PIPELINE, "factory@WO-01", "--only")
    assert outcome.code == 1
    assert calls(project) == []
    assert "[E318]" in outcome.err
    assert f"requires file_exists {REPO}/base.py: it is not there" in outcome.err
    (end,) = [e["data"] for e in project.events_of("stage_finished") if e["role"] == "factory@WO-01"]
    assert end["kind"] == "preflight"
    assert repository(project) == VERIFY_SH


def test_too_much_context_ends_before_any_call(project: Project) -> None:
    plan = manifest(order(1, context_files=["big.txt"]))
    verified_by(answered(project, [plan], {"WO-01": [makes()]}))
    project.write({f"{REPO}/big.txt": "x" * 200_001})
    outcome = project.build(PIPELINE)
    assert (outcome.code, "E834" in outcome.err) == (2, True)
    assert calls(project) == ["plan"]
    assert repository(project).keys() == {"scripts/verify.sh", "big.txt"}


# ---- what the engineer may not do -----------------------------------------------------------------

OLD = "X = 0\n"
OLD_SHA256 = hashlib.sha256(OLD.encode()).hexdigest()
TWICE = {"path": "f1.py", "content": "X = 1\n"}


def writes(*found: dict[str, Any]) -> str:
    return json.dumps({"summary": "s", "writes": list(found)})


REFUSED: dict[str, tuple[str, str]] = {
    "E201": ("I have done it.", "llm_output_invalid"),
    "E202": (json.dumps({"files": "f1.py"}), "llm_output_invalid"),
    "E203": (writes(), "llm_output_invalid"),
    "E204": (files_answer({"f1.py": "X = 1\n", "f2.py": "X = 1\n"}), "write_scope_violation"),
    "E205": (files_answer({"f1.py": "X = 1\n", "../f1.py": "X = 1\n"}), "write_scope_violation"),
    "E206": (writes(TWICE, TWICE), "llm_output_invalid"),
    "E210": (files_answer({"f1.py": "#" * 200_001}), "llm_output_invalid"),
    "E212": (writes({**TWICE, "base_sha256": "0" * 64}), "stale_context"),
}


@pytest.mark.stride(3)
@pytest.mark.parametrize("code", sorted(REFUSED))
def test_an_answer_that_is_refused_writes_nothing_at_all(project: Project, code: str) -> None:
    answer, kind = REFUSED[code]
    verified_by(answered(project, [manifest(ORDER)], {"WO-01": [answer] * 2}))
    project.write({f"{REPO}/f1.py": OLD})
    outcome = project.build(PIPELINE)
    assert [(one["kind"], code in str(one)) for one in failures(project)] == [(kind, True)] * 2
    assert outcome.code == {"E201": 4}.get(code, 1)
    assert repository(project) == {**VERIFY_SH, "f1.py": OLD}
    assert ends(project)["factory@WO-01"] == "failed"


@pytest.mark.stride(3)
@pytest.mark.parametrize("code", ["E201", "E204", "E212"])
def test_a_refusal_is_in_the_next_prompt_and_the_next_answer_is_taken(project: Project, code: str) -> None:
    answer, kind = REFUSED[code]
    right = writes({**TWICE, "base_sha256": OLD_SHA256})
    verified_by(answered(project, [manifest(ORDER)], {"WO-01": [answer, right]}))
    project.write({f"{REPO}/f1.py": OLD})
    green(project.build(PIPELINE))
    asked = kept(project, "factory@WO-01", 2, "prompt.txt")
    assert f"[{code}]" in asked
    assert f"That response failed: {kind}" in asked
    assert repository(project)["f1.py"] == "X = 1\n"


def test_an_engineer_that_cannot_do_it_is_not_asked_again(project: Project) -> None:
    cannot = json.dumps({"status": "error", "reason": "f2.py is not in allowed_files"})
    outcome = verified_by(answered(project, [manifest(ORDER)], {"WO-01": [cannot] * 2})).build(PIPELINE)
    assert (outcome.code, "E217" in outcome.err) == (1, True)
    assert [one["kind"] for one in failures(project)] == ["agent_error"]


# ---- what the result must be ----------------------------------------------------------------------

CHECKED = order(1, acceptance_commands=["python -c 'import f1; print(\"it says\", f1.X); assert f1.X == 1'"])
UNMET: dict[str, tuple[dict[str, Any], str, str, str]] = {
    # order, wrong answer, kind, what the next attempt is told
    "verify": (ORDER, makes(text="FAULT = 1\n"), "verify_failed", "grep found FAULT"),
    "acceptance": (CHECKED, makes(text="X = 7\n"), "acceptance_failed", "it says 7"),
    "postcondition": (
        order(1, allowed_files=["f1.py", "g.py"], postconditions=exists("f1.py", "g.py")),
        makes(),
        "verify_failed",
        "[E303]",
    ),
}
SCRIPT = "if grep -rq FAULT --include='*.py' .; then echo grep found FAULT; exit 1; fi\n"


@pytest.mark.stride(3)
@pytest.mark.parametrize("name", sorted(UNMET))
def test_what_fails_goes_back_to_the_baseline_and_the_second_attempt_is_reported(project: Project, name: str) -> None:
    one, wrong, kind, reported = UNMET[name]
    right = files_answer(dict.fromkeys(one["allowed_files"], "X = 1\n"))
    verified_by(answered(project, [manifest(one)], {"WO-01": [wrong, right]}), SCRIPT)
    green(project.build(PIPELINE))
    assert [failed["kind"] for failed in failures(project)] == [kind]
    asked = kept(project, "factory@WO-01", 2, "prompt.txt")
    assert reported in asked
    assert "# Files" not in asked, "nothing of the first attempt is there"
    assert repository(project)["f1.py"] == "X = 1\n"


@pytest.mark.stride(3)
@pytest.mark.parametrize("name", sorted(UNMET))
def test_what_fails_twice_ends_with_1_and_the_repository_is_as_it_was(project: Project, name: str) -> None:
    one, wrong, kind, reported = UNMET[name]
    verified_by(answered(project, [manifest(one, order(2))], {"WO-01": [wrong] * 2, "WO-02": [makes(2)]}), SCRIPT)
    outcome = project.build(PIPELINE)
    assert outcome.code == 1
    assert [failed["kind"] for failed in failures(project)] == [kind] * 2
    assert calls(project) == ["plan", "factory@WO-01", "factory@WO-01"], "the next order is not begun"
    assert reported in kept(project, "factory@WO-01", 2, "failure.txt")
    assert repository(project) == {"scripts/verify.sh": SCRIPT}
    assert not project.exists(f"{PLACE}/run_summary.json")


def test_the_verification_comes_before_the_acceptance_commands(project: Project) -> None:
    wrong = makes(text="X = 'FAULT'\n")
    verified_by(answered(project, [manifest(CHECKED)], {"WO-01": [wrong] * 2}), SCRIPT)
    assert project.build(PIPELINE).code == 1
    assert [failed["kind"] for failed in failures(project)] == ["verify_failed"] * 2


def test_the_second_attempt_is_reported_no_more_than_2000_characters_of_what_failed(project: Project) -> None:
    verified_by(answered(project, [manifest(ORDER)], {"WO-01": [makes()] * 2}), "seq 2000\necho the end\nexit 1\n")
    assert project.build(PIPELINE).code == 1
    reported = kept(project, "factory@WO-01", 2, "prompt.txt").partition("That response failed")[2]
    assert "\n10\n" in reported
    assert "the end" in reported
    excerpt = failures(project, "factory@WO-01")[0]["excerpt"]
    assert 1800 < len(excerpt) <= 2000
    assert excerpt in reported


def test_an_order_that_failed_leaves_the_earlier_ones_done_and_is_taken_up_again(project: Project) -> None:
    two = order(2, acceptance_commands=["python -c 'import f2; assert f2.X == 1'"])
    bad, good = makes(2, "X = 7\n"), makes(2)
    verified_by(answered(project, [manifest(ORDER, two)], {"WO-01": [makes(1)], "WO-02": [bad, bad]}))
    assert project.build(PIPELINE).code == 1
    assert repository(project) == {**VERIFY_SH, "f1.py": "X = 1\n"}
    again = project.build(PIPELINE)
    assert (again.code, "no model call" in again.err) == (1, True)
    answers = json.loads(project.read(ANSWERS))
    project.write({ANSWERS: json.dumps({**answers, "factory@WO-02": [good]})})
    green(project.build(PIPELINE))
    assert {name: ends(project)[name] for name in ("plan", "factory@WO-01", "factory@WO-02")} == {
        "plan": "fresh",
        "factory@WO-01": "fresh",
        "factory@WO-02": "built",
    }
    assert repository(project)["f2.py"] == "X = 1\n"


def test_a_provider_that_fails_at_an_order_ends_with_3_and_the_next_build_goes_on_there(project: Project) -> None:
    verified_by(answered(project, [manifest(ORDER, order(2))], {"WO-01": [makes(1)]}))
    assert project.build(PIPELINE).code == 3
    assert repository(project).keys() == {"scripts/verify.sh", "f1.py"}
    answers = json.loads(project.read(ANSWERS))
    project.write({ANSWERS: json.dumps({**answers, "factory@WO-02": [makes(2)]})})
    green(project.build(PIPELINE))
    assert calls(project) == ["factory@WO-02"]
    assert repository(project).keys() == {"scripts/verify.sh", "f1.py", "f2.py"}


def test_what_a_person_edited_of_an_order_is_never_overwritten(project: Project) -> None:
    copied(project)
    green(project.build(PIPELINE))
    project.edit(f"{REPO}/units/__main__.py", "mine = 1\n")
    assert project.build(PIPELINE).code == 6
    assert repository(project)["units/__main__.py"] == "mine = 1\n"
