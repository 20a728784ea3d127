"""The order of a graph, what leads to what, and the reasons of edges."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from orch23.plan.compile import (
    StageGraph,
    add_edge,
    edge_reason,
    find_cycles,
    new_graph,
    reachable_goals,
    topological_order,
    with_descendants,
)

NAMES = "hbfadgce"
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20)


def made(pairs: list[tuple[str, str]]) -> StageGraph:
    graph = new_graph(NAMES)
    for before, after in pairs:
        if before != after:
            add_edge(graph, before, after, f"{before}{after}")
    return graph


@given(PAIRS)
def test_an_order_keeps_the_order_of_the_nodes_and_there_is_none_with_a_cycle(pairs: list[tuple[str, str]]) -> None:
    graph = made(pairs)
    waiting = {name: set(graph.predecessors(name)) for name in NAMES}
    wanted: list[str] = []
    while ready := [name for name, before in waiting.items() if not before - set(wanted) and name not in wanted]:
        wanted.append(ready[0])
    assert topological_order(graph) == (tuple(wanted) if len(wanted) == len(NAMES) else ())


@given(PAIRS, st.lists(st.sampled_from(NAMES), unique=True))
def test_what_leads_to_a_goal_is_found_also_in_cycles(pairs: list[tuple[str, str]], goals: list[str]) -> None:
    graph = made(pairs)
    leads = reachable_goals(graph, {goal: 1 << number for number, goal in enumerate(goals)})
    for name in NAMES:
        found = {goal for number, goal in enumerate(goals) if leads[name] >> number & 1}
        after = {one for up in graph.successors(name) for one in (up, *nx.descendants(graph, up))}
        assert found == after & set(goals)
        assert with_descendants(graph, [name]) == {name} | nx.descendants(graph, name)


@given(PAIRS)
def test_each_part_with_a_cycle_has_one_named_by_its_edges(pairs: list[tuple[str, str]]) -> None:
    graph = made(pairs)
    parts = [part for part in nx.strongly_connected_components(graph) if len(part) > 1]
    found = list(find_cycles(graph))
    assert len(found) == len(parts)
    for edges in found:
        assert all(graph.has_edge(one.producer, one.reader) for one in edges)
        assert all(one.why == f"{one.producer}{one.reader}" for one in edges)
        assert [one.reader for one in edges] == [one.producer for one in (*edges[1:], edges[0])]


def test_the_first_reason_of_an_edge_stays() -> None:
    graph = new_graph("ab")
    add_edge(graph, "a", "b", "first")
    add_edge(graph, "a", "b", "second")
    assert edge_reason(graph, "a", "b") == "first"
