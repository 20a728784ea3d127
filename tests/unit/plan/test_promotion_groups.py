"""Promotion groups: who waits for all of a group, and which groups can never be promoted at once."""

from orch23.model.diagnostic import Location
from orch23.model.pipeline import Foreach, ForeachStage, Item, PathInput, Pipeline, Stage, WriteScope
from orch23.plan.planner import build_plan, extend_plan
from orch23.steps.shell.spec import ShellStep


def stage(name, reads=(), promote=None, needs=()):
    inputs = tuple(PathInput(path) for path in reads)
    step = ShellStep(("x",))
    outputs = (f"{name}.out",)
    return Stage(
        name=name, step=step, inputs=inputs, outputs=outputs, fence=WriteScope(outputs), promote=promote, needs=needs
    )


def result(*stages, **places):
    locations = {f"stages/{name}": at for name, at in places.items()}
    return build_plan(Pipeline(name="p", file="p.yaml", stages=stages, locations=locations))


def refused(*stages, **places):
    plan, problems = result(*stages, **places)
    assert plan is None
    assert {one.code for one in problems} == {"E829"}
    return problems


def before(*stages):
    plan, problems = result(*stages)
    assert plan is not None, [str(one) for one in problems]
    return {name: plan.upstream[name] for name in plan.order}


def test_a_stage_that_reads_one_member_waits_for_all_members() -> None:
    found = before(stage("a", promote="g"), stage("b", promote="g"), stage("r", ("a.out",)), stage("other"))
    assert found == {"a": (), "b": (), "other": (), "r": ("a", "b")}


def test_members_do_not_wait_for_each_other_but_where_they_read() -> None:
    found = before(stage("a", promote="g"), stage("b", ("a.out",), promote="g"), stage("c", promote="g"))
    assert found == {"a": (), "b": ("a",), "c": ()}


def test_a_stage_between_two_members_is_named_with_both_edges_and_a_way_out() -> None:
    (problem,) = refused(
        stage("a", promote="g"),
        stage("middle", ("a.out",)),
        stage("z", ("middle.out",), promote="g"),
        middle=Location("p.yaml", 7, 1),
    )
    assert problem.message == "group `g` cannot be promoted at once: `middle` comes between `a` and `z`"
    assert problem.location == Location("p.yaml", 7, 1)
    assert problem.hint == "write `promote: g` at `middle` too, or remove one of these edges"
    assert [one.message for one in problem.related] == [
        "`middle` comes after `a`: it reads `a.out`, an output of `a`",
        "`z` comes after `middle`: it reads `middle.out`, an output of `middle` (line 7)",
    ]


def test_the_shortest_way_is_named_and_a_long_one_is_cut() -> None:
    chain = [stage("m0", ("a.out",)), *(stage(f"m{n}", (f"m{n - 1}.out",)) for n in range(1, 6))]
    (problem,) = refused(stage("a", promote="g"), *chain, stage("z", ("m5.out",), promote="g"))
    assert "`m0` and `m1` and `m2` and `m3` and 2 more come between `a` and `z`" in problem.message
    assert problem.hint is not None
    assert problem.hint.startswith("write `promote: g` at `m0`, `m1`, `m2`, `m3`, `m4`, `m5` too")
    (problem,) = refused(stage("a", promote="g"), *chain[:4], stage("z", ("m3.out",), promote="g"))
    assert "`m0` and `m1` and `m2` and `m3` come between `a` and `z`" in problem.message
    (problem,) = refused(stage("a", promote="g"), *chain, stage("z", ("m5.out", "m0.out"), promote="g"))
    assert "`m0` comes between" in problem.message


def test_a_member_that_waits_for_its_own_reader_is_refused() -> None:
    (problem,) = refused(stage("a", ("r.out",), promote="g"), stage("b", promote="g"), stage("r", ("b.out",)))
    assert "`r` comes between `b` and `a`" in problem.message


def test_two_groups_that_wait_for_each_other_are_reported_once() -> None:
    (problem,) = refused(
        stage("a", promote="g"),
        stage("b", ("a.out",), promote="h"),
        stage("c", promote="h"),
        stage("d", ("c.out",), promote="g"),
    )
    assert problem.message.endswith("`b` and `c` of group `h` come between `a` and `d`")
    assert problem.hint == "give the stages of these groups one name, or remove one of these edges"
    assert [one.message for one in problem.related] == [
        "`b` comes after `a`: it reads `a.out`, an output of `a`",
        "`d` comes after `c`: it reads `c.out`, an output of `c`",
    ]


def test_two_groups_one_after_the_other_are_fine() -> None:
    found = before(
        stage("a", promote="g"),
        stage("b", promote="g"),
        stage("c", ("a.out",), promote="h"),
        stage("d", promote="h"),
        stage("r", ("d.out",)),
    )
    assert found == {"a": (), "b": (), "c": ("a", "b"), "d": (), "r": ("c", "d")}


def test_each_impossible_group_is_reported() -> None:
    problems = refused(
        stage("a", promote="g"),
        stage("m", ("a.out",)),
        stage("b", ("m.out",), promote="g"),
        stage("c", promote="h"),
        stage("n", ("c.out",)),
        stage("d", ("n.out",), promote="h"),
    )
    assert [one.message.partition(" cannot")[0] for one in problems] == ["group `g`", "group `h`"]


def test_a_cycle_outside_of_groups_is_reported_as_a_cycle_only() -> None:
    plan, problems = result(
        stage("a", ("b.out",)), stage("b", ("a.out",)), stage("c", promote="g"), stage("d", promote="g")
    )
    assert plan is None
    assert [one.code for one in problems] == ["E820"]


def test_items_of_a_foreach_belong_to_its_group() -> None:
    how = Foreach(source="list.json")
    family = ForeachStage(name="each", foreach=how, body={}, kind="shell", writes=("each.out/*",), promote="g")
    plan, problems = result(stage("a", promote="g"), family, stage("r", ("a.out",)))
    assert plan is not None, problems
    assert plan.upstream["r"] == ("a", "each")
    items = tuple(
        Stage(
            name=f"each@{key}",
            step=ShellStep(("x",)),
            inputs=(),
            outputs=(f"each.out/{key}",),
            fence=WriteScope((f"each.out/{key}",)),
            item=Item(key=key, name="item", value=key),
        )
        for key in "xy"
    )
    plan, problems = extend_plan(plan, {"each": items})
    assert plan is not None, problems
    assert plan.upstream["r"] == ("a", "each@x", "each@y")
    assert plan.groups == {"g": ("a", "each@x", "each@y")}
