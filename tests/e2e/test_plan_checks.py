"""Checks of plans in whole builds: a model is told the codes, a warning blocks nothing, a listing is the project's."""

import json
from typing import Any

import pytest

from tests.project import Project, scripted
from tests.unit.checks.orders import exists, manifest, order

PLAN: dict[str, Any] = {
    "inputs": [{"list": "workspace/**"}],
    "outputs": ["build/orders.json"],
    "llm": {"returns": "json"},
    "verify": [{"check": "work_orders", "with": {"under": "workspace"}}],
    "retry": 2,
}


def planned(project: Project, *plans: Any, stage: dict[str, Any] | None = None) -> None:
    """Write a pipeline whose model answers with these plans, and a workspace with one file."""
    answers = {"plan": [json.dumps(plan) for plan in plans]}
    project.write({**scripted({"plan": {**PLAN, **(stage or {})}}, answers), "workspace/base.py": "X = 1\n"})


@pytest.mark.needs("inspecting")
def test_a_plan_that_is_refused_comes_back_with_codes_and_the_next_one_is_taken(project: Project) -> None:
    wrong = manifest(order(1, preconditions=exists("gone.py"), acceptance_commands=["python f1.py && true"]), order(3))
    right = manifest(order(1, preconditions=exists("base.py")), order(2, preconditions=exists("f1.py")))
    planned(project, wrong, right)
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert json.loads(project.read("build/orders.json")) == right
    sent = project.run("show", "plan", "--prompt").out
    for line in ("[E001] work_orders[1]:", "[E003] WO-01 acceptance_commands[0]:", "[E101] WO-01 preconditions[0]:"):
        assert line in sent


def test_a_plan_that_stays_wrong_is_never_promoted(project: Project) -> None:
    planned(project, *([manifest(order(2))] * 3))
    assert project.build().code == 1
    assert not project.exists("build/orders.json")


def test_a_warning_is_shown_and_fails_nothing(project: Project) -> None:
    planned(project, manifest(order(acceptance_commands=["python -c 'import requests'"])))
    outcome = project.build()
    assert outcome.code == 0
    assert "warning: plan: [W101] WO-01 acceptance_commands[0]: imports `requests`" in outcome.out + outcome.err
    (event,) = project.events_of("warning")
    assert (event["role"], event["data"]["code"]) == ("plan", "W101")
    assert project.exists("build/orders.json")


def test_a_plan_is_judged_again_when_the_listing_changes_and_not_otherwise(project: Project) -> None:
    verify = {"inputs": [{"list": "workspace/**"}], "steps": PLAN["verify"]}
    stage = {"inputs": [], "verify": verify, "retry": 0}
    planned(project, manifest(order(1, preconditions=exists("base.py"))), stage=stage)
    assert project.build().code == 0
    assert project.plan() == {"plan": "fresh"}
    project.write({"workspace/other.py": "Y = 1\n"})
    assert project.plan() == {"plan": "verify"}
    assert project.build().code == 0
    project.delete("workspace/base.py")
    outcome = project.build()
    assert outcome.code == 1
    assert "E101" in outcome.out + outcome.err


@pytest.mark.slow
def test_orders_that_a_program_computed_are_held_to_the_contract(project: Project) -> None:
    """`verify_exempt` of a rendered manifest is compared with what follows from the contract."""
    plan = manifest(order(1), order(2), verify_contract={"requires": exists("f2.py")})
    program = (
        "import json, sys\n"
        "plan = json.load(open('build/orders.json'))\n"
        "for order in plan['work_orders']:\n"
        "    order['verify_exempt'] = order['id'] in sys.argv[1:]\n"
        "json.dump(plan, open('build/exempt.json', 'w'))\n"
    )
    exempt = {
        "inputs": ["build/orders.json", "exempt.py", {"list": "workspace/**"}],
        "outputs": ["build/exempt.json"],
        "shell": ["python", "exempt.py", "WO-01"],
        "verify": [{"check": "work_orders", "with": {"under": "workspace", "verify_exempt": "required"}}],
    }
    answers = {"plan": [json.dumps(plan)]}
    project.write({**scripted({"plan": PLAN, "exempt": exempt}, answers), "exempt.py": program})
    assert project.build().code == 0
    assert [o["verify_exempt"] for o in json.loads(project.read("build/exempt.json"))["work_orders"]] == [True, False]
    project.replace("pipeline.yaml", '"WO-01"', '"WO-02"')
    refused = project.build()
    assert refused.code == 1
    assert "WO-02 verify_exempt" in refused.out + refused.err


@pytest.mark.needs("inspecting")
def test_planner_tasks_see_the_project_and_the_tests_in_it(project: Project) -> None:
    def plan(*artifacts: str) -> dict[str, Any]:
        said = {"title": "a", "rationale": "b", "acceptance": "c"}
        return {"plan_id": "plan_0001", "tasks": [{"id": "T1", **said, "artifacts": list(artifacts)}]}

    check = {"check": "planner_tasks", "with": {"listing": "workspace/**", "under": "workspace"}}
    planned(project, plan("Base.py", "test_base.py"), plan("base.py", "new.py"), stage={"verify": [check]})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert json.loads(project.read("build/orders.json")) == plan("base.py", "new.py")
    sent = project.run("show", "plan", "--prompt").out
    assert "[E332] T1 artifacts[0]: `Base.py` differs from `base.py` only by case" in sent
    assert "[E333] T1 artifacts[1]:" in sent
