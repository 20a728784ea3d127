"""The stages as a graph of networkx: in order, what leads to what, and its cycles.

It is loaded when a plan is compiled and no stored plan can be used: to import networkx takes a tenth of a second.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

import networkx as nx

Graph: TypeAlias = "nx.DiGraph[str]"
_WHY = "why"


def graph_of(names: Iterable[str]) -> Graph:
    """Return a graph of these names, without edges."""
    graph: Graph = nx.DiGraph()
    graph.add_nodes_from(names)
    return graph


def connect(graph: Graph, before: str, after: str, why: str) -> None:
    """Add an edge with its reason, unless there is one."""
    if not graph.has_edge(before, after):
        graph.add_edge(before, after, **{_WHY: why})


def reason(graph: Graph, before: str, after: str) -> str:
    """Return the reason of an edge."""
    return str(graph.edges[before, after][_WHY])


def ordered(graph: Graph) -> tuple[str, ...]:
    """Return the smallest topological order by name; empty if there is a cycle."""
    try:
        return tuple(nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible:
        return ()


def descendants(graph: Graph, names: Iterable[str]) -> set[str]:
    """Return these names, and all that they lead to."""
    return {name for layer in nx.bfs_layers(graph, set(names)) for name in layer}


def leading_to(graph: Graph, goals: Collection[str]) -> Mapping[str, int]:
    """Return for each name which of the goals it leads to, as the bits of a number: the first goal is bit 0.

    The graph is gone through once, from its end to its beginning, a cycle at a time.
    """
    bits = {goal: 1 << number for number, goal in enumerate(goals)}
    parts = nx.condensation(graph)
    members: dict[int, set[str]] = {part: parts.nodes[part]["members"] for part in parts}
    below: dict[int, int] = {}
    for part in reversed(list(nx.topological_sort(parts))):
        found = 0
        for after in parts.successors(part):
            found |= below[after] | _sum(bits, members[after])
        if len(members[part]) > 1:
            found |= _sum(bits, members[part])
        below[part] = found
    return {name: below[part] for part, names in members.items() for name in names}


def _sum(bits: Mapping[str, int], names: Iterable[str]) -> int:
    found = 0
    for name in names:
        found |= bits.get(name, 0)
    return found


def cycles(graph: Graph) -> Iterator[tuple[tuple[str, str, str], ...]]:
    """Yield one cycle of each part of the graph that has any, as its edges with their reasons."""
    for component in nx.strongly_connected_components(graph):
        if len(component) == 1:
            continue
        # sorted: the order of declaration must not show
        part: Graph = nx.DiGraph(sorted(graph.subgraph(component).edges))
        path = [before for before, _ in nx.find_cycle(part, source=min(component))]
        start = path.index(min(path))
        path = path[start:] + path[:start]
        yield tuple((a, b, reason(graph, a, b)) for a, b in itertools.pairwise([*path, path[0]]))
