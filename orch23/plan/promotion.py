"""Find the stages that keep a promotion group from being promoted at once."""

import itertools
from collections.abc import Mapping

from orch23.model.diagnostic import Diagnostic
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.plan.network import Graph, connect, graph_of, ordered, reason
from orch23.plan.reasons import because

_MOST_NAMES = 4


def between_members(
    pipeline: Pipeline, nodes: Mapping[str, Stage | ForeachStage], graph: Graph, groups: Mapping[str, tuple[str, ...]]
) -> list[Diagnostic]:
    """Return an error for each of these promotion groups that would wait for a stage that waits for the group.

    `graph` has no edges of groups yet. A stage that reads a member waits for all members; if a member waits for that
    stage, neither can ever start. In the graph in which each group is one node, this is a cycle.
    """
    group_of = {name: group for group, names in groups.items() for name in names}
    if not group_of:
        return []
    merged = graph_of(_node(name, group_of) for name in graph)
    for before, after in graph.edges:
        one, other = _node(before, group_of), _node(after, group_of)
        if one != other:
            connect(merged, one, other, "")
    if len(ordered(merged)) == len(merged) or len(ordered(graph)) < len(graph):
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


def _way_back(graph: Graph, groups: Mapping[str, tuple[str, ...]], group: str) -> list[str]:
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
    graph: Graph,
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
            because(pipeline, nodes[a], nodes[b], reason(graph, a, b))
            for a, b in itertools.pairwise(path)
            if graph.has_edge(a, b)
        ),
    )
