"""Plans of random pipelines against brute force: order, edges, owners, cycles."""

import itertools
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.model.paths import may_overlap
from orch23.model.pipeline import ChainLink, GlobInput, Input, ListInput, PathInput, Pipeline, Stage, WriteScope
from orch23.plan.nodes import WriterIndex
from orch23.plan.planner import Selection, build_plan
from orch23.steps.shell.spec import ShellStep

PATHS = ("a", "b", "d/a", "d/b", "d/e/a")
PATTERNS = (*PATHS, "d/", "d/*", "d/**", "**/a", "d/e/", "*")


def stage(name: str, reads: tuple[str, ...] = (), writes: tuple[str, ...] = (), **more: object) -> Stage:
    inputs: tuple[Input, ...] = tuple(PathInput(p) if p in PATHS else GlobInput(p) for p in reads)
    return Stage(name=name, step=ShellStep("true"), inputs=inputs, outputs=writes, fence=WriteScope(writes), **more)  # type: ignore[arg-type]


@st.composite
def pipelines(draw):
    """Give pipelines whose stages own distinct files and read each other's, by name or by glob, and need each other."""
    names = draw(st.lists(st.text("abcxyz@.", min_size=1, max_size=3), min_size=1, max_size=6, unique=True))
    stages = []
    for number, name in enumerate(names):
        reads = draw(st.lists(st.sampled_from([f"o{n}" for n in range(6)] + ["o*", "o[01]", "source"]), max_size=2))
        inputs: tuple[Input, ...] = tuple(GlobInput(p) if "*" in p or "[" in p else PathInput(p) for p in reads)
        needs = tuple(draw(st.lists(st.sampled_from(names), max_size=1)))
        out = (f"o{number}",)
        step = ShellStep("true")
        stages.append(Stage(name=name, step=step, inputs=inputs, needs=needs, outputs=out, fence=WriteScope(out)))
    return Pipeline(name="p", file="p.yaml", stages=tuple(stages))


def wanted_edges(pipeline: Pipeline) -> set[tuple[str, str]]:
    """Return producer and reader of every edge, by comparing all pairs."""
    edges = set()
    for reader, producer in itertools.permutations(pipeline.stages, 2):
        assert isinstance(reader, Stage)
        assert isinstance(producer, Stage)
        reads = [one.pattern if isinstance(one, GlobInput) else one.path for one in reader.inputs]  # type: ignore[union-attr]
        if producer.name in reader.needs or any(may_overlap(r, w) for r in reads for w in producer.outputs):
            edges.add((producer.name, reader.name))
    return edges | {(one.name, one.name) for one in pipeline.stages if one.name in one.needs}


def has_cycle(edges: set[tuple[str, str]]) -> bool:
    nodes = {name for edge in edges for name in edge}
    while nodes:
        free = {n for n in nodes if not any(reader == n and producer in nodes for producer, reader in edges)}
        if not free:
            return True
        nodes -= free
    return False


def first_order(names: list[str], edges: set[tuple[str, str]]) -> tuple[str, ...]:
    """Return the topological order that takes the first free one of these names each time."""
    order: list[str] = []
    while len(order) < len(names):
        order.append(next(n for n in names if n not in order and all(p in order for p, r in edges if r == n)))
    return tuple(order)


@given(pipelines())
def test_edges_and_order_are_those_of_brute_force(pipeline):
    edges = wanted_edges(pipeline)
    plan, problems = build_plan(pipeline)
    if has_cycle(edges):
        assert plan is None
        assert {d.code for d in problems} == {"E820"}
        return
    assert not problems
    assert plan is not None
    assert {(e.producer, e.reader) for e in plan.edges} == edges
    assert plan.order == first_order([s.name for s in pipeline.stages], edges)
    for name in plan.order:
        assert plan.upstream[name] == tuple(p for p in plan.order if (p, name) in edges)
        assert plan.downstream[name] == tuple(r for r in plan.order if (name, r) in edges)
    assert plan.upstream_of_chains == {}


@pytest.mark.slow
@given(pipelines(), st.randoms(use_true_random=False))
def test_the_order_of_declaration_changes_only_the_order_of_stages(pipeline, random):
    shuffled = list(pipeline.stages)
    random.shuffle(shuffled)
    one, its_problems = build_plan(pipeline)
    other, other_problems = build_plan(Pipeline(name="p", file="p.yaml", stages=tuple(shuffled)))
    assert sorted(map(str, its_problems)) == sorted(map(str, other_problems))
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert sorted(one.order) == sorted(other.order)
        assert set(one.edges) == set(other.edges)
        above, others = ({name: set(names) for name, names in plan.upstream.items()} for plan in (one, other))
        assert above == others


@given(pipelines())
def test_a_cycle_is_named_with_a_path_that_is_one(pipeline):
    edges = wanted_edges(pipeline)
    plan, problems = build_plan(pipeline)
    for problem in problems:
        path = problem.message.removeprefix("cycle: ").split(" -> ")
        assert path[0] == path[-1] == min(path)
        assert len(set(path)) == len(path) - 1
        assert set(itertools.pairwise(path)) <= edges
        assert len(problem.related) == (len(path) - 1 if len(path) > 2 else 0)
    if plan is None:
        assert problems


@given(st.lists(st.sets(st.sampled_from(PATTERNS), min_size=1, max_size=2), min_size=1, max_size=5))
def test_overlapping_owners_are_found_if_and_only_if_brute_force_finds_them(fences):
    stages = tuple(stage(f"s{n}", writes=tuple(sorted(fence))) for n, fence in enumerate(fences))
    wanted = {
        (one.name, other.name)
        for one, other in itertools.combinations(stages, 2)
        if any(may_overlap(a, b) for a in one.outputs for b in other.outputs)
    }
    found = [(one, other) for one, other, _ in WriterIndex({s.name: s for s in stages}).overlaps()]
    assert len(found) == len(set(found))
    assert set(found) <= wanted
    # of many owners of one pattern each is paired with the first, so all are named
    assert {name for pair in found for name in pair} == {name for pair in wanted for name in pair}
    plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=stages))
    assert (plan is None) == bool(wanted)
    assert sum(d.code == "E821" for d in problems) == len(found)


@given(
    st.lists(st.sets(st.sampled_from(PATTERNS), min_size=1, max_size=2), min_size=1, max_size=5),
    st.sampled_from(PATTERNS),
)
def test_the_writers_of_a_pattern_are_those_of_brute_force(fences, pattern):
    stages = {f"s{n}": stage(f"s{n}", writes=tuple(sorted(fence))) for n, fence in enumerate(fences)}
    wanted = tuple(sorted(n for n, s in stages.items() if any(may_overlap(pattern, w) for w in s.outputs)))
    assert WriterIndex(stages).writers_of(pattern) == wanted


@st.composite
def chained(draw):
    """Give a chain of items that share files, and stages that read them; some make what the chain reads."""
    count = draw(st.integers(1, 4))
    items = []
    for index in range(count):
        out = tuple(sorted(draw(st.sets(st.sampled_from(["w/a", "w/b"]), min_size=1))))
        reads = tuple(PathInput(p) for p in draw(st.lists(st.sampled_from(["m0", "m1"]), max_size=1)))
        link = ChainLink(chain="c", index=index)
        # the keys run against the order of the list: it is the index that counts
        items.append(
            Stage(
                name=f"c@{9 - index}",
                step=ShellStep("true"),
                inputs=reads,
                outputs=out,
                fence=WriteScope(("w/",)),
                chain=link,
            )
        )
    others = []
    for number in range(2):
        pool = ["w/a", "w/b", "w/**", "source"]
        reads = draw(st.lists(st.sampled_from(pool), max_size=2))
        inputs: tuple[Input, ...] = tuple(GlobInput(p) if "*" in p else PathInput(p) for p in reads)
        out = (f"m{number}",)
        others.append(
            Stage(name=f"m{number}", step=ShellStep("true"), inputs=inputs, outputs=out, fence=WriteScope(out))
        )
    return items, others


@pytest.mark.slow
@given(chained())
def test_an_edge_out_of_a_chain_yields_exactly_where_its_reader_stands_above_the_chain(parts):
    items, others = parts
    plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=(*others, *items)))
    assert plan is not None, problems
    firm = {(m.name, i.name) for i in items for m in others if PathInput(m.outputs[0]) in i.inputs}
    for other in others:
        reads_chain = [
            i.name
            for i in items
            for one in other.inputs
            if may_overlap(one.pattern if isinstance(one, GlobInput) else one.path, "w/**")
        ]
        feeds = {i.chain.index for i in items if i.chain and (other.name, i.name) in firm}
        if reads_chain and feeds and min(feeds) == 0:
            assert plan.upstream_of_chains.get(other.name) == {"c": 0}
            assert not any(up.startswith("c@") for up in plan.upstream[other.name])
        if reads_chain and not feeds:
            assert other.name not in plan.upstream_of_chains
            assert plan.order.index(other.name) > max(plan.order.index(i.name) for i in items)
    assert [n for n in plan.order if n.startswith("c@")] == [i.name for i in items]


def test_a_listing_makes_no_edge():
    reader = Stage(
        name="r", step=ShellStep("true"), inputs=(ListInput("o/**"),), outputs=("x",), fence=WriteScope(("x",))
    )
    plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=(reader, stage("w", writes=("o/a",)))))
    assert plan is not None, problems
    assert plan.edges == ()


@pytest.mark.slow
@given(pipelines(), st.data())
def test_a_selection_is_closed_under_what_it_needs(pipeline, data):
    plan, _ = build_plan(pipeline)
    if plan is None:
        return
    targets = tuple(data.draw(st.lists(st.sampled_from(plan.order), max_size=2)))
    below = tuple(data.draw(st.lists(st.sampled_from(plan.order), max_size=1)))
    only = tuple(data.draw(st.lists(st.sampled_from(plan.order), max_size=1)))
    found = Selection(targets=targets, downstream=below, only=only).nodes(plan)
    if not (targets or below or only):
        assert found == set(plan.nodes)
        return
    after = reachable(plan.downstream, below)
    assert found == reachable(plan.upstream, (*targets, *after)) | set(only)


def reachable(edges: Mapping[str, tuple[str, ...]], start: tuple[str, ...]) -> set[str]:
    found = set(start)
    while True:
        more = {n for name in found for n in edges.get(name, ())} - found
        if not more:
            return found
        found |= more


@st.composite
def editing(draw):
    """Give stages that edit, write and read overlapping files; one of them may be an item of a chain, or in a group."""
    stages = []
    for number in range(draw(st.integers(1, 6))):
        edits = tuple(draw(st.lists(st.sampled_from(("d/", "d/*", "d/e/", "a", "d/a")), max_size=2, unique=True)))
        outputs = () if draw(st.integers(0, 3)) else (("d/b", f"o{number}")[draw(st.integers(0, 1))],)
        reads = tuple(draw(st.lists(st.sampled_from((*PATTERNS, "o0", "o1")), max_size=2)))
        needs = (f"s{draw(st.integers(0, number - 1))}",) if number and draw(st.booleans()) else ()
        link = ChainLink(chain=f"s{number}", index=0) if edits or draw(st.booleans()) else None
        writes = (*outputs, *(one for one in edits if not any(may_overlap(one, path) for path in outputs)))
        one = stage(f"s{number}", reads, writes, edits=writes[len(outputs) :], needs=needs, chain=link)
        stages.append(one)
    return draw(st.permutations(stages))


def wanted_lines(problems) -> dict[str, set[str]]:
    """Return the lines that errors about an order name: stage -> what to need."""
    found: dict[str, set[str]] = {}
    for problem in problems:
        line = re.match(r"write `needs: \[(.*)\]` in `(\w+)`", problem.hint or "")
        if problem.code == "E821" and line:
            found.setdefault(line[2], set()).update(line[1].split(", "))
    return found


@pytest.mark.slow
@given(editing())
def test_stages_that_edit_the_same_files_have_an_order_or_an_error_with_the_line_that_gives_it(stages):
    plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=tuple(stages)))
    if lines := wanted_lines(problems):
        changed = [replace(one, needs=(*{*one.needs, *lines.get(one.name, ())},)) for one in stages]
        after, left = build_plan(Pipeline(name="p", file="p.yaml", stages=tuple(changed)))
        assert not wanted_lines(left)
        assert {one.message for one in left} <= {one.message for one in problems}
        assert after is not None or left
        plan = after
    if plan is None:
        return
    above = {name: reachable(plan.upstream, plan.upstream[name]) for name in plan.order}
    nodes = {name: node for name, node in plan.nodes.items() if isinstance(node, Stage)}
    for one, other in itertools.combinations(nodes.values(), 2):
        shared = any(may_overlap(a, b) for a in one.outputs for b in other.outputs)
        if shared:
            assert one.chain is not None
            assert other.chain is not None
            assert one.chain.chain == other.chain.chain
            first = (one, other)[one.chain.index > other.chain.index].name
            assert first in above[({one.name, other.name} - {first}).pop()]
    for chain, names in plan.chains.items():
        assert [nodes[name].chain for name in names] == [
            ChainLink(chain=chain, index=index) for index in range(len(names))
        ]
    for name, chains in plan.upstream_of_chains.items():
        for chain, count in chains.items():
            before = [one for one in plan.chains[chain] if one in above[name]]
            assert set(before) <= set(plan.chains[chain][:count])
            assert name in above[plan.chains[chain][count]]
