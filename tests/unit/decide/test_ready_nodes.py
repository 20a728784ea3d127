"""What is ready, in the order of the plan, whatever is told how often."""

from orch23.decide.plan_walk import ReadyNodes
from orch23.model.pipeline import PathInput, Pipeline, Stage, WriteScope
from orch23.model.plan import Plan
from orch23.plan.planner import build_plan
from orch23.steps.shell.spec import ShellStep


def plan_of(*stages: Stage) -> Plan:
    plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=stages))
    assert plan is not None, problems
    return plan


def stage(name: str, *reads: str) -> Stage:
    inputs = tuple(PathInput(path) for path in reads)
    return Stage(name=name, step=ShellStep(("x",)), inputs=inputs, outputs=(name,), fence=WriteScope((name,)))


def taken(frontier: ReadyNodes) -> list[str]:
    found = []
    while (name := frontier.pop()) is not None:
        found.append(name)
    return found


def test_what_passes_twice_counts_once() -> None:
    frontier = ReadyNodes(plan_of(stage("a"), stage("b"), stage("c", "a", "b")))
    assert taken(frontier) == ["a", "b"]
    frontier.release("a")
    frontier.release("a")
    assert taken(frontier) == []
    frontier.release("b")
    assert taken(frontier) == ["c"]


def test_another_plan_goes_on_with_what_has_passed() -> None:
    frontier = ReadyNodes(plan_of(stage("a"), stage("b"), stage("c", "a")))
    assert taken(frontier) == ["a", "b"]
    frontier.release("a")
    frontier.replan(plan_of(stage("a"), stage("b"), stage("c", "a"), stage("d", "a", "b")))
    assert taken(frontier) == ["c"], "a has passed, b is taken"
    frontier.release("b")
    assert taken(frontier) == ["d"]
