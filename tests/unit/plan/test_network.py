"""The order of a network is the library's, and only what is in a cycle, or after one, is not in it."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from orch23.plan.network import Network

NAMES = "abcdefgh"
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20)


def made(pairs: list[tuple[str, str]]) -> tuple[Network, "nx.DiGraph[str]"]:
    network = Network(NAMES)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(NAMES)
    for before, after in pairs:
        network.add(before, after, f"{before}{after}")
        graph.add_edge(before, after)
    return network, graph


@given(PAIRS)
def test_an_order_is_the_smallest_by_name(pairs: list[tuple[str, str]]) -> None:
    network, graph = made([(a, b) for a, b in pairs if a != b])
    if nx.is_directed_acyclic_graph(graph):
        assert network.order() == tuple(nx.lexicographical_topological_sort(graph))
    else:
        stuck = {one for part in nx.strongly_connected_components(graph) if len(part) > 1 for one in part}
        stuck |= {after for one in stuck for after in nx.descendants(graph, one)}
        assert set(network.order()) == set(NAMES) - stuck


@given(PAIRS)
def test_who_comes_after_and_before_is_what_was_added(pairs: list[tuple[str, str]]) -> None:
    network, graph = made([(a, b) for a, b in pairs if a != b])
    for name in NAMES:
        assert set(network.after(name)) == set(graph.successors(name))
        assert sorted(network.before(name)) == sorted(graph.predecessors(name))
        assert network.descendants(name) - {name} == nx.descendants(graph, name)


def test_the_first_reason_of_an_edge_stays() -> None:
    network = Network("ab")
    network.add("a", "b", "first")
    network.add("a", "b", "second")
    assert network.edges["a"] == {"b": "first"}
    assert list(network.before("b")) == ["a"]
