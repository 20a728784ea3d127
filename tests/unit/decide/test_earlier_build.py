"""What counts as unaffected since an earlier build, one rule at a time; tests/property compares whole builds."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from orch23.decide import list_expansion
from orch23.decide.dependency_index import StageRow
from orch23.decide.earlier_build import EarlierBuild
from orch23.decide.project_state import ProjectState
from orch23.load.pipeline import parse_pipeline
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.plan.planner import build_plan

ROOT = "/project"
BEFORE = """\
version: 1
stages:
  a: {shell: [cp, in/a.txt, out/a.txt], inputs: [in/a.txt], outputs: [out/a.txt]}
  b: {shell: [cp, out/a.txt, out/b.txt], inputs: [out/a.txt], outputs: [out/b.txt]}
  c: {shell: [cp, in/c.txt, deep/c.txt], inputs: [in/c.txt], outputs: [deep/c.txt]}
"""


def state_of(text: str, results: Mapping[str, Any] | None = None) -> ProjectState:
    pipeline = parse_pipeline(text, "pipeline.yaml").pipeline
    assert pipeline is not None
    plan, problems = build_plan(pipeline)
    assert plan is not None, problems
    records = {name: record_of(name) for name in "abc"}
    found = SimpleNamespace(
        plan=plan, lock=SimpleNamespace(records=records), results=results or {}, unsettled=set[str]()
    )
    return cast("ProjectState", found)


def record_of(name: str, **outputs: str) -> Any:
    return SimpleNamespace(outputs=outputs or {f"out/{name}.txt": "old"}, deleted=())


def earlier(*changed: str, looked: Mapping[str, tuple[str, ...]] | None = None, **more: Any) -> EarlierBuild:
    plan = state_of(BEFORE).plan
    rows = {}
    for number, name in enumerate(plan.order):
        node = plan.nodes[name]
        assert isinstance(node, Stage)
        paths = (*node.outputs, *(one.path for one in node.inputs), *(looked or {}).get(name, ()))  # type: ignore[union-attr]
        rows[name] = StageRow(node, number, plan.upstream[name], plan.downstream[name], paths, node.outputs, **more)
    return EarlierBuild(cast("Any", None), rows, frozenset(changed), ROOT)


def after(edit: tuple[str, str], text: str = BEFORE) -> str:
    assert text.count(edit[0]) == 1
    return text.replace(*edit)


def test_without_a_change_all_are_unaffected() -> None:
    assert earlier().unaffected(state_of(BEFORE)) == {"a", "b", "c"}


def test_a_changed_file_affects_what_looked_at_it_and_all_downstream() -> None:
    assert earlier("in/a.txt").unaffected(state_of(BEFORE)) == {"c"}
    assert earlier("in/a.txt").after([]).unaffected(state_of(BEFORE)) == {"b", "c"}
    assert earlier("in/a.txt").after(["out/a.txt"]).unaffected(state_of(BEFORE)) == {"c"}


@pytest.mark.parametrize(
    ("edit", "unaffected"),
    [
        (("[cp, in/c.txt", "[cp, -p, in/c.txt"), {"a", "b"}),
        (("inputs: [in/c.txt]", "inputs: [in/c.txt, out/a.txt]"), {"a", "b"}),
        (("inputs: [in/a.txt]", "inputs: [in/a.txt], needs: [c]"), {"c"}),
        (("  c:", "  d: {shell: [x], inputs: [in/c.txt], outputs: [d.txt]}\n  c:"), {"a", "b", "c"}),
        (("  c:", "  d: {shell: [x], outputs: [in/c.txt]}\n  c:"), {"a", "b"}),
        (("  c:", "  d: {shell: [x], outputs: [any/]}\n  c:"), set()),
        (("  a: {", "  z: {"), {"c"}),
        (("outputs: [out/b.txt]", "outputs: [out/b.txt], promote: one"), {"a", "c"}),
    ],
)
def test_an_edit_of_the_graph(edit: tuple[str, str], unaffected: set[str]) -> None:
    assert earlier().unaffected(state_of(after(edit))) == unaffected


def test_what_a_new_or_a_former_stage_makes_changes_what_others_looked_at() -> None:
    listing = {"c": (f"{ROOT}/made",)}
    new = after(("  c:", "  d: {shell: [x], outputs: [made/deep/d.txt]}\n  c:"))
    assert earlier(looked=listing).unaffected(state_of(new)) == {"a", "b"}
    gone = BEFORE.replace(BEFORE.splitlines()[3] + "\n", "")
    assert earlier(looked={"c": ("out/b.txt",)}).unaffected(state_of(gone)) == {"a"}
    assert earlier().unaffected(state_of(gone)) == {"a", "c"}


def test_untouched_stages_are_declared_as_before_and_no_path_of_theirs_has_changed() -> None:
    plan = state_of(after(("inputs: [in/c.txt]", "inputs: [in/c.txt, out/a.txt]"))).plan
    assert earlier().untouched(plan) == {"a", "b"}
    assert earlier("in/a.txt").untouched(plan) == {"b"}
    assert earlier("out/b.txt", looked={"a": (f"{ROOT}/in",)}).untouched(plan) == {"a"}
    assert earlier(f"{ROOT}/in", looked={"a": (f"{ROOT}/in",)}).untouched(plan) == {"b"}
    assert earlier(is_recorded=False).untouched(plan) == set()


@pytest.mark.parametrize("more", [{"above": ("x",)}, {"beside": ("x",)}, {"group": "x"}, {"is_recorded": False}])
def test_a_stage_that_is_not_decided_by_itself_is_always_decided(more: dict[str, Any]) -> None:
    assert earlier(**more).unaffected(state_of(BEFORE)) == set()


def test_a_stage_that_follows_others_than_before_is_affected() -> None:
    since = earlier()
    row = since.rows["c"]
    follows = replace(since, rows={**since.rows, "c": replace(row, upstream=("a",))})
    assert follows.unaffected(state_of(BEFORE)) == {"a", "b"}


def test_items_are_unaffected_if_what_is_new_above_them_is_nothing_that_they_looked_at() -> None:
    plan = state_of(BEFORE).plan
    items = [cast("Stage", plan.nodes["b"])]
    since = earlier("in/a.txt")
    assert since.unaffected_items(state_of(BEFORE), items, set()) == set()  # it has no result yet
    same = state_of(BEFORE, {"a": record_of("a")})
    assert since.unaffected_items(same, items, set()) == {"b"}
    assert (
        since.unaffected_items(state_of(BEFORE, {"a": record_of("a", **{"out/a.txt": "new"})}), items, set()) == set()
    )
    other = {"out/a.txt": "old", "out/more.txt": "new"}
    assert since.unaffected_items(state_of(BEFORE, {"a": record_of("a", **other)}), items, set()) == {"b"}
    same.unsettled.add("a")
    assert since.unaffected_items(same, items, set()) == set()


def test_a_list_whose_items_are_not_known_affects_what_looked_at_a_file_that_they_may_make() -> None:
    text = (
        BEFORE
        + """\
  each:
    foreach: {from: "list.json#", as: one}
    shell: [cp, in/c.txt, "made/${{ one }}.txt"]
    inputs: [in/c.txt]
    outputs: ["made/${{ one }}.txt"]
"""
    )
    assert earlier().unaffected(state_of(text)) == {"a", "b", "c"}
    # With it, what is downstream of it: a link that leads to such a file is an error (E691).
    assert earlier(looked={"a": ("made/x.txt",)}).unaffected(state_of(text)) == {"c"}


LISTED = """\
version: 1
vars: {n: 1}
stages:
  each:
    foreach: {in: [x, y]}
    shell: [make, "${{ item }}", "1"]
    outputs: ["out/${{ item }}"]
"""


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (("x, y", "y, z"), {"each@x", "each@y"}),
        (("{n: 1}", "{n: true}"), set()),  # 1 and true are equal in Python
        (("{n: 1}", "{m: 1}"), set()),
        (('"1"]', "1]"), set()),
        (("[make", "[touch"), set()),
        (("  each:", "  other:"), set()),
    ],
)
def test_earlier_items_count_only_with_the_same_body_and_vars(edit: tuple[str, str], names: set[str]) -> None:
    before, now = parse_pipeline(LISTED, "p.yaml").pipeline, parse_pipeline(after(edit, LISTED), "p.yaml").pipeline
    assert before is not None
    assert now is not None
    (node,), (known,) = now.stages, before.stages
    assert isinstance(node, ForeachStage)
    assert isinstance(known, ForeachStage)
    rows = {one.name: StageRow(one, number, (), (), (), ()) for number, one in enumerate(items_of(before, known))}
    build = EarlierBuild(cast("Any", None), rows, frozenset(), ROOT, {known.name: known}, before.vars)
    found = build.items_of(node, now.vars)
    assert set(found) == names
    assert all(found[name] is rows[name].node for name in names)


def items_of(pipeline: Pipeline, node: ForeachStage) -> tuple[Stage, ...]:
    plan, _ = build_plan(pipeline)
    assert plan is not None
    return list_expansion.items_of(plan, node, None, lambda text: text, {}).stages
