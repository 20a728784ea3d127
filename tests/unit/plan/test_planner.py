"""Plans: edges that yield, foreach before and after expansion, needs, and what is complained of."""

import pytest
from msgspec.structs import replace

from orch23.model.diagnostic import Location
from orch23.model.pipeline import (
    ChainLink,
    Condition,
    Foreach,
    ForeachStage,
    GlobInput,
    Item,
    ListInput,
    PathInput,
    Pipeline,
    SkippedStage,
    SliceInput,
    Stage,
    Verify,
    WriteScope,
)
from orch23.plan.diagnostics import missing_inputs_errors
from orch23.plan.nodes import may_read, reads_of, writes_of
from orch23.plan.planner import build_plan, extend_plan, unknown_needs_errors
from orch23.steps.shell.spec import ShellStep


def no_file(_path):
    return False


def stage(name, reads=(), writes=(), **more):
    inputs = tuple(GlobInput(path) if "*" in path else PathInput(path) for path in reads)
    facts = {"step": ShellStep(("x",)), "inputs": inputs, "outputs": writes, "fence": WriteScope(writes), **more}
    return Stage(name=name, **facts)


def foreach(name="each", source="list.json", reads=(), writes=("w/**",), **more):
    how = Foreach(source=source, sequential=more.pop("sequential", False), together=more.pop("together", False))
    return ForeachStage(name=name, foreach=how, body={}, kind="shell", reads=reads, writes=writes, **more)


def pipeline(*stages, **places):
    locations = {place.replace("__", "/"): at for place, at in places.items()}
    return Pipeline(name="p", file="p.yaml", stages=stages, locations=locations)


def planned(*stages):
    plan, problems = build_plan(pipeline(*stages))
    assert plan is not None, [str(d) for d in problems]
    return plan


def problems(*stages, **places):
    plan, problems = build_plan(pipeline(*stages, **places))
    assert plan is None
    return problems


def item(key, family="each", reads=(), writes=(), index=None):
    link = ChainLink(chain=family, index=index) if index is not None else None
    return stage(f"{family}@{key}", reads, writes, item=Item(key=key, name="item", value=key), chain=link)


def test_slices_verify_inputs_and_conditions_are_read():
    one = stage("s", ("a",), verify=Verify(inputs=(PathInput("t"),)), requires=(Condition("file_exists", "c"),))
    assert reads_of(one) == ("a", "t", "c")
    assert reads_of(stage("s", inputs=(SliceInput("s.md", "H"), ListInput("x/**")))) == ("s.md",)


def test_outputs_and_write_scope_are_written():
    assert writes_of(stage("s", writes=("a",), fence=WriteScope(("a", "d/")))) == ("a", "d/")


@pytest.mark.parametrize("read", ["o/a", "o/*", "**", "o/a*"])
def test_an_edge_says_which_path_or_pattern_makes_it(read):
    plan = planned(stage("writer", writes=("o/a",)), stage("reader", (read,)))
    assert [(e.producer, e.reader, e.why) for e in plan.edges] == [("writer", "reader", read)]


def test_a_reader_after_a_chain_comes_after_all_of_its_items():
    plan = planned(item("a", writes=("w/x",), index=0), item("b", writes=("w/x",), index=1), stage("r", ("w/x",)))
    assert plan.order == ("each@a", "each@b", "r")
    assert plan.upstream["r"] == ("each@a", "each@b")
    assert plan.chains == {"each": ("each@a", "each@b")}


def test_a_stage_that_a_chain_reads_is_upstream_of_it_and_reads_version_0():
    plan = planned(stage("first", ("w/x",), ("m",)), item("a", reads=("m",), writes=("w/x",), index=0))
    assert plan.order == ("first", "each@a")
    assert plan.upstream_of_chains == {"first": {"each": 0}}


def test_everything_that_an_item_waits_for_comes_before_the_first_item():
    plan = planned(
        item("a", writes=("w/x",), index=0),
        item("b", reads=("m",), writes=("w/x",), index=1),
        stage("z", writes=("m",)),
    )
    assert plan.order == ("z", "each@a", "each@b")


def test_a_foreach_comes_after_the_maker_of_its_list_and_so_do_its_items():
    plan = planned(stage("zlist", writes=("list.json",)), foreach())
    assert plan.order == ("zlist", "each")
    more, problems = extend_plan(plan, {"each": (item("a", writes=("w/a",)), item("b", writes=("w/b",)))})
    assert not problems
    assert more is not None
    assert more.order == ("zlist", "each@a", "each@b")
    assert set(more.nodes) == {"zlist", "each@a", "each@b"}
    assert plan.order == ("zlist", "each")


def test_a_pattern_of_an_unexpanded_foreach_makes_an_edge():
    assert planned(foreach(), stage("reader", ("w/deep/x",))).order == ("each", "reader")


def test_the_maker_of_a_list_that_reads_what_its_items_may_write_is_upstream():
    plan = planned(stage("list", ("w/**",), ("list.json",)), foreach(sequential=True))
    assert plan.order == ("list", "each")
    assert plan.upstream_of_chains == {"list": {"each": 0}}


def expanded(foreach_stage, items, *stages):
    plan, problems = build_plan(pipeline(foreach_stage, *stages), {"each": items})
    assert plan is not None, [str(d) for d in problems]
    return plan


def apart(name, reads=(), writes=(), **more):
    return stage(f"each@{name}", reads, writes, item=Item(key=name, name="item", value=name), **more)


@pytest.mark.parametrize("reader", [{"reads": ("w/a",)}, {"needs": ("each@a",)}, {"reads": ("w/a*",)}])
def test_what_comes_after_an_item_that_is_promoted_with_others_comes_after_them_all(reader):
    items = (apart("a", writes=("w/a",)), apart("b", writes=("w/b",)), apart("c", writes=("w/c",)))
    plan = expanded(foreach(together=True), items, stage("r", **reader), stage("s", ("o",)), stage("m", writes=("o",)))
    assert plan.upstream["r"] == ("each@a", "each@b", "each@c")
    assert plan.upstream["s"] == ("m",)
    assert {e.why for e in plan.edges if e.producer == "each@c"} == {"promote: together of each"}
    assert plan.groups == {"each": ("each@a", "each@b", "each@c")}
    assert plan.promoted_with("each@b") == plan.groups["each"]
    assert plan.promoted_with("r") == ("r",)
    alone = expanded(foreach(), items, stage("r", **reader))
    assert (alone.upstream["r"], alone.groups) == (("each@a",), {})


def test_items_that_are_promoted_together_wait_for_one_another_only_where_they_say_so():
    items = (apart("a", writes=("w/a",)), apart("b", ("w/a",), ("w/b",)), apart("c", writes=("w/c",)))
    plan = expanded(foreach(together=True), items)
    assert plan.upstream == {"each@a": (), "each@b": ("each@a",), "each@c": ()}


def test_a_chain_waits_before_its_first_item_for_the_whole_group():
    items = (apart("a", writes=("w/a",)), apart("b", writes=("w/b",)))
    chain = (
        stage("line@1", (), ("x",), chain=ChainLink(chain="line", index=0)),
        stage("line@2", ("w/b",), ("x",), chain=ChainLink(chain="line", index=1)),
    )
    plan = expanded(foreach(together=True), items, *chain)
    assert plan.upstream["line@1"] == ("each@a", "each@b")


def test_a_stage_between_two_items_that_are_promoted_together_is_a_cycle():
    items = (apart("a", writes=("w/a",)), apart("b", ("m",), ("w/b",)))
    between = stage("between", ("w/a",), ("m",))
    plan, problems = build_plan(pipeline(foreach(together=True), between), {"each": items})
    assert plan is None
    assert [p.message for p in problems] == ["cycle: between -> each@b -> between"]
    assert "promote: together of each" in str([str(one) for one in problems[0].related])
    assert build_plan(pipeline(foreach(), between), {"each": items})[0] is not None


def test_needs_order_without_files():
    plan = planned(stage("a", needs=("z",)), stage("z"))
    assert plan.order == ("z", "a")
    assert plan.edges[0].why == "needs z"


def test_needs_between_two_foreach_over_one_list_join_item_to_item_unless_all_are_meant():
    stages = (
        foreach("one"),
        foreach("two", writes=("v/**",), needs=("one",)),
        foreach("all", writes=("u/**",), needs=("one[*]",)),
    )
    plan = planned(*stages)
    for name in ("one", "two", "all"):
        family = {"one": (), "two": ("one",), "all": ("one[*]",)}[name]
        items = tuple(
            Stage(
                name=f"{name}@{key}",
                step=ShellStep(("x",)),
                needs=family,
                outputs=(f"{name}/{key}",),
                fence=WriteScope((f"{name}/{key}",)),
                item=Item(key=key, name="item", value=key),
            )
            for key in "ab"
        )
        plan, problems = extend_plan(plan, {name: items})
        assert plan is not None, problems
    assert plan.upstream["two@a"] == ("one@a",)
    assert plan.upstream["all@a"] == ("one@a", "one@b")


def test_a_cycle_is_reported_with_its_path_and_the_reason_of_every_edge():
    (problem,) = problems(
        stage("a", ("z",), ("x",)),
        stage("b", ("x",), ("y",)),
        stage("c", ("y",), ("z",)),
        stages__a=Location("p.yaml", 2, 3),
    )
    assert problem.code == "E820"
    assert problem.message == "cycle: a -> b -> c -> a"
    assert problem.location == Location("p.yaml", 2, 3)
    assert [r.message for r in problem.related] == [
        "`b` comes after `a`: it reads `x`, an output of `a` (line 2)",
        "`c` comes after `b`: it reads `y`, an output of `b`",
        "`a` comes after `c`: it reads `z`, an output of `c`",
    ]


def test_a_cycle_shows_the_written_path_and_not_the_pattern_of_an_item():
    body = {"inputs": ["done.txt"], "outputs": ["${{ item }}.log"], "shell": ["x"]}
    each = ForeachStage(
        name="each",
        foreach=Foreach(source="l.json"),
        body=body,
        kind="shell",
        reads=("done.txt",),
        writes=("**/*.log",),
    )
    last = stage("last", ("all.log", "made"), ("done.txt",), needs=("each",))
    read, done = Location("p.yaml", 13, 14), Location("p.yaml", 9, 14)
    one = Pipeline(
        name="p",
        file="p.yaml",
        stages=(each, replace(last, needs=())),
        locations={"stages/last/inputs/0": read, "stages/each/inputs/0": done},
    )
    _, (problem,) = build_plan(one)
    assert problem.message == "cycle: each -> last -> each"
    assert [(r.message, r.location) for r in problem.related] == [
        ("`last` comes after `each`: it reads `all.log`, which may be `${{ item }}.log` of `each`", read),
        ("`each` comes after `last`: it reads `done.txt`, an output of `last`", done),
    ]
    assert str(problem.hint).startswith("`${{ item }}.log` may be many paths: put a folder of its own in front of it")
    wide = replace(last, inputs=stage("last", ("**/*.log",)).inputs, needs=())
    _, (problem,) = build_plan(replace(one, stages=(each, wide)))
    assert problem.hint == "remove one of these inputs, outputs or needs"  # no folder would help
    each = replace(each, needs=("last",), reads=())
    needed = replace(one, stages=(each, replace(last, inputs=())), locations={"stages/last/needs/0": read})
    _, (problem,) = build_plan(needed)
    assert (problem.related[0].message, problem.related[0].location) == (
        "`last` comes after `each`: it needs `each`",
        read,
    )
    assert problem.hint == "remove one of these inputs, outputs or needs"


def test_a_list_that_an_item_may_write_is_reported_by_its_name():
    body = {"outputs": ["${{ item }}.json"]}
    one = ForeachStage(
        name="one", foreach=Foreach(source="l.json"), body=body, kind="shell", needs=("two",), writes=("**/*.json",)
    )
    two = ForeachStage(
        name="two", foreach=Foreach(source="m.json"), body={"outputs": ["c/x"]}, kind="shell", writes=("c/x",)
    )
    place = Location("p.yaml", 5, 5)
    pipeline = Pipeline(name="p", file="p.yaml", stages=(one, two), locations={"stages/two/foreach/from": place})
    _, (problem,) = build_plan(pipeline)
    (edge,) = [r for r in problem.related if r.message.startswith("`two`")]
    assert (edge.message, edge.location) == (
        "`two` comes after `one`: it reads `m.json`, which may be `${{ item }}.json` of `one`",
        place,
    )
    assert "**" not in str(problem)


@pytest.mark.parametrize("need", ["a", "a[*]"])
def test_a_stage_that_needs_itself_is_a_cycle_at_that_entry(need: str) -> None:
    place = Location("p.yaml", 7, 13)
    one = Pipeline(
        name="p",
        file="p.yaml",
        stages=(stage("b"), stage("a", needs=("b", need))),
        locations={"stages/a": Location("p.yaml", 5, 3), "stages/a/needs/1": place},
    )
    plan, (problem,) = build_plan(one)
    assert plan is None
    assert (problem.code, problem.location) == ("E820", place)
    assert problem.message == "cycle: a -> a"
    assert problem.hint == f"`a` needs itself; remove `{need}` from its `needs`"


def test_a_foreach_that_needs_itself_is_a_cycle_before_its_list_is_there_and_after() -> None:
    one = Pipeline(name="p", file="p.yaml", stages=(foreach(needs=("each",)),))
    items = tuple(stage(f"each@{key}", needs=("each",)) for key in "xy")
    assert [d.message for d in build_plan(one)[1]] == ["cycle: each -> each"]
    assert {d.code for d in build_plan(one, {"each": items})[1]} == {"E820"}


def test_an_item_that_names_itself_in_the_list_is_a_cycle() -> None:
    one = Pipeline(name="p", file="p.yaml", stages=(foreach(),))
    _, problems = build_plan(one, {"each": (stage("each@x", needs=("each@x",)), stage("each@y", needs=("each@x",)))})
    assert [d.message for d in problems] == ["cycle: each@x -> each@x"]


def test_two_cycles_are_two_errors():
    found = problems(
        stage("a", ("2",), ("1",)), stage("b", ("1",), ("2",)), stage("c", ("4",), ("3",)), stage("d", ("3",), ("4",))
    )
    assert [d.message for d in found] == ["cycle: a -> b -> a", "cycle: c -> d -> c"]


def test_a_file_has_one_owner():
    (problem,) = problems(
        stage("a", writes=("d/",)), stage("b", writes=("d/x",)), stages__b__outputs=Location("p.yaml", 9, 1)
    )
    assert (problem.code, problem.location) == ("E821", Location("p.yaml", 9, 1))
    assert "`a` and `b`" in problem.message or "`b` and `a`" in problem.message


def test_items_of_one_chain_may_share_files_and_parallel_items_may_not():
    planned(item("a", writes=("w/x",), index=0), item("b", writes=("w/x",), index=1))
    assert [d.code for d in problems(item("a", writes=("w/x",)), item("b", writes=("w/x",)))] == ["E821"]


def test_a_list_that_may_write_a_file_hides_no_conflict_of_two_stages():
    one, other, each = stage("x", (), ("w/a",)), stage("y", (), ("w/a",)), foreach(writes=("w/a",))
    for nodes in ((each, one, other), (one, each, other), (one, other, each)):
        assert [found.message for found in problems(*nodes)] == ["stages `x` and `y` may both write `w/a`"]


def test_an_unknown_need_names_the_nearest_stage():
    (problem,) = problems(stage("build"), stage("test", needs=("biuld",)))
    assert (problem.code, problem.hint) == ("E823", "did you mean `build`?")


def test_all_errors_are_reported_in_one_run():
    found = problems(
        stage("a", ("y",), ("x",), needs=("nobody",)), stage("b", ("x",), ("y", "o")), stage("c", writes=("o",))
    )
    assert sorted(d.code for d in found) == ["E820", "E821", "E823"]


def test_an_input_that_does_not_exist_is_reported_at_its_location():
    plan, _ = build_plan(
        pipeline(
            stage("a", writes=("made",)),
            stage("b", ("made", "there", "maed")),
            stages__b__inputs__2=Location("p.yaml", 7, 9),
        )
    )
    assert plan is not None
    (problem,) = missing_inputs_errors(plan, {"there"}.__contains__)
    assert (problem.code, problem.location, problem.hint) == ("E822", Location("p.yaml", 7, 9), "did you mean `made`?")


@pytest.mark.parametrize(
    "one", [PathInput("x", optional=True), GlobInput("x*"), ListInput("x"), SliceInput("x", "H", optional=True)]
)
def test_an_input_that_may_be_missing_is_not_reported(one):
    plan = planned(stage("a", inputs=(one,)))
    assert missing_inputs_errors(plan, no_file) == ()


def test_what_an_unexpanded_foreach_may_make_is_not_missing_yet():
    plan = planned(foreach(source=None), stage("r", ("w/x",)))
    assert missing_inputs_errors(plan, no_file) == ()


def test_an_item_may_read_what_an_earlier_one_of_its_chain_makes():
    plan = planned(item("a", writes=("w/x",), index=0), item("b", reads=("w/x",), writes=("w/x",), index=1))
    assert missing_inputs_errors(plan, no_file) == ()


# ---- what is excluded ---------------------------------------------------------------------------


def reading(*globs, name="reader"):
    inputs = tuple(GlobInput(pattern, exclude=exclude) for pattern, exclude in globs)
    return stage(name, inputs=inputs)


@pytest.mark.parametrize(
    ("globs", "before"),
    [
        ([("o/*", ("o/x",))], ("y",)),
        ([("o/*", ("o/**",))], ()),
        ([("o/*", ("p/*",))], ("x", "y")),
        ([("o/*", ("o/x",)), ("o/*", ())], ("x", "y")),
        ([("o/*", ("o/x",)), ("o/*", ("o/y",))], ("x", "y")),
        ([("o/*", ("o/x", "o/y"))], ()),
        ([("o/*", ("o/x",)), ("p/*", ())], ("y",)),
        ([("o/x*", ("o/y",)), ("o/*", ("o/x",))], ("x", "y")),
    ],
)
def test_a_stage_that_makes_only_excluded_files_does_not_come_before(globs, before):
    plan = planned(stage("x", writes=("o/x",)), stage("y", writes=("o/y",)), reading(*globs))
    assert plan.upstream["reader"] == before
    made = {"x": "o/x", "y": "o/y"}
    assert tuple(name for name, path in made.items() if may_read(reading(*globs), (path,))) == before


def test_what_a_node_may_read_counts_its_patterns_and_those_of_what_is_written():
    assert may_read(stage("s", ("a",)), ("b", "a"))
    assert may_read(stage("s", ("d/*",)), ("**/x.py",))
    assert not may_read(stage("s", ("a",)), ("b",))
    assert not may_read(stage("s", ("a",)), ())
    assert may_read(foreach(reads=("r/*",)), ("r/x",))
    assert may_read(foreach(), ("list.json",))
    assert not may_read(foreach(), ("w/x",))


# ---- needs --------------------------------------------------------------------------------------


def test_an_unknown_item_or_stage_is_reported_at_its_entry_of_needs():
    places = {"stages__b__needs__1": Location("p.yaml", 4, 2)}
    (problem,) = problems(stage("a"), stage("b", needs=("a", "c@x")), **places)
    assert (problem.code, problem.location) == ("E827", Location("p.yaml", 4, 2))
    assert problem.message == "stage `b` needs `c@x`, which is not a stage of this pipeline"
    stages = (stage("a", needs=("b[*]", "b@1", "nobody[*]", "b")), stage("b"))
    found = unknown_needs_errors(pipeline(*stages, stages__a__needs__2=Location("p.yaml", 5, 6)), ("a", "b"))
    assert [(one.code, one.location) for one in found] == [("E823", Location("p.yaml", 5, 6))]


def test_no_stage_waits_for_a_skipped_stage():
    off = (SkippedStage(name="off", kind="shell"), SkippedStage(name="each@b", kind="shell"))
    needs = ("off", "each@b", "off@x", "on")
    plan, problems = build_plan(
        Pipeline(name="p", file="p.yaml", stages=(stage("on"), stage("r", needs=needs)), skipped=off)
    )
    assert plan is not None, problems
    assert plan.upstream["r"] == ("on",)
    assert set(plan.skipped) == {"off", "each@b"}


def test_an_item_whose_twin_is_skipped_waits_for_no_other_item():
    twins = (foreach("one"), foreach("two", writes=("v/**",), needs=("one",)))
    plan = planned(*twins)
    plan, problems = extend_plan(
        plan, {"one": (item("a", "one", writes=("w/a",)),)}, (SkippedStage(name="one@b", kind="shell"),)
    )
    assert plan is not None, problems
    items = tuple(item(key, "two", writes=(f"v/{key}",)) for key in "ab")
    plan, problems = extend_plan(plan, {"two": tuple(replace(one, needs=("one",)) for one in items)})
    assert plan is not None, problems
    assert (plan.upstream["two@a"], plan.upstream["two@b"]) == (("one@a",), ())


# ---- orders that rest on no file ----------------------------------------------------------------


def test_items_of_a_chain_keep_their_order_whatever_their_names():
    plan = planned(item("z", writes=("w/z",), index=0), item("a", writes=("w/a",), index=1))
    assert plan.order == ("each@z", "each@a")
    assert [(edge.producer, edge.reader, edge.why) for edge in plan.edges] == [("each@z", "each@a", "order of each")]


def test_stages_and_their_neighbors_are_in_the_order_of_the_file():
    plan = planned(stage("end", ("z", "a")), stage("z", (), ("z",)), stage("a", (), ("a",)), stage("and", ("z", "a")))
    assert plan.order == ("z", "a", "end", "and")
    assert plan.upstream["end"] == ("z", "a")
    assert plan.downstream["z"] == ("end", "and")


def test_a_foreach_and_a_group_of_one_name_are_two_groups():
    items = (apart("a", writes=("w/a",)), apart("b", writes=("w/b",)))
    plan = expanded(foreach(together=True), items, stage("x", promote="each"), stage("y", promote="each"))
    assert plan.groups == {"each[*]": ("each@a", "each@b"), "each": ("x", "y")}


def test_a_cycle_is_reported_at_the_location_of_each_stage():
    places = {"stages__a": Location("p.yaml", 1, 1), "stages__b": Location("p.yaml", 2, 1)}
    (problem,) = problems(stage("a", ("y",), ("x",)), stage("b", ("x",), ("y",)), **places)
    assert [one.location for one in problem.related] == [Location("p.yaml", 2, 1), Location("p.yaml", 1, 1)]


class Kept:
    """Plans by name, as the index keeps them."""

    def __init__(self):
        self.values = {}
        self.made = 0

    def get(self, name, made_of):
        known = self.values.get(name)
        return known[1] if known is not None and known[0] == made_of else None

    def put(self, name, made_of, value):
        self.values[name] = made_of, value
        self.made += 1


def test_a_stored_plan_is_the_plan_that_was_compiled_and_serves_where_only_commands_differ():
    kept = Kept()
    stages = (stage("b", reads=("a.out",), writes=("b.out",)), stage("a", writes=("a.out",)))
    first, _ = build_plan(pipeline(*stages), cache=kept)
    other = tuple(replace(one, step=ShellStep(("another",))) for one in stages)
    again, _ = build_plan(pipeline(*other), cache=kept)
    assert kept.made == 1
    assert again is not None
    assert first is not None
    assert again.nodes["b"] == other[0]
    for field in (
        "order",
        "upstream",
        "downstream",
        "edges",
        "chains",
        "upstream_of_chains",
        "groups",
        "skipped",
        "expansions",
    ):
        assert getattr(again, field) == getattr(first, field)


@pytest.mark.parametrize(
    "change",
    [
        {"needs": ("a",)},
        {"inputs": (PathInput("a.out"), PathInput("c"))},
        {"outputs": ("other.out",)},
        {"fence": WriteScope(("b.out", "more"))},
        {"promote": "both"},
        {"requires": (Condition("file_exists", "a.out"),)},
        {"chain": ChainLink(chain="x", index=0)},
        {"edits": ("b.out",)},
    ],
)
def test_what_decides_on_the_place_of_a_stage_makes_another_plan(change):
    kept = Kept()
    stages = (stage("b", reads=("a.out",), writes=("b.out",)), stage("a", writes=("a.out",)))
    build_plan(pipeline(*stages), cache=kept)
    build_plan(pipeline(replace(stages[0], **change), stages[1]), cache=kept)
    assert kept.made == 2


@pytest.mark.parametrize(
    "value", [b"", b"\x93\x01\x02", b"\x81\xa5order\x90", b"\x93\x90\x91\xc0\x80", b"\x91\xa1\xff"]
)
def test_a_stored_plan_that_does_not_decode_is_made_again(value):
    kept = Kept()
    stages = (stage("b", reads=("a.out",), writes=("b.out",)), stage("a", writes=("a.out",)))
    first, _ = build_plan(pipeline(*stages), cache=kept)
    (name,) = kept.values
    kept.put(name, kept.values[name][0], value)
    again, problems = build_plan(pipeline(*stages), cache=kept)
    assert again is not None
    assert first is not None
    assert (again.order, again.edges, problems) == (first.order, first.edges, ())
    assert kept.values[name][1] != value, "the next build finds it"


def test_two_stages_with_one_output_are_both_underlined_and_the_ways_out_are_named():
    one, two = Location("p.yaml", 4, 15), Location("p.yaml", 9, 27)
    (problem,) = problems(
        stage("a", (), ("o/x", "o/app.md")),
        stage("b", (), ("o/app.md",)),
        stages__a__outputs__1=one,
        stages__b__outputs__0=two,
    )
    assert (problem.code, problem.location) == ("E821", two)
    assert [(each.message, each.location) for each in problem.related] == [("`a` writes here", one)]
    assert problem.hint == (
        "give `b` another output, such as `o/b.md`; if `b` changes the file that `a` makes, also give `b` "
        "`inputs: [o/app.md]`"
    )
    (wide,) = problems(stage("a", (), ("o/app.md",)), stage("b", (), (), fence=WriteScope(("o/**",))))
    assert wide.hint == "narrow `o/**` in `allowed_paths.write` of `b`"
    (folder,) = problems(stage("a", (), ("o/",)), stage("b", (), ("o/app.md",)))
    assert folder.hint == "name the files that `a` writes instead of `o/`"


def test_the_later_of_two_stages_with_one_output_is_reported():
    (problem,) = problems(stage("z", (), ("o/x",)), stage("b", (), ("o/x",)), stages__b__outputs__0=Location("p", 9, 1))
    assert problem.message == "stages `z` and `b` may both write `o/x`"
    assert problem.location == Location("p", 9, 1)


def test_a_cycle_names_the_lines_to_remove_one_of():
    (problem,) = problems(
        stage("a", ("y",), ("x",)),
        stage("b", (), ("y",), needs=("a",)),
        stages__a__inputs__0=Location("p.yaml", 4, 15),
        stages__b__needs__0=Location("p.yaml", 8, 13),
    )
    assert problem.hint == "remove `a` from `needs` of `b` (line 8), or `y` from `inputs` of `a` (line 4)"
    long = [stage(f"s{n}", (f"o{n}",), (f"o{(n + 1) % 9}",)) for n in range(9)]
    (problem,) = problems(*long)
    assert problem.hint == "remove one of these inputs, outputs or needs"
