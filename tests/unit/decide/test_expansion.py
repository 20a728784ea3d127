"""Lists become items, and items a plan: each in the plan that the list before it gave."""

from typing import Any

from orch23.decide.list_expansion import expand_each, items_of, missing_list, plan_with_items
from orch23.model.pipeline import ForeachStage, Pipeline
from orch23.model.plan import Plan
from orch23.plan.planner import build_plan, list_producers
from tests.unit.engine.rig import each, stage


def plan_of(*nodes: Any) -> Plan:
    plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=nodes))
    assert plan is not None, problems
    return plan


def node(plan: Plan, name: str) -> ForeachStage:
    found = plan.nodes[name]
    assert isinstance(found, ForeachStage)
    return found


def no_yaml(_text: str) -> Any:
    raise AssertionError


def names(stages: Any) -> list[str]:
    return [one.name for one in stages]


def test_a_static_list_has_no_file_and_a_list_in_a_file_is_read() -> None:
    plan = plan_of(each("s", "a", "b"), each("f", source="l.json"))
    assert names(items_of(plan, node(plan, "s"), None, no_yaml, {}).stages) == ["s@a", "s@b"]
    assert names(items_of(plan, node(plan, "f"), b'["x"]', no_yaml, {}).stages) == ["f@x"]


def test_each_list_is_expanded_in_the_plan_that_the_one_before_gave() -> None:
    lists = (each("s", source="k.json"), each("f", source="l.json"), each("later", source="m.json"))
    plan = plan_of(*lists, stage("z", "s/a"))
    seen: list[list[str]] = []

    def read(plan: Plan, _node: ForeachStage, source: str) -> bytes | None:
        seen.append(sorted(plan.expansions))
        return {"k.json": b'["a"]', "l.json": b'["x"]'}.get(source)

    found = list(expand_each(plan, read, no_yaml))
    assert [(one.node.name, names(one.items)) for one in found] == [("s", ["s@a"]), ("f", ["f@x"])]
    assert seen == [[], ["s"], ["f", "s"]]
    assert set(found[-1].plan.nodes) == {"s@a", "f@x", "later", "z"}, "one whose list is not known stays"
    assert found[-1].plan.upstream["z"] == ("s@a",)


def test_a_list_that_cannot_be_used_leaves_the_plan_and_others_go_on() -> None:
    plan = plan_of(each("one", source="l.json"), each("two", source="m.json"))
    texts = {"l.json": b"{}", "m.json": b'["a"]'}
    bad, good = expand_each(plan, lambda _plan, _node, source: texts[source], no_yaml)
    assert ([problem.code for problem in bad.problems], bad.items, bad.plan) == (["E824"], (), plan)
    assert (good.problems, set(good.plan.nodes)) == ((), {"one", "two@a"})


def test_items_that_do_not_fit_into_the_plan_are_an_error_of_their_list() -> None:
    body = {"outputs": ["same"], "shell": ["make", "e", "same"]}
    plan = plan_of(each("e", source="l.json", body=body))
    (one,) = expand_each(plan, lambda *_: b'["a", "b"]', no_yaml)
    assert one.problems
    assert (one.items, one.plan) == ((), plan)


def test_several_lists_are_expanded_together_or_not_at_all() -> None:
    plan = plan_of(each("one", "a"), each("two", source="l.json"))
    good = items_of(plan, node(plan, "one"), None, no_yaml, {})
    bad = items_of(plan, node(plan, "two"), b"{}", no_yaml, {})
    assert plan_with_items(plan, {"one": good, "two": bad})[0] is None
    more, problems = plan_with_items(plan, {"one": good})
    assert more is not None
    assert (set(more.nodes), problems) == ({"one@a", "two"}, ())


def test_an_item_may_not_write_the_pipeline_that_it_is_of() -> None:
    plan = plan_of(each("e", "p.yaml", "p.lock", body={"outputs": ["${{ item }}"], "shell": ["x"]}))
    found = items_of(plan, node(plan, "e"), None, no_yaml, {})
    assert ([one.code for one in found.problems], found.stages) == (["E858", "E858"], ())
    assert [one.subject for one in found.problems] == ["e@p.yaml", "e@p.lock"]


def test_an_unknown_check_of_items_is_reported_once() -> None:
    body = {"outputs": ["e/${{ item }}"], "shell": ["x"], "verify": [{"check": "${{ 'no' ~ 'ne' }}"}]}
    plan = plan_of(each("e", "a", "b", body=body))
    found = items_of(plan, node(plan, "e"), None, no_yaml, {})
    assert len(found.problems) == 1
    assert "`none`" in found.problems[0].message


def test_a_missing_list_is_reported_and_so_is_a_folder_in_its_place() -> None:
    plan = plan_of(each("e", source="l.json"))
    gone = missing_list(plan, node(plan, "e"), lambda _path: False)
    folder = missing_list(plan, node(plan, "e"), lambda _path: True)
    assert ("does not exist" in gone.problems[0].message, "is a folder" in folder.problems[0].message) == (True, True)


def test_a_foreach_waits_for_the_maker_of_its_list_and_for_no_other_upstream() -> None:
    plan = plan_of(stage("list", writes=("l.json",)), stage("other"), each("e", source="l.json", needs=("other",)))
    assert list_producers(plan, node(plan, "e")) == ("list",)
    plan = plan_of(stage("other"), each("e", "a", needs=("other",)))
    assert list_producers(plan, node(plan, "e")) == ()
