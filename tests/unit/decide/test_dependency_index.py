"""What an edit reaches, by rows of the index; what is not known is never taken for nothing."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from orch23.decide.dependency_index import DependencyIndex, IndexHead, OutdatedIndexError, all_rows, changed_rows
from orch23.decide.partial_plan import plan_of_part, reached_stages
from orch23.language.stages import render_foreach
from orch23.load.pipeline import parse_pipeline
from orch23.model.event import RunStarted
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.model.plan import Plan
from orch23.model.record import Record
from orch23.plan.nodes import reads_of
from orch23.plan.planner import build_plan
from orch23.store.index import StoreIndex

TEXT = """\
version: 1
stages:
  a: {inputs: [a.in], outputs: [a.out], shell: [make, a]}
  b: {inputs: [a.out], outputs: [b.out], shell: [make, b]}
  left: {inputs: [g.in], outputs: [left.out], shell: [make, l], promote: both}
  right: {inputs: [h.in], outputs: [right.out], shell: [make, r], promote: both}
  after: {inputs: [right.out], outputs: [after.out], shell: [make, after]}
""" + "".join(f"  p{n}: {{inputs: [p{n}.in], outputs: [p{n}.out], shell: [make, p]}}\n" for n in range(9))


def plan_of(text: str = TEXT) -> Plan:
    parsed = parse_pipeline(text, "p.yaml")
    assert parsed.pipeline is not None, parsed.diagnostics
    plan, problems = build_plan(parsed.pipeline)
    assert plan is not None, problems
    return plan


def bare(plan: Plan) -> Pipeline:
    return replace(plan.pipeline, stages=(), locations={})


def record(name: str) -> Record:
    return Record(stage=name, key=f"key of {name}", manifest={"kind": "shell"})


@pytest.fixture
def rows(tmp_path: Path) -> DependencyIndex:
    return written(tmp_path, plan_of())


def written(folder: Path, plan: Plan) -> DependencyIndex:
    names = frozenset(plan.nodes)
    stages = {name: node for name, node in plan.nodes.items() if isinstance(node, Stage)}
    reads = {name: {*reads_of(node), f"{name}.out"} for name, node in stages.items()}
    head = IndexHead("token", bare(plan), RunStarted(name="p"), {"fresh": len(names)}, ("p.yaml",))
    table = all_rows(head, TEXT, plan, names, reads, {name: record(name) for name in names}, names)
    assert table is not None
    index = StoreIndex(folder / "index.sqlite")
    index.write({"t": table})
    return DependencyIndex(index, "t")


def reached(rows: DependencyIndex, *changed: str) -> tuple[str, ...]:
    return reached_stages(rows, changed, lambda path: path.endswith(".in"))


def test_an_edit_reaches_its_readers_and_what_follows_and_what_these_read_is_around(rows: DependencyIndex) -> None:
    assert reached(rows, "a.in") == ("a", "b")
    assert plan_of_part(rows, ("a", "b")).order == ("a", "b")
    assert reached(rows, "b.out", "p3.in") == ("b", "p3")
    assert set(plan_of_part(rows, ("b", "p3")).order) == {"a", "b", "p3"}


def test_a_promotion_group_is_reached_as_a_whole_with_what_follows(rows: DependencyIndex) -> None:
    assert reached(rows, "g.in") == ("left", "right", "after")


def test_a_part_of_a_plan_has_its_order_and_edges(rows: DependencyIndex) -> None:
    plan = plan_of_part(rows, reached(rows, "b.out", "g.in"))
    assert plan.order == ("a", "b", "left", "right", "after")
    assert plan.upstream == {"a": (), "b": ("a",), "left": (), "right": (), "after": ("left", "right")}
    assert plan.downstream == {"a": ("b",), "b": (), "left": ("after",), "right": ("after",), "after": ()}
    assert plan.groups == {"both": ("left", "right")}
    assert plan.nodes == {name: plan_of().nodes[name] for name in plan.order}
    assert set(plan.all_nodes) == set(plan_of().nodes)


@pytest.mark.parametrize("path", ["nobody.reads", "a.in", "p1.in"])
def test_of_a_path_that_is_unknown_or_gone_it_says_nothing(rows: DependencyIndex, path: str) -> None:
    with pytest.raises(OutdatedIndexError):
        reached_stages(rows, [path], lambda _path: False)


def test_of_more_than_half_of_all_stages_it_says_nothing(rows: DependencyIndex) -> None:
    with pytest.raises(OutdatedIndexError):
        reached(rows, *(f"p{number}.in" for number in range(8)))


def test_a_missing_output_leads_to_its_maker(rows: DependencyIndex) -> None:
    assert reached_stages(rows, ["p1.out"], lambda _path: False) == ("p1",)


@pytest.mark.parametrize("key", [b"head", b"stage a", b"stage b"])
def test_a_missing_row_is_an_outdated_index(tmp_path: Path, rows: DependencyIndex, key: bytes) -> None:
    rows._index.write({}, {"t": {key: None}})
    with pytest.raises(OutdatedIndexError):
        reached(DependencyIndex(StoreIndex(tmp_path / "index.sqlite"), "t"), "a.in")


def test_a_row_of_another_version_is_an_outdated_index(rows: DependencyIndex) -> None:
    rows._index.write({}, {"t": {b"stage a": b"\x93\x01\x02\x03"}})
    with pytest.raises(OutdatedIndexError):
        reached(rows, "a.in")


def test_after_a_build_only_the_rows_of_what_was_reached_change(rows: DependencyIndex) -> None:
    names = reached(rows, "a.in")
    plan = plan_of_part(rows, names)
    reads = {"a": {"new.in"}, "b": set[str]()}
    head = IndexHead("next", bare(plan), RunStarted(), {"fresh": 14}, ("p.yaml",))
    changes = changed_rows(head, None, rows, names, plan, reads, {name: record(name) for name in plan.nodes})
    assert set(changes) == {b"head", b"stage a", b"stage b", b"reads new.in", b"reads a.in", b"reads a.out"}
    rows._index.write({}, {"t": changes})
    again = DependencyIndex(rows._index, "t")
    assert again.head.token == "next"
    assert again.readers("new.in") == ("a",)
    assert again.readers("a.in") == ()
    assert again.readers("a.out") == ("a",), "a stage is among the readers of the files that it may write"
    assert again.readers("b.out") == ("b",)


def test_the_changes_to_other_rows_turn_the_table_into_these(rows: DependencyIndex) -> None:
    before = dict(rows._index.rows("t"))
    after = {**before, b"stage a": b"other", b"stage new": b"new"}
    del after[b"stage b"]
    changes = rows.changes_to(after)
    assert changes == {b"stage a": b"other", b"stage new": b"new", b"stage b": None}
    rows._index.write({}, {"t": changes})
    assert dict(rows._index.rows("t")) == after


def test_what_makes_the_list_of_a_foreach_reaches_everything(tmp_path: Path) -> None:
    text = TEXT + "  each: {foreach: {from: a.out, as: n}, outputs: ['n/${{ n }}'], shell: [make, '${{ n }}']}\n"
    parsed = parse_pipeline(text, "p.yaml").pipeline
    assert parsed is not None
    plan, _ = build_plan(parsed, {"each": ()})
    assert plan is not None
    with pytest.raises(OutdatedIndexError):
        reached(written(tmp_path, plan), "a.in")


ASIDE = """\
version: 1
stages:
  early: {inputs: [acc.txt], outputs: [early.out], shell: [make, e]}
  lists: {inputs: [{list: "**/*.o"}], outputs: [lists.out], shell: [make, l]}
  folder: {inputs: [f.in], outputs: [many/], shell: [make, f]}
  file: {inputs: [f.in], outputs: [file.o], shell: [make, f]}
  chain:
    foreach: {in: [one, two], order: sequential}
    needs: [early]
    outputs: [acc.txt]
    shell: [make, c]
"""


def test_stages_whose_results_a_stage_sees_are_its_neighbours_although_not_selected(tmp_path: Path) -> None:
    """`early` reads the file before any item writes it; `lists` lists no file that `folder` made."""
    plan = expanded(ASIDE, "chain", "one", "two")
    wanted = frozenset({"early", "lists"})
    reads = {"early": {"acc.txt"}, "lists": {"g.in"}}
    head = IndexHead("token", bare(plan), RunStarted(), {"fresh": 4}, ("p.yaml",))
    table = all_rows(head, ASIDE, plan, wanted, reads, {name: record(name) for name in wanted}, wanted)
    assert table is not None
    index = StoreIndex(tmp_path / "index.sqlite")
    index.write({"t": table})
    rows = DependencyIndex(index, "t")
    assert reached_stages(rows, ["acc.txt"], lambda _path: True) == ("early",)
    plan = plan_of_part(rows, ("early",))
    assert set(plan.order) == {"early", "chain@one", "chain@two"}
    assert plan.chains == {"chain": ("chain@one", "chain@two")}
    assert reached_stages(rows, ["g.in"], lambda _path: True) == ("lists",)
    assert set(plan_of_part(rows, ("lists",)).order) == {"lists", "folder"}


def expanded(text: str, name: str, *values: str) -> Plan:
    parsed = parse_pipeline(text, "p.yaml").pipeline
    assert parsed is not None
    node = next(one for one in parsed.stages if isinstance(one, ForeachStage))
    built = [one.stage for one in render_foreach(node, [(one, one) for one in values], {})]
    plan, problems = build_plan(parsed, {name: tuple(one for one in built if one is not None)})
    assert plan is not None, problems
    return plan


def test_a_chain_is_reached_as_a_whole_with_the_stages_that_see_its_files_as_they_were(tmp_path: Path) -> None:
    """The last item starts from what the first one made; `early` reads the file before any item writes it."""
    items = "".join(f"  p{n}: {{inputs: [p{n}.in], outputs: [p{n}.out], shell: [make, p]}}\n" for n in range(9))
    text = (
        "version: 1\nstages:\n"
        "  early: {inputs: [x.in, acc.txt], outputs: [list.out], shell: [make, e]}\n"
        "  chain:\n    foreach: {in: [one, two], order: sequential}\n"
        "    inputs: [list.out, '${{ item }}.in']\n    outputs: [acc.txt]\n    shell: [make, c]\n"
    ) + items
    plan = expanded(text, "chain", "one", "two")
    assert plan.upstream_of_chains == {"early": {"chain": 0}}
    rows = written(tmp_path, plan)
    names = reached(rows, "two.in")
    assert names == ("early", "chain@one", "chain@two")
    assert plan_of_part(rows, names).chains == {"chain": ("chain@one", "chain@two")}
