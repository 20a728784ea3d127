"""Selections: what a command line's names bring with them."""

import pytest
from msgspec.structs import replace

from orch23.model.errors import NotFoundError
from orch23.model.pipeline import Foreach, ForeachStage, Item, PathInput, Pipeline, SkippedStage, Stage, WriteScope
from orch23.plan.planner import ALL_STAGES, Selection, build_plan, extend_plan
from orch23.steps.shell.spec import ShellStep


def stage(name, reads=(), writes=(), **more):
    inputs = tuple(PathInput(path) for path in reads)
    return Stage(name=name, step=ShellStep(("x",)), inputs=inputs, outputs=writes, fence=WriteScope(writes), **more)


FOREACH = ForeachStage(name="each", foreach=Foreach(source="list.json"), body={}, kind="shell", writes=("o/*",))
PIPELINE = Pipeline(
    name="p",
    file="p.yaml",
    stages=(
        stage("list", ("src",), ("list.json",)),
        FOREACH,
        stage("last", ("o/a",), ("end",)),
        stage("alone", (), ("z",)),
    ),
)
ITEMS = tuple(stage(f"each@{key}", (), (f"o/{key}",), item=Item(key=key, name="item", value=key)) for key in "ab")


def unexpanded():
    plan, problems = build_plan(PIPELINE)
    assert plan is not None, problems
    return plan


def expanded():
    plan, problems = extend_plan(unexpanded(), {"each": ITEMS})
    assert plan is not None, problems
    return plan


def test_nothing_named_means_everything():
    assert ALL_STAGES.selects_all
    assert ALL_STAGES.nodes(expanded()) == {"list", "each@a", "each@b", "last", "alone"}


def test_a_target_brings_all_that_it_needs():
    assert Selection(targets=("last",)).nodes(expanded()) == {"list", "each@a", "last"}
    assert Selection(targets=("last",)).nodes(unexpanded()) == {"list", "each", "last"}


def test_a_foreach_stands_for_its_items_and_an_item_for_its_foreach_before_that():
    assert Selection(targets=("each",)).nodes(expanded()) == {"list", "each@a", "each@b"}
    assert Selection(targets=("each@b",)).nodes(expanded()) == {"list", "each@b"}
    assert Selection(targets=("each@b",)).nodes(unexpanded()) == {"list", "each"}


def test_downstream_brings_what_follows_and_what_that_needs():
    assert Selection(downstream=("each@a",)).nodes(expanded()) == {"list", "each@a", "last"}


def test_a_selection_has_what_makes_a_list_also_if_the_list_leaves_nothing_of_it():
    """Without items, no edge leads from the list to what reads the items."""
    plan, problems = extend_plan(unexpanded(), {"each": ()}, (SkippedStage(name="each@c", kind="shell"),))
    assert plan is not None, problems
    for name in ("each", "each@c"):
        assert Selection(targets=(name,)).nodes(plan) == {"list"}
        assert Selection(only=(name,)).nodes(plan) == frozenset()
    assert Selection(targets=("last",)).nodes(plan) == {"list", "last"}
    assert Selection(targets=("alone",)).nodes(plan) == {"alone"}
    for name in ("list", "each"):
        assert Selection(downstream=(name,)).nodes(plan) == {"list", "last"}
    assert Selection(downstream=("last",)).nodes(plan) == {"list", "last"}


@pytest.mark.parametrize("order", [("each", "second"), ("second", "each"), ("second each",)])
def test_a_selection_has_what_makes_a_list_that_its_list_came_after(order):
    """Before its items are known, `second` comes after `each`, since it may read what the items of `each` write."""
    second = ForeachStage(
        name="second", foreach=Foreach(source="more.json"), body={}, kind="shell", reads=("o/*",), writes=("p/*",)
    )
    item = stage("second@x", (), ("p/x",), item=Item(key="x", name="item", value="x"))
    stages = (*PIPELINE.stages, stage("more", (), ("more.json",)), second)
    plan, problems = build_plan(replace(PIPELINE, stages=stages))
    for names in order:
        assert plan is not None, problems
        plan, problems = extend_plan(plan, {one: (item,) if one == "second" else () for one in names.split()})
    assert plan is not None, problems
    expected = {"more", "second@x"} | ({"list"} if order != ("second", "each") else set())
    for name in ("second", "second@x"):
        assert Selection(targets=(name,)).nodes(plan) == expected


def test_only_brings_itself():
    assert Selection(only=("last",)).nodes(expanded()) == {"last"}


def test_all_unknown_names_are_reported_with_the_nearest_name():
    with pytest.raises(NotFoundError) as caught:
        Selection(targets=("lst", "each@zz"), only=("qqqqqq",)).nodes(expanded())
    assert [d.code for d in caught.value.diagnostics] == ["E823", "E823"]
    assert caught.value.diagnostics[0].hint == "did you mean `list` or `last`?"


def test_a_skipped_stage_can_be_named_but_is_not_a_node() -> None:
    off = (SkippedStage(name="off", kind="shell"), SkippedStage(name="each@c", kind="shell"))
    plan, problems = build_plan(replace(PIPELINE, skipped=off))
    assert plan is not None, problems
    for name in ("off", "each@c"):
        assert Selection(targets=(name,)).nodes(plan) == frozenset()
    assert ALL_STAGES.skipped(plan) == ("off", "each@c")
    assert Selection(targets=("off",)).skipped(plan) == ("off",)
    assert Selection(only=("each",)).skipped(plan) == ("each@c",)
    assert Selection(downstream=("each@c",)).skipped(plan) == ("each@c",)
    assert Selection(targets=("last",)).skipped(plan) == ()


def test_an_item_of_a_single_stage_is_not_a_stage() -> None:
    for name in ("last@a", "nobody@a"):
        with pytest.raises(NotFoundError, match="no stage is named"):
            Selection(targets=(name,)).nodes(unexpanded())
    with pytest.raises(NotFoundError, match="`nobody`") as caught:
        Selection(targets=("nobody", "laste")).nodes(unexpanded())
    listed = "the stages are `list`, `each`, `last`, `alone`"
    assert [one.hint for one in caught.value.diagnostics] == [listed, "did you mean `last`?"]


@pytest.mark.parametrize(
    ("name", "hint", "fix"),
    [
        ("alon", "did you mean `alone`?", ("alon", "alone")),
        ("./z", "`./z` is an output of the stage `alone`: name that stage", ("./z", "alone")),
        ("p.yml", "did you mean `p.yaml`?", ("p.yml", "p.yaml")),
        ("xyzzy", "the stages are `list`, `each`, `last`, `alone`", None),
    ],
)
def test_a_name_that_is_not_a_stage_has_the_word_to_type(name, hint, fix):
    with pytest.raises(NotFoundError) as caught:
        Selection(targets=(name,)).nodes(unexpanded())
    (problem,) = caught.value.diagnostics
    assert (problem.hint, problem.fix) == (hint, fix)
