"""The index of writers gives what comparing every pair gives."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from orch23.model.paths import may_overlap
from orch23.model.pipeline import ChainLink, Foreach, ForeachStage, Stage, WriteScope
from orch23.plan.nodes import WriterIndex, WrittenPaths, writes_of
from orch23.steps.shell.spec import ShellStep

PATTERNS = st.sampled_from(
    ("a", "./a", "a/b", "a/", "a/**", "a/*", "a/*.py", "a/b.py", "*", "**", "**/b.py", "b/*/c", "b/x/c", "?", "b/**/c")
)
STEP = ShellStep(("x",))


def nodes_of(writes):
    made: dict[str, Stage | ForeachStage] = {}
    for number, (patterns, kind) in enumerate(writes):
        name = f"s{number}"
        if kind == "foreach":
            how = Foreach(source="list.json")
            made[name] = ForeachStage(name=name, foreach=how, body={}, kind="shell", writes=tuple(patterns))
        else:
            outputs, fence = (
                (tuple(patterns), WriteScope(())) if kind == "outputs" else ((), WriteScope(tuple(patterns)))
            )
            made[name] = Stage(name=name, step=STEP, inputs=(), outputs=outputs, fence=fence)
    return made


NODES = st.lists(
    st.tuples(st.lists(PATTERNS, max_size=3, unique=True), st.sampled_from(("outputs", "fence", "foreach"))), max_size=4
).map(nodes_of)


@given(NODES, PATTERNS)
def test_writers_of_a_pattern_are_the_nodes_with_an_overlapping_pattern(nodes, pattern) -> None:
    expected = sorted(name for name, node in nodes.items() if any(may_overlap(pattern, one) for one in writes_of(node)))
    assert list(WriterIndex(nodes).writers_of(pattern)) == expected


@given(NODES)
def test_two_that_may_write_one_path_are_named_once_with_what_shows_it(nodes) -> None:
    found = list(WriterIndex(nodes).overlaps())
    pairs = [(one, other) for one, other, _ in found]
    assert all(one < other for one, other in pairs)
    assert len(pairs) == len(set(pairs))
    for one, other, path in found:
        assert all(any(may_overlap(path, written) for written in writes_of(nodes[name])) for name in (one, other))
    clashing = {
        pair
        for pair in itertools.combinations(sorted(nodes), 2)
        if any(may_overlap(a, b) for a in writes_of(nodes[pair[0]]) for b in writes_of(nodes[pair[1]]))
    }
    assert set(pairs) <= clashing
    assert {name for pair in pairs for name in pair} == {name for pair in clashing for name in pair}


def test_of_many_with_one_pattern_each_is_paired_with_the_next() -> None:
    nodes = nodes_of([(["a/*"], "outputs")] * 4)
    assert list(WriterIndex(nodes).overlaps()) == [("s0", "s1", "a/*"), ("s1", "s2", "a/*"), ("s2", "s3", "a/*")]
    nodes = nodes_of([(["a"], "outputs")] * 3)
    assert list(WriterIndex(nodes).overlaps()) == [("s0", "s1", "a"), ("s1", "s2", "a")]


def test_on_a_disk_no_character_is_a_wildcard() -> None:
    nodes = nodes_of([(["a", "./b"], "outputs"), (["c/*.py", "d"], "fence"), (["e/**"], "foreach")])
    chained = Stage(name="chained", step=STEP, inputs=(), outputs=("f",), chain=ChainLink(chain="each", index=0))
    written = WrittenPaths({**nodes, "chained": chained})
    assert [path for path in ("a", "c/x.py", "d", "e/x", "f") if path in written.made] == ["a"]
    assert [path for path in ("a", "b", "c/x.py", "c/*.py", "d", "f") if path in written.literal] == [*"abdf"]
    assert [path for path in ("a", "c/x.py", "c/x/y.py", "d", "e/x/y", "g") if written.contains(path)] == [
        *("a", "c/x.py", "d", "e/x/y")
    ]


def test_items_of_a_chain_are_paired_with_others_and_of_their_own_with_the_next_alone() -> None:
    nodes: dict[str, Stage | ForeachStage] = {
        f"c@{number}": Stage(
            name=f"c@{number}",
            step=STEP,
            inputs=(),
            outputs=(f"a/{number}",),
            fence=WriteScope(("a/**", "a/*")),
            chain=ChainLink(chain="c", index=number),
        )
        for number in range(4)
    }
    found = {(one, other) for one, other, _ in WriterIndex(nodes).overlaps()}
    assert found == {(f"c@{number}", f"c@{number + 1}") for number in range(3)}
    both = {**nodes, **nodes_of([(["a/2"], "outputs")])}
    found = {(one, other) for one, other, _ in WriterIndex(both).overlaps()}
    assert {pair for pair in found if "s0" in pair} == {(f"c@{number}", "s0") for number in range(4)}
