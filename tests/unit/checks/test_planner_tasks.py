"""`planner_tasks`: stable ids, artifacts that are sure, no tests among them; no JSON makes it raise."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.checks.check import CheckInput
from orch23_checks.planner_tasks import PLAN_SCHEMA, PLANNER_TASKS

LISTED = ("README.md", "src/stats.py", "src/data/a.json")
SCHEMA = Path(__file__).parents[3] / "specs" / "schemas" / "plan.v1.json"


def task(number: int = 1, *artifacts: str, **changed: Any) -> dict[str, Any]:
    """Return a task, by default one that makes a new file."""
    said = {"title": "a", "rationale": "b", "acceptance": "c"}
    return {"id": f"T{number}", **said, "artifacts": list(artifacts or ("src/new.py",)), **changed}


def plan(*tasks: Any, plan_id: Any = "plan_0001") -> dict[str, Any]:
    """Return a plan of these tasks."""
    return {"plan_id": plan_id, "tasks": list(tasks)}


def found(value: Any, **options: Any) -> list[tuple[str, str | None]]:
    """Return code and subject of each error."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    given_ = CheckInput(outputs={"plan.json": data}, listings={"**": LISTED}, options=options)
    return [(one.code, one.subject) for one in PLANNER_TASKS.run(given_)]


@pytest.mark.parametrize(
    "value",
    [
        plan(task()),
        plan(*(task(n) for n in range(1, 13))),
        plan(task(1, "README.md", "src/stats.py", "src/data/a.json")),
        plan(task(1, "lib/deep/new.py", "src/data/b.json", "src/contest.py")),
    ],
)
def test_a_valid_plan_has_no_error(value: Any) -> None:
    assert found(value) == []


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"{", ("E313", "plan.json")),
        (b'{"plan_id": "plan_0001", "plan_id": "plan_0001", "tasks": []}', ("E313", "plan.json")),
        ([], ("E314", "plan.json#")),
        ({"status": "error", "reason": "no goal"}, ("E314", "plan.json#")),
        (plan(), ("E314", "plan.json#/tasks")),
        (plan("T1"), ("E314", "plan.json#/tasks/0")),
        (plan(task(title="x" * 4001)), ("E314", "plan.json#/tasks/0/title")),
        (plan(task(artifacts=[])), ("E314", "plan.json#/tasks/0/artifacts")),
        (plan(task(), plan_id="plan_0002"), ("E330", "plan.json plan_id")),
        (plan(task(2)), ("E331", "tasks[0]")),
        (plan(task(1), task(1)), ("E331", "tasks[1]")),
        (plan(task(1), task(3)), ("E331", "tasks[1]")),
        (plan(task(id="t1")), ("E331", "tasks[0]")),
        *(
            (plan(task(1, "README.md", path)), ("E332", "T1 artifacts[1]"))
            for path in ("", "/a", "../a", "./a.py", "src//a.py", "src/*.py", "src", "src/", "readme.md", "Src/a.py")
        ),
        (plan(task(1, "src/stats.py/x.py")), ("E332", "T1 artifacts[0]")),
        (plan(task(1), task(2, "tests/test_a.py")), ("E333", "T2 artifacts[0]")),
        (plan(task(1, "a_test.py")), ("E333", "T1 artifacts[0]")),
        (plan(task(1, "conftest.py")), ("E333", "T1 artifacts[0]")),
    ],
)
def test_a_plan_that_is_wrong_is_refused_with_its_code_and_place(value: Any, error: tuple[str, str]) -> None:
    assert error in found(value)
    assert {code for code, _ in found(value)} == {error[0]}


def test_the_id_and_the_names_of_tests_are_options() -> None:
    assert found(plan(task(), plan_id="plan_7"), plan_id="plan_7") == []
    assert found(plan(task(1, "test_a.py")), tests=["checks/"]) == []
    assert found(plan(task(1, "checks/a.py")), tests=["checks/"]) == [("E333", "T1 artifacts[0]")]


@pytest.mark.parametrize("options", [{"plan_id": 1}, {"tests": "x"}, {"under": 1}, {"strange": 1}])
def test_an_invalid_option_is_reported(options: dict[str, Any]) -> None:
    assert [code for code, _ in found(plan(task()), **options)] == ["E315"]


def test_the_schema_of_the_specs_is_the_one_of_the_check() -> None:
    assert json.loads(SCHEMA.read_text()) == PLAN_SCHEMA


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*task()]) | st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_no_json_makes_it_raise(value: Any) -> None:
    for one in (value, plan(value), plan(task(artifacts=value)), plan(task(id=value)), plan(task(), plan_id=value)):
        found(one)
    found(plan(task()), plan_id=value, tests=value)


@given(st.text())
def test_no_path_makes_it_raise(path: str) -> None:
    found(plan(task(artifacts=[path])))
