"""The stages as a networkx graph: order, reachability, cycles through promotion groups.

It is loaded when a plan is compiled and no stored plan can be used: to import networkx takes a tenth of a second.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

import networkx as nx

from orch23.model.diagnostic import Diagnostic
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.plan.diagnostics import explain_edge

StageGraph: TypeAlias = "nx.DiGraph[str]"
_WHY = "why"


def new_graph(names: Iterable[str]) -> StageGraph:
    """Return a graph of these names, without edges."""
    graph: StageGraph = nx.DiGraph()
    graph.add_nodes_from(names)
    return graph


def add_edge(graph: StageGraph, before: str, after: str, why: str) -> None:
    """Add an edge with its reason, unless there is one."""
    if not graph.has_edge(before, after):
        graph.add_edge(before, after, **{_WHY: why})


def edge_reason(graph: StageGraph, before: str, after: str) -> str:
    """Return the reason of an edge."""
    return str(graph.edges[before, after][_WHY])


def topological_order(graph: StageGraph) -> tuple[str, ...]:
    """Return the smallest topological order by name; empty if there is a cycle."""
    try:
        return tuple(nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible:
        return ()


def with_descendants(graph: StageGraph, names: Iterable[str]) -> set[str]:
    """Return these names, and all that they lead to."""
    return {name for layer in nx.bfs_layers(graph, set(names)) for name in layer}


def reachable_goals(graph: StageGraph, goals: Collection[str]) -> Mapping[str, int]:
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


def find_cycles(graph: StageGraph) -> Iterator[tuple[tuple[str, str, str], ...]]:
    """Yield one cycle of each part of the graph that has any, as its edges with their reasons."""
    for component in nx.strongly_connected_components(graph):
        if len(component) == 1:
            continue
        # sorted: the order of declaration must not show
        part: StageGraph = nx.DiGraph(sorted(graph.subgraph(component).edges))
        path = [before for before, _ in nx.find_cycle(part, source=min(component))]
        start = path.index(min(path))
        path = path[start:] + path[:start]
        yield tuple((a, b, edge_reason(graph, a, b)) for a, b in itertools.pairwise([*path, path[0]]))


_MOST_NAMES = 4


def promotion_cycle_errors(
    pipeline: Pipeline,
    nodes: Mapping[str, Stage | ForeachStage],
    graph: StageGraph,
    groups: Mapping[str, tuple[str, ...]],
) -> list[Diagnostic]:
    """Return an error for each of these promotion groups that would wait for a stage that waits for the group.

    `graph` has no edges of groups yet. A stage that reads a member waits for all members; if a member waits for that
    stage, neither can ever start. In the graph in which each group is one node, this is a cycle.
    """
    group_of = {name: group for group, names in groups.items() for name in names}
    if not group_of:
        return []
    merged = new_graph(_node(name, group_of) for name in graph)
    for before, after in graph.edges:
        one, other = _node(before, group_of), _node(after, group_of)
        if one != other:
            add_edge(merged, one, other, "")
    if len(topological_order(merged)) == len(merged) or len(topological_order(graph)) < len(graph):
        return []  # no cycle, or one that has nothing to do with groups and is reported as such
    found: dict[frozenset[str], Diagnostic] = {}
    for group in sorted(groups):
        path = _way_back(graph, groups, group)
        if path:
            groups_on_it = frozenset({group, *(group_of[name] for name in path if name in group_of)})
            found.setdefault(groups_on_it, _refusal(pipeline, nodes, graph, group, path, group_of))
    return list(found.values())


def _node(name: str, group_of: Mapping[str, str]) -> str:
    """Return the node of the merged graph that a stage is part of. No stage has a space in its name."""
    return f"group {group_of[name]}" if name in group_of else name


def _way_back(graph: StageGraph, groups: Mapping[str, tuple[str, ...]], group: str) -> list[str]:
    """Return the shortest way from a member over stages outside of the group to a member; empty if there is none.

    On the way, from one member of another group every member of that group is reached.
    """
    members = set(groups[group])
    others = {name: names for one, names in groups.items() if one != group for name in names}
    came_from: dict[str, str | None] = dict.fromkeys(sorted(members))
    todo = list(came_from)
    while todo:
        following: list[str] = []
        for name in todo:
            for after in sorted(graph.successors(name)):
                if after in members:
                    if name not in members:
                        return _walked(came_from, name, after)
                    continue
                if after not in came_from:
                    came_from[after] = name
                    following.append(after)
            for mate in others.get(name, ()):
                if mate not in came_from:
                    came_from[mate] = name
                    following.append(mate)
        todo = following
    return []


def _walked(came_from: Mapping[str, str | None], last: str, member: str) -> list[str]:
    path, name = [member], last
    while True:
        path.append(name)
        before = came_from[name]
        if before is None:
            return path[::-1]
        name = before


def _refusal(
    pipeline: Pipeline,
    nodes: Mapping[str, Stage | ForeachStage],
    graph: StageGraph,
    group: str,
    path: list[str],
    group_of: Mapping[str, str],
) -> Diagnostic:
    first, *inner, last = path
    other_groups = sorted({group_of[name] for name in inner if name in group_of})
    names = " and ".join(f"`{name}`" for name in inner[:_MOST_NAMES])
    more = f" and {len(inner) - _MOST_NAMES} more" if len(inner) > _MOST_NAMES else ""
    verb = "comes" if len(inner) == 1 else "come"
    also = f" of group {', '.join(f'`{one}`' for one in other_groups)}" if other_groups else ""
    outside = ", ".join(f"`{name}`" for name in dict.fromkeys(name.partition("@")[0] for name in inner))
    way_out = (
        "give the stages of these groups one name" if other_groups else f"write `promote: {group}` at {outside} too"
    )
    return Diagnostic(
        "E829",
        f"group `{group}` cannot be promoted at once: {names}{more}{also} {verb} between `{first}` and `{last}`",
        pipeline.locate("stages", inner[0]),
        f"{way_out}, or remove one of these edges",
        related=tuple(
            explain_edge(pipeline, nodes[a], nodes[b], edge_reason(graph, a, b))
            for a, b in itertools.pairwise(path)
            if graph.has_edge(a, b)
        ),
    )
