"""The indexes of a plan, and the questions of a state that use them, give what looking at every stage gives."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.decide.decisions import StageDecider
from orch23.decide.project_state import ProjectState
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.paths import match_any, may_overlap
from orch23.model.pipeline import ChainLink, GlobInput, PathInput, Pipeline, Stage, WriteScope
from orch23.model.plan import Plan
from orch23.model.record import LockFile, Record
from orch23.plan.nodes import PlanIndex, chains_of, may_overlap_unexcluded, may_read, writes_of
from orch23.steps.shell.spec import ShellStep
from tests.project import Project

PATHS = ("a", "d/x.py", "d/y.py", "d/e/x")
PATTERNS = (*PATHS, "./a", "d/", "d/*", "**", "*/x.py")
SOME = st.lists(st.sampled_from(PATTERNS), max_size=2, unique=True).map(tuple)
INPUTS = st.lists(
    st.builds(PathInput, st.sampled_from(PATHS))
    | st.builds(GlobInput, st.sampled_from(("d/*", "**")), exclude=st.sampled_from(((), ("d/x.py",), ("d/",)))),
    max_size=2,
    unique=True,
).map(tuple)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Give a plan whose nodes may have any edges: some stages, and the items of a chain."""
    nodes: dict[str, Any] = {}
    for name, index in [("s", None), ("t", None), *((f"c@{number}", number) for number in range(4))]:
        link = None if index is None else ChainLink(chain="c", index=index)
        step, fence = ShellStep(("x",)), WriteScope(draw(SOME))
        nodes[name] = Stage(name=name, step=step, inputs=draw(INPUTS), outputs=draw(SOME), fence=fence, chain=link)
    order = tuple(nodes)
    upstream = {name: tuple(one for one in order[:at] if draw(st.booleans())) for at, name in enumerate(order)}
    pipeline = Pipeline(name="p", file="p.yaml", stages=())
    downstream = {name: tuple(one for one in order if name in upstream[one]) for name in order}
    return Plan(
        pipeline=pipeline,
        nodes=nodes,
        order=order,
        upstream=upstream,
        downstream=downstream,
        chains=chains_of(nodes),
    )


def writing(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {name: writes_of(node) for name, node in plan.nodes.items()}


@given(plans(), st.sampled_from(PATTERNS), st.sampled_from(((), ("d/x.py",), ("d/",))))
def test_the_makers_of_a_pattern_are_all_that_may_write_what_it_means(
    plan: Plan, pattern: str, exclude: tuple[str, ...]
) -> None:
    found = {
        name
        for name, some in writing(plan).items()
        if any(may_overlap_unexcluded(pattern, exclude, one) for one in some)
    }
    index = PlanIndex(plan)
    assert index.makers(pattern, exclude) == index.makers(pattern, exclude) == found


@given(plans(), st.sampled_from(PATHS))
def test_a_chain_may_write_what_an_item_may_and_its_last_maker_is_the_last_that_names_it(plan: Plan, path: str) -> None:
    items = [cast("Stage", plan.nodes[name]) for name in plan.chains["c"]]
    index = PlanIndex(plan)
    assert index.in_chain("c", path) is any(match_any(writes_of(item), path) for item in items)
    assert index.last_maker("c", path) == max((at for at, item in enumerate(items) if path in item.outputs), default=-1)
    assert not index.in_chain("other", path)


@given(plans(), st.sets(st.sampled_from(("s", "t", "c@0", "c@1", "c@2", "c@3", "gone@1"))))
def test_a_stage_waits_for_each_unsettled_one_before_it_whose_files_it_may_read(
    plan: Plan, unsettled: set[str]
) -> None:
    state = SimpleNamespace(plan=plan, unsettled=unsettled, declared=PlanIndex(plan), stage=plan.nodes.__getitem__)
    for name, node in plan.nodes.items():
        assert isinstance(node, Stage)
        base = node.outputs if node.chain else ()
        before = dict.fromkeys((*plan.upstream[name], *plan.earlier_items(name)))
        found = [
            up
            for up in before
            if up in unsettled
            and (
                may_read(node, writes_of(plan.nodes[up]))
                or any(may_overlap(one, other) for one in base for other in writes_of(plan.nodes[up]))
            )
        ]
        decider = StageDecider(cast("ProjectState", state), cast("Any", None), cast("Any", None), cast("Any", None))
        assert decider.waiting_on(name) == tuple(found)


RECORDS = st.dictionaries(
    st.sampled_from(("s", "c@0", "c@1", "c@2", "c@3")),
    st.tuples(st.sets(st.sampled_from(PATHS), max_size=2), st.sets(st.sampled_from(PATHS), max_size=1)),
).map(
    lambda found: {
        name: Record(
            stage=name,
            key=name,
            manifest={},
            outputs={path: FileEntry(digest_bytes(f"{name} {path}".encode())) for path in made},
            deleted=tuple(sorted(gone - made)),
        )
        for name, (made, gone) in found.items()
    }
)


@given(plans(), RECORDS, RECORDS, st.sampled_from(PATHS))
def test_versions_of_a_chain_are_those_that_going_through_its_items_finds(
    plan: Plan, locked: dict[str, Record], settled: dict[str, Record], path: str
) -> None:
    files = SimpleNamespace(workspace=SimpleNamespace(entry=lambda _path: None), records=None)
    state = ProjectState(plan, cast("Any", files), LockFile(locked))
    for name, record in settled.items():
        state.settle(name, record)
    items = plan.chains["c"]
    for at, name in enumerate(items):
        earlier = [settled[one] for one in items[:at] if one in settled]
        versions = [one.outputs.get(path) for one in earlier if path in one.outputs or path in one.deleted]
        assert state.incoming_version(name, path) == (versions[-1] if versions else None)
        later = [(plan.nodes[one], settled.get(one) or locked.get(one)) for one in items[at + 1 :]]
        assert state.has_later_version(name, path) is any(
            (isinstance(node, Stage) and path in node.outputs)
            or (record is not None and (path in record.outputs or path in record.deleted))
            for node, record in later
        )


CHAIN = """\
version: 1
stages:
  c:
    foreach: {{from: list.json, as: i, order: sequential}}
    outputs: ["{output}"]
    shell: [touch, "{output}"]
"""


@pytest.mark.slow
@pytest.mark.parametrize("output", ["out/${{ i }}.txt", "shared.txt"])
def test_the_calls_of_a_plan_grow_with_a_chain_and_not_with_its_square(project: Project, output: str) -> None:
    def calls(number: int) -> int:
        items = ", ".join(f'"i{one}"' for one in range(number))
        project.write({"pipeline.yaml": CHAIN.format(output=output), "list.json": f"[{items}]"})
        return counted(lambda: project.run("plan"))

    calls(10)  # what is imported is imported
    few, some, many = calls(10), calls(60), calls(160)
    assert many - few < 3.4 * (some - few)


def counted(act: Callable[[], object]) -> int:
    """Return how many calls of Python an act makes."""
    count = 0

    def note(_frame: object, event: str, _more: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count
