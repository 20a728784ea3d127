"""Stages that edit the same files: their chain, what their readers see, and the errors of those without an order."""

import pytest

from orch23.model.diagnostic import Location
from orch23.model.pipeline import ChainLink, Condition, ForeachStage, Item
from orch23.plan.diagnostics import missing_inputs_errors
from orch23.plan.planner import build_plan, extend_plan
from tests.unit.plan.test_planner import Kept, foreach, no_file, pipeline, planned, problems, stage


def editor(name, *edits, reads=(), outputs=(), chain=None, **more):
    link = chain or ChainLink(chain=name, index=0)
    return stage(name, reads, (*outputs, *edits), edits=edits, chain=link, **more)


def items(name, *edits, **more):
    made = (
        editor(f"{name}@{n}", edit, item=Item(name="f", key=str(n), value=edit), **more) for n, edit in enumerate(edits)
    )
    return tuple(made)


def test_stages_that_edit_the_same_files_are_a_chain_in_their_order():
    plan = planned(editor("last", "src/**", needs=("first",)), editor("other", "docs/**"), editor("first", "src/a"))
    assert plan.chains == {"first": ("first", "last"), "other": ("other",)}
    assert [plan.nodes[name].chain for name in plan.chains["first"]] == [
        ChainLink(chain="first", index=0),
        ChainLink(chain="first", index=1),
    ]


def test_stages_of_a_chain_that_share_no_file_do_not_wait_for_each_other():
    plan = planned(editor("a", "src/a"), editor("b", "src/b"), editor("all", "src/**", needs=("a", "b")))
    assert plan.chains == {"a": ("a", "b", "all")}
    assert (plan.upstream["a"], plan.upstream["b"]) == ((), ())


def test_items_that_share_no_file_with_each_other_are_one_chain_with_the_stage_after_them():
    each, tidy = foreach("mod", source="l.json", writes=("src/**",)), editor("tidy", "src/**", needs=("mod",))
    plan, found = build_plan(pipeline(each, tidy), {"mod": items("mod", "src/a", "src/b")})
    assert plan is not None, found
    assert plan.chains == {"mod@0": ("mod@0", "mod@1", "tidy")}
    assert plan.upstream["mod@1"] == ()
    assert plan.expansions["mod"][0].chain == ChainLink(chain="mod@0", index=0), (
        "a plan with more items links them again"
    )


def test_a_reader_between_two_editors_sees_the_members_before_it():
    plan = planned(
        stage("before", ("src/**",), ("y",)),
        editor("one", "src/**", needs=("before",)),
        stage("between", ("src/**",), ("x",)),
        editor("two", "src/**", needs=("one", "between")),
        stage("after", ("src/a",), ("z",)),
    )
    assert plan.order == ("before", "one", "between", "two", "after")
    assert plan.upstream_of_chains == {"before": {"one": 0}, "between": {"one": 1}}


def test_an_output_of_a_stage_without_edits_is_edited_after_it():
    plan = planned(
        editor("tidy", "src/**", needs=("gen",)), stage("gen", (), ("src/gen",)), stage("r", ("src/gen",), ("x",))
    )
    assert plan.chains == {"gen": ("gen", "tidy")}
    assert plan.upstream["r"] == ("gen", "tidy")


def test_an_editor_that_reads_what_a_later_one_edits_starts_from_the_versions_before_it():
    plan = planned(
        editor("one", "src/**", reads=("src/**",)), editor("two", "src/**", reads=("src/**",), needs=("one",))
    )
    assert plan.order == ("one", "two")
    assert plan.upstream_of_chains == {}


def test_a_stage_between_two_editors_decides_their_order_although_one_reads_the_other():
    plan = planned(
        editor("one", "src/**", reads=("src/**",)),
        stage("between", ("src/**",), ("x",)),
        editor("two", "src/**", needs=("between",)),
    )
    assert plan.order == ("one", "between", "two")


def test_an_output_of_an_editor_is_a_reason_for_an_order_as_any_other():
    report = {"reads": ("x.txt", "src/**")}
    plan = planned(editor("two", "src/**", **report), editor("one", "src/**", reads=("src/**",), outputs=("x.txt",)))
    assert plan.order == ("one", "two")


@pytest.mark.parametrize("reads", [(), ("src/**",)])
def test_two_editors_without_an_order_are_an_error_that_names_both_lines_and_the_one_to_add(reads):
    one, two = editor("one", "src/**", reads=reads), editor("two", "src/a", reads=reads, needs=("three",))
    places = {"stages__one__edits__0": Location("p.yaml", 4, 9), "stages__two__edits__0": Location("p.yaml", 5, 9)}
    (found,) = problems(one, stage("three"), two, **places)
    assert (found.code, found.location) == ("E821", Location("p.yaml", 5, 9))
    assert found.message == "stages `one` and `two` may both write `src/a`, and have no order"
    assert [(one.message, one.location) for one in found.related] == [("`one` writes here", Location("p.yaml", 4, 9))]
    assert found.hint == "write `needs: [three, one]` in `two`, which then starts from the files of `one`"


def test_each_pair_of_editors_of_one_pattern_needs_an_order():
    three = [
        editor("one", "src/**"),
        editor("two", "src/**", needs=("one",)),
        editor("three", "src/**", needs=("one",)),
    ]
    (found,) = problems(*three)
    assert "`two` and `three`" in found.message


def test_items_of_one_list_that_edit_one_file_need_an_order_of_the_list():
    plan, found = build_plan(pipeline(foreach("mod", source="l.json")), {"mod": items("mod", "src/a", "src/a")})
    assert plan is None
    assert [(one.code, "`order: sequential` in `foreach` of `mod`" in (one.hint or "")) for one in found] == [
        ("E821", True)
    ]
    chained = (editor(f"mod@{n}", "src/a", chain=ChainLink(chain="mod", index=n)) for n in range(2))
    plan, found = build_plan(pipeline(foreach("mod", source="l.json", sequential=True)), {"mod": tuple(chained)})
    assert plan is not None, found
    assert plan.chains == {"mod": ("mod@0", "mod@1")}


def test_all_items_of_a_list_are_needed_also_by_those_of_the_same_list():
    lists = foreach("a", source="l.json"), foreach("b", source="l.json")
    of_a, of_b = items("a", "src/1", "src/2"), items("b", "src/2", "src/1")
    plan, found = build_plan(pipeline(*lists), {"a": of_a, "b": of_b})
    assert plan is None
    assert {one.hint for one in found} == {'write `needs: ["a[*]"]` in `b`, which then starts from the files of `a`'}
    needing = tuple(editor(one.name, *one.edits, item=one.item, needs=("a[*]",)) for one in of_b)
    assert build_plan(pipeline(*lists), {"a": of_a, "b": needing})[0] is not None


def test_the_line_to_add_makes_no_cycle_with_a_promotion_group():
    one, inner = editor("one", "src/**", promote="g"), editor("two", "src/a")
    last = stage("last", ("t",), ("u",), promote="g")
    (found,) = problems(one, inner, stage("mid", (), ("t",), needs=("two",)), last)
    assert found.hint == "write `needs: [two]` in `one`, which then starts from the files of `two`"


def literal_body(*edits):
    each = foreach("mod", source="list.json", writes=edits)
    return ForeachStage(
        name="mod", foreach=each.foreach, body={"edits": list(edits), "shell": "x"}, kind="shell", writes=each.writes
    )


def test_before_a_list_is_known_only_patterns_without_an_item_need_an_order():
    tidy = editor("tidy", "src/**")
    (found,) = problems(literal_body("src/**"), tidy)
    assert "write `needs: [mod]` in `tidy`" in (found.hint or "")
    plan = planned(literal_body("src/${{ f }}"), tidy)
    more, found = extend_plan(plan, {"mod": items("mod", "docs/a")})
    assert more is not None, found
    more, found = extend_plan(plan, {"mod": items("mod", "src/a")})
    assert more is None
    assert [one.code for one in found] == ["E821"]


def test_a_missing_input_is_an_error_also_if_the_stage_itself_edits_the_file():
    plan = planned(
        editor("one", "src/**", reads=("src/typo",)), editor("two", "src/**", reads=("src/new",), needs=("one",))
    )
    found = missing_inputs_errors(plan, exists=no_file)
    assert [(one.code, "`src/typo` of stage `one`" in one.message) for one in found] == [("E822", True)]


def test_a_condition_is_a_reader_as_an_input_is():
    gate = stage("gate", (), ("x",), requires=(Condition(kind="file_exists", path="src/new"),))
    plan = planned(gate, editor("one", "src/**"), editor("two", "src/**", needs=("one",), reads=("x",)))
    assert plan.order == ("one", "gate", "two")
    assert plan.upstream_of_chains == {"gate": {"one": 1}}


def test_a_stored_plan_has_the_chains_of_stages_that_edit_the_same_files():
    stages = (
        editor("one", "src/**"),
        stage("between", ("src/**",), ("x",)),
        editor("two", "src/**", reads=("x",), needs=("one",)),
    )
    kept = Kept()
    first, again = (build_plan(pipeline(*stages), cache=kept)[0] for _ in range(2))
    assert kept.made == 1
    assert first is not None
    assert again is not None
    assert (again.nodes, again.chains) == (first.nodes, {"one": ("one", "two")})
    assert again.upstream_of_chains == first.upstream_of_chains == {"between": {"one": 1}}
