"""The stages as a networkx graph: order, reachability, cycles through promotion groups.

It is imported only if no stored plan can be used, because importing networkx takes a tenth of a second.
"""

import functools
import itertools
import operator
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import networkx as nx

from orch23.model.diagnostic import Diagnostic, quoted_names
from orch23.model.pipeline import Pipeline, family_of
from orch23.model.plan import Edge
from orch23.model.text import join_first
from orch23.plan.edge_reasons import explain_edge
from orch23.plan.nodes import Node

StageGraph: TypeAlias = "nx.DiGraph[str]"
_WHY = "why"


def new_graph(names: Iterable[str]) -> StageGraph:
    """Return a graph of these names, without edges."""
    graph: StageGraph = nx.DiGraph()
    graph.add_nodes_from(names)
    return graph


def add_edge(graph: StageGraph, before: str, after: str, why: str) -> None:
    """Add an edge with its reason, unless there is an edge already: the first reason stays."""
    if not graph.has_edge(before, after):
        graph.add_edge(before, after, **{_WHY: why})


def edge_reason(graph: StageGraph, before: str, after: str) -> str:
    """Return the reason of an edge."""
    return str(graph.edges[before, after][_WHY])


def topological_order(graph: StageGraph) -> tuple[str, ...]:
    """Return the topological order that is smallest by name; empty if there is a cycle."""
    try:
        return tuple(nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible:
        return ()


def with_descendants(graph: StageGraph, names: Iterable[str]) -> set[str]:
    """Return these names and their descendants."""
    return {name for layer in nx.bfs_layers(graph, set(names)) for name in layer}


def reachable_goals(graph: StageGraph, bits: Mapping[str, int]) -> Mapping[str, int]:
    """Return for each name which of the goals it leads to: the sum of their `bits`."""
    # One search for each goal would take the product of goals and edges. One walk over the components, with the goals
    # as bits of an int, finds all of them.
    components = nx.condensation(graph)
    members: dict[int, set[str]] = {one: components.nodes[one]["members"] for one in components}
    own = {one: functools.reduce(operator.or_, (bits.get(name, 0) for name in names)) for one, names in members.items()}
    below: dict[int, int] = {}
    for one in reversed(list(nx.topological_sort(components))):
        below[one] = own[one] if len(members[one]) > 1 else 0  # in a cycle, a stage leads to itself
        for after in components.successors(one):
            below[one] |= below[after] | own[after]
    return {name: below[one] for one, names in members.items() for name in names}


def find_cycles(graph: StageGraph) -> Iterator[tuple[Edge, ...]]:
    """Yield one cycle of each strongly connected component, as its edges."""
    for component in nx.strongly_connected_components(graph):
        if len(component) == 1:
            continue
        # Sorted, so that the order of declaration does not change the message.
        subgraph: StageGraph = nx.DiGraph(sorted(graph.subgraph(component).edges))
        path = [before for before, _ in nx.find_cycle(subgraph, source=min(component))]
        start = path.index(min(path))
        path = path[start:] + path[:start]
        yield tuple(Edge(a, b, edge_reason(graph, a, b)) for a, b in itertools.pairwise([*path, path[0]]))


_MAX_NAMES = 4


def promotion_cycle_errors(
    pipeline: Pipeline,
    nodes: Mapping[str, Node],
    graph: StageGraph,
    groups: Mapping[str, tuple[str, ...]],
) -> list[Diagnostic]:
    """Return an error for each of these promotion groups that would wait for a stage that waits for the group.

    `graph` has no edges of groups yet. A stage that reads a member waits for all members; if a member waits for that
    stage, neither can ever start. In the graph in which each group is one node, this is a cycle.
    """
    if not groups:
        return []
    group_of = {name: group for group, names in groups.items() for name in names}
    merged = _merged_by_group(graph, group_of)
    if nx.is_directed_acyclic_graph(merged) or not nx.is_directed_acyclic_graph(graph):
        return []  # a cycle of `graph` itself has its own error
    found: dict[frozenset[str], Diagnostic] = {}
    for group in sorted(groups):
        path = _way_back(graph, groups, group)
        groups_on_it = frozenset({group, *(group_of[name] for name in path if name in group_of)})
        if not path or groups_on_it in found:
            continue
        first, *inner, last = path
        hint, also = f"write `promote: {group}` at {quoted_names(dict.fromkeys(map(family_of, inner)))} too", ""
        if others := sorted({group_of[name] for name in inner if name in group_of}):
            hint, also = "give the stages of these groups one name", f" of group {quoted_names(others)}"
        names = join_first([f"`{name}`" for name in inner], _MAX_NAMES, " and ")
        verb = "comes" if len(inner) == 1 else "come"
        message = f"group `{group}` cannot be promoted at once: {names}{also} {verb} between `{first}` and `{last}`"
        edges = [(a, b) for a, b in itertools.pairwise(path) if graph.has_edge(a, b)]
        reasons = tuple(explain_edge(pipeline, nodes[a], nodes[b], edge_reason(graph, a, b)) for a, b in edges)
        place, hint = pipeline.locate("stages", inner[0]), f"{hint}, or remove one of these edges"
        found[groups_on_it] = Diagnostic("E829", message, place, hint, related=reasons)
    return list(found.values())


def _merged_by_group(graph: StageGraph, group_of: Mapping[str, str]) -> StageGraph:
    """Return the graph in which each group is one node. Its name has a space, which no name of a stage has."""
    merged: StageGraph = nx.DiGraph()
    for edge in graph.edges:
        before, after = (f"group {group_of[name]}" if name in group_of else name for name in edge)
        if before != after:
            merged.add_edge(before, after)
    return merged


def _way_back(graph: StageGraph, groups: Mapping[str, tuple[str, ...]], group: str) -> list[str]:
    """Return the shortest path from a member over stages outside of the group to a member; empty if there is none.

    On the path, one member of another group leads to all members of that group.
    """
    members = set(groups[group])
    mates = {name: names for one, names in groups.items() if one != group for name in names}
    seen = set(members)
    paths = deque([name] for name in sorted(members))
    while paths:
        path = paths.popleft()
        after = sorted(graph.successors(path[-1]))
        back = next((name for name in after if name in members), None)
        if back is not None and len(path) > 1:
            return [*path, back]
        for name in (*after, *mates.get(path[-1], ())):
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []
