"""Compile a plan: compute edges and order, and report cycles and write conflicts.

An edge leads from the stage that may write a path to the stage that reads it; `needs` adds edges too. Edges have ranks
(ADR 5). Edges from a chain, and those of the patterns of an unexpanded foreach, have a lower rank: such an edge is
dropped if edges of higher ranks already put its reader before its producer. The reader then sees the files as they were
before the chain (version 0).

This module is imported only if no stored plan can be used. Only errors and chains of edits need networkx (ADR 18).
"""

import itertools
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from heapq import heappop, heappush
from typing import TypeAlias

from orch23.model.diagnostic import Diagnostic, Suggestions, quoted_names
from orch23.model.paths import is_glob, may_overlap
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.model.plan import Edge
from orch23.model.text import join_first
from orch23.plan.diagnostics import unknown_need_error
from orch23.plan.edge_reasons import conflict_error, cycle_error, explain_edge, output_of
from orch23.plan.edit_chains import edit_chains, edit_pairs, edited_by, made_by, share_edits, unordered_error
from orch23.plan.nodes import (
    CompiledGraph,
    Node,
    PlanNodes,
    WriterIndex,
    chain_of,
    chains_of,
    exclusions_of,
    groups_of,
    may_overlap_unexcluded,
    program_files_of,
    reads_of,
    writes_of,
)

StageGraph: TypeAlias = dict[str, dict[str, str]]
"""For each name the names after it, each with the reason of the edge: the first one that was found."""


def topological_order(graph: StageGraph) -> tuple[str, ...]:
    """Return the topological order in which nodes that do not depend on each other stay as they were added.

    It is empty if there is a cycle.
    """
    names, position = [*graph], {name: number for number, name in enumerate(graph)}
    waits = Counter(after for found in graph.values() for after in found)
    ready, order = [position[name] for name in names if name not in waits], list[str]()
    while ready:
        order.append(names[heappop(ready)])
        for after in graph[order[-1]]:
            waits[after] -= 1
            if not waits[after]:
                heappush(ready, position[after])
    return tuple(order) if len(order) == len(names) else ()


def with_descendants(graph: StageGraph, names: Iterable[str]) -> set[str]:
    """Return these names and their descendants."""
    found, pending = set[str](), [*names]
    while pending:
        if (name := pending.pop()) not in found:
            found.add(name)
            pending += graph[name]
    return found


def reachable_goals(graph: StageGraph, bits: Mapping[str, int]) -> Mapping[str, int]:
    """Return for each name which of the goals it leads to: the sum of their `bits`."""
    # One search for each goal would take the product of goals and edges, so the goals are bits of an int. In the order
    # of the stages, one walk finds all of them; with a cycle, which is an error, it takes some more.
    order, below, before = topological_order(graph) or tuple(graph), dict.fromkeys(graph, 0), dict[str, int]()
    while below != before:
        before = dict(below)
        for name in reversed(order):
            for after in graph[name]:
                below[name] |= below[after] | bits.get(after, 0)
    return below


def find_cycles(graph: StageGraph) -> Iterator[tuple[Edge, ...]]:
    """Yield one cycle of each strongly connected component, as its edges."""
    import networkx as nx  # noqa: PLC0415 - only for errors

    whole: nx.DiGraph[str] = nx.DiGraph({name: [*after] for name, after in graph.items()})
    for component in nx.strongly_connected_components(whole):
        if len(component) == 1:
            continue
        # Sorted, so that the order of declaration does not change the message.
        part: nx.DiGraph[str] = nx.DiGraph(sorted(whole.subgraph(component).edges))
        path = [before for before, _ in nx.find_cycle(part, source=min(component))]
        start = path.index(min(path))
        path = path[start:] + path[:start]
        yield tuple(Edge(a, b, graph[a][b]) for a, b in itertools.pairwise([*path, path[0]]))


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
    if topological_order(merged) or not topological_order(graph):
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
        edges = [(a, b) for a, b in itertools.pairwise(path) if b in graph[a]]
        reasons = tuple(explain_edge(pipeline, nodes[a], nodes[b], graph[a][b]) for a, b in edges)
        place, hint = pipeline.locate("stages", inner[0]), f"{hint}, or remove one of these edges"
        found[groups_on_it] = Diagnostic("E829", message, place, hint, related=reasons)
    return list(found.values())


def _merged_by_group(graph: StageGraph, group_of: Mapping[str, str]) -> StageGraph:
    """Return the graph in which each group is one node."""
    merged: StageGraph = {_merged_name(name, group_of): {} for name in graph}
    for name, after in graph.items():
        before = _merged_name(name, group_of)
        merged[before].update({one: "" for end in after if (one := _merged_name(end, group_of)) != before})
    return merged


def _merged_name(name: str, group_of: Mapping[str, str]) -> str:
    """Return the name of a node, or of its group: that has a space, which no name of a stage has."""
    return f"group {group_of[name]}" if name in group_of else name


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
        after = sorted(graph[path[-1]])
        back = next((name for name in after if name in members), None)
        if back is not None and len(path) > 1:
            return [*path, back]
        for name in (*after, *mates.get(path[-1], ())):
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []


class EdgeFirmness(IntEnum):
    """Rank of an edge: an edge is dropped where edges of the ranks above it lead the other way."""

    FIRM = 0
    CHAIN_FILE = 1
    CHAIN_PATTERN = 2
    EDITORS = 3


_Candidate: TypeAlias = tuple[EdgeFirmness, Edge]


def compile_plan(facts: PlanNodes) -> tuple[CompiledGraph | None, tuple[Diagnostic, ...]]:
    """Return the graph of these nodes, or everything that is wrong with it."""
    pipeline, nodes = facts.pipeline, facts.nodes
    chains, groups = chains_of(nodes), groups_of(pipeline, facts.expansions)
    writers = WriterIndex(nodes)
    need_edges, problems = _need_edges(facts)
    has_edits = any(node.edits for node in nodes.values())
    is_open = has_edits or any(isinstance(node, ForeachStage) for node in nodes.values())
    problems += _write_conflicts(pipeline, nodes, WriterIndex(nodes, made_by) if is_open else writers)
    orders = (Edge(*pair, f"order of {one}") for one, names in chains.items() for pair in itertools.pairwise(names))
    firm = (*need_edges, *orders, *_list_edges(facts, writers))
    candidates = [*((EdgeFirmness.FIRM, edge) for edge in firm), *_file_edges(nodes, writers)]
    graph, dropped = _build_graph(nodes, candidates)
    joined: dict[str, tuple[str, ...]] = {}
    named = {stage.promote for stage in pipeline.stages}
    named_groups = {group: names for group, names in groups.items() if group in named}
    group_cycles = promotion_cycle_errors(pipeline, nodes, graph, named_groups)
    # With the edges of groups, such a cycle would be reported a second time, as a cycle of stages.
    if group_cycles:
        problems += group_cycles
    else:
        _order_after_groups(graph, groups, named)
        if has_edits and topological_order(graph):
            joined, unordered = _join_edits(facts, graph, named_groups)
            problems += unordered
        _order_before_chains(graph, chains | joined)
    order = topological_order(graph)
    if len(order) < len(nodes):
        # Only the first cycle of items.
        cycles = sorted(find_cycles(graph), reverse=True, key=str)
        found = {tuple(family_of(edge.producer) for edge in edges): edges for edges in cycles}
        problems += sorted((cycle_error(pipeline, nodes, one) for one in found.values()), key=lambda d: d.message)
    if problems:
        return None, tuple(dict.fromkeys(problems))
    place = {name: number for number, name in enumerate(order)}
    edges = tuple(Edge(a, b, graph[a][b]) for a in order for b in sorted(graph[a], key=place.__getitem__))
    return CompiledGraph(order, edges, _upstream_of_chains(nodes, joined, dropped), joined), ()


def _upstream_of_chains(
    nodes: Mapping[str, Node], joined: Mapping[str, tuple[str, ...]], dropped: Iterable[Edge]
) -> dict[str, dict[str, int]]:
    """Return the chains, or unexpanded foreach, that a node is upstream of, with the number of members before it."""
    links = {name: (chain, at) for chain, names in joined.items() for at, name in enumerate(names)}
    found: dict[str, dict[str, int]] = {}
    for edge in dropped:
        chain, at = links.get(edge.producer) or (chain_of(nodes[edge.producer]) or edge.producer, 0)
        if chain != links.get(edge.reader, ("",))[0]:
            above = found.setdefault(edge.reader, {})
            above[chain] = min(at, above.get(chain, at))
    return {name: dict(sorted(chains.items())) for name, chains in found.items()}


def _join_edits(
    facts: PlanNodes, graph: StageGraph, groups: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[str, ...]], list[Diagnostic]]:
    """Return the chains of stages that edit the same files, and an error for each two of them without an order."""
    nodes, group_of = facts.nodes, {name: group for group, names in groups.items() for name in names}
    # Members of a group follow each other, so that no line of an error leads out of it and back.
    place = {name: number for number, name in enumerate(topological_order(_merged_by_group(graph, group_of)))}
    order = sorted(topological_order(graph), key=lambda name: place[_merged_name(name, group_of)])
    pairs = edit_pairs(nodes, order)
    goals = {name: 1 << number for number, name in enumerate({other for _, other, _ in pairs})}
    reachable = reachable_goals(graph, goals) if pairs else {}
    errors = [
        unordered_error(facts.pipeline, nodes[one], nodes[other], path)
        for one, other, path in pairs
        if not reachable[one] & goals[other]
    ]
    return edit_chains(nodes, pairs, order), errors


def _list_edges(facts: PlanNodes, writers: WriterIndex) -> Iterator[Edge]:
    for foreach in facts.pipeline.stages:
        source = foreach.foreach.source if isinstance(foreach, ForeachStage) else None
        if source is not None and foreach.name in facts.expansions:
            producers = writers.writers_of(source)
            yield from (Edge(p, item.name, source) for p in producers for item in facts.expansions[foreach.name])


def _need_edges(facts: PlanNodes) -> tuple[list[Edge], list[Diagnostic]]:
    pipeline, nodes = facts.pipeline, facts.nodes
    foreach = {stage.name: stage for stage in pipeline.stages if isinstance(stage, ForeachStage)}
    known = Suggestions({stage.name for stage in pipeline.stages} | set(nodes) | set(facts.skipped))
    edges: list[Edge] = []
    problems: list[Diagnostic] = []
    for name, node in nodes.items():
        for position, need in enumerate(node.needs):
            producers = _needed(facts, node, need, foreach)
            if producers is None:
                problems.append(unknown_need_error(pipeline, node, position, need, known))
            elif name in producers:
                place = pipeline.place_in(node, "needs", position)
                one = name if "@" in need else family_of(name)  # of a foreach, one error for all items
                hint = f"`{one}` needs itself; remove `{need}` from its `needs`"
                problems.append(Diagnostic("E820", f"cycle: {one} -> {one}", place, hint))
            else:
                edges += [Edge(producer, name, f"needs {need}") for producer in producers]
    return edges, problems


def _needed(facts: PlanNodes, node: Node, need: str, foreach: Mapping[str, ForeachStage]) -> tuple[str, ...] | None:
    wanted = need.removesuffix("[*]")
    if wanted in facts.nodes:
        return (wanted,)
    if wanted in facts.skipped or family_of(wanted) in facts.skipped:
        return ()
    if wanted not in facts.expansions:
        return None
    items = tuple(stage.name for stage in facts.expansions[wanted])
    twin = _twin(node, wanted, foreach) if need == wanted else None
    if twin in facts.skipped:
        return ()
    return (twin,) if twin in items else items


def _twin(node: Node, wanted: str, foreach: Mapping[str, ForeachStage]) -> str | None:
    """Return the item of another foreach with the same key, if both foreach have the same list."""
    if not isinstance(node, Stage) or node.item is None or node.family not in foreach:
        return None
    a, b = foreach[node.family].foreach, foreach[wanted].foreach
    same = (a.source, a.pointer, a.values) == (b.source, b.pointer, b.values)
    return f"{wanted}@{node.item.key}" if same else None


def _file_edges(nodes: Mapping[str, Node], writers: WriterIndex) -> Iterator[_Candidate]:
    # Items of a chain often read the same patterns: each pattern is searched once for all of them.
    found: dict[tuple[str, str | None], tuple[str, ...]] = {}
    for name, node in nodes.items():
        exclusions, chain = exclusions_of(node), chain_of(node)
        for pattern in (*reads_of(node), *program_files_of(node)):
            if (pattern, chain) not in found:
                found[pattern, chain] = tuple(
                    one for one in writers.writers_of(pattern) if chain is None or chain_of(nodes[one]) != chain
                )
            for producer in found[pattern, chain]:
                if producer != name and _may_reach(nodes[producer], pattern, exclusions.get(pattern)):
                    yield _firmness(node, nodes[producer], pattern), Edge(producer, name, pattern)


def _may_reach(producer: Node, pattern: str, exclusions: tuple[tuple[str, ...], ...] | None) -> bool:
    return exclusions is None or any(
        may_overlap_unexcluded(pattern, exclude, written) for exclude in exclusions for written in writes_of(producer)
    )


def _firmness(reader: Node, producer: Node, pattern: str) -> EdgeFirmness:
    if isinstance(reader, ForeachStage) and pattern == reader.foreach.source:
        return EdgeFirmness.FIRM
    if share_edits(reader, producer) and any(may_overlap(pattern, one) for one in edited_by(producer)):
        return EdgeFirmness.EDITORS
    if isinstance(reader, ForeachStage) or isinstance(producer, ForeachStage):
        return EdgeFirmness.CHAIN_PATTERN
    if producer.chain is None:
        return EdgeFirmness.FIRM
    is_open = is_glob(pattern) or (producer.edits and pattern not in producer.literal_outputs)
    return EdgeFirmness.CHAIN_PATTERN if is_open else EdgeFirmness.CHAIN_FILE


# A planner often reads files that the stages of its plan write. With edges of one rank, that would be a cycle; with
# ranks, it reads the files as they were before these stages (ADR 5). Stages that edit the same files often read them
# all, so this is the weakest reason for an order.
def _build_graph(nodes: Mapping[str, Node], candidates: list[_Candidate]) -> tuple[StageGraph, list[Edge]]:
    """Return the graph with its edges, added rank by rank, and the edges that are dropped."""
    graph: StageGraph = {name: {} for name in nodes}
    dropped: list[Edge] = []
    for rank in EdgeFirmness:
        edges = [edge for firmness, edge in candidates if firmness is rank]
        if edges and rank is not EdgeFirmness.FIRM:
            # An edge is dropped if its reader is upstream of its producer already.
            goals = {name: 1 << number for number, name in enumerate(dict.fromkeys(edge.producer for edge in edges))}
            reachable = reachable_goals(graph, goals)
            dropped += (edge for edge in edges if reachable[edge.reader] & goals[edge.producer])
            edges = [edge for edge in edges if not reachable[edge.reader] & goals[edge.producer]]
            if rank is EdgeFirmness.EDITORS:
                # Each reads what the other one edits: only `needs` can give them an order.
                pairs = {(edge.producer, edge.reader) for edge in edges}
                dropped += (edge for edge in edges if (edge.reader, edge.producer) in pairs)
                edges = [edge for edge in edges if (edge.reader, edge.producer) not in pairs]
        for edge in edges:
            graph[edge.producer].setdefault(edge.reader, edge.why)
    return graph, dropped


def _order_after_groups(
    graph: StageGraph, groups: Mapping[str, tuple[str, ...]], named: Collection[str | None]
) -> None:
    for group, items in groups.items():
        why = f"promote: {group}" if group in named else f"promote: together of {group.removesuffix('[*]')}"
        readers = {after for item in items for after in graph[item]}
        for reader in sorted(readers.difference(items)):
            for item in items:
                graph[item].setdefault(reader, why)


def _order_before_chains(graph: StageGraph, chains: Mapping[str, tuple[str, ...]]) -> None:
    # Whether a user edited a chain, and which old versions of its files are needed, is decided once, before its first
    # item. Items may start later than necessary (ADR 5). Of stages that edit files of their own, each may be the first.
    before: dict[str, set[str]] = {}
    for up, item in ((up, item) for up, after in graph.items() for item in after if chains):
        before.setdefault(item, set()).add(up)
    for chain, items in chains.items():
        above = {up for item in items[1:] for up in before.get(item, ())}
        if not above:
            continue
        after = with_descendants(graph, {one for item in items for one in graph[item]})
        firsts = [item for item in items if item not in after]
        for up, item in itertools.product(sorted(above - after - {*items}), firsts):
            graph[up].setdefault(item, f"order of {chain}")


def _write_conflicts(pipeline: Pipeline, nodes: Mapping[str, Node], writers: WriterIndex) -> list[Diagnostic]:
    found = [one for one in writers.overlaps() if (chain_of(nodes[one[0]]) or one[0]) != chain_of(nodes[one[1]])]
    # The later one is reported: the stages above it were there before.
    number = {stage.name: number for number, stage in enumerate(pipeline.stages)}
    pairs = [(*sorted((a, b), key=lambda name: number.get(family_of(name), 0)), path) for a, b, path in found]
    ends = ((nodes[one], nodes[other], path) for one, other, path in pairs)
    return [conflict_error(pipeline, *end, _ways_out(pipeline, *end)) for end in ends]


def _ways_out(pipeline: Pipeline, one: Node, other: Node, path: str) -> str:
    items = "make both items of one `foreach` with `order: sequential`"
    if isinstance(other, Stage) and other.item is not None and family_of(one.name) == family_of(other.name):
        folder, _, name = path.rpartition("/")
        new = f"{folder}/" * bool(folder) + f"${{{{ {other.item.name} }}}}-{name}"
        return f"write the item into the name, as in `{new}`, also where the step writes it; or `order: sequential`"
    chain = f", or {items}" if "@" in one.name or "@" in other.name else ""
    if any(path not in getattr(node, "outputs", ()) for node in (one, other)):
        for node in (other, one):
            wide = output_of(pipeline, node, path)
            if wide is not None and isinstance(node, Stage) and wide not in node.outputs:
                return f"narrow `{wide}` in `allowed_paths.write` of `{node.name}`{chain}"
            if wide is not None and (wide.endswith("/") or is_glob(wide)):
                return f"name the files that `{node.name}` writes instead of `{wide}`{chain}"
        return f"name other files in one of them{chain}"
    folder, _, name = path.rpartition("/")
    new = "/".join(filter(None, (folder, f"{other.name}.{name.rpartition('.')[2]}" if "." in name else "")))
    example = f", such as `{new}`" if "." in name and "@" not in other.name and new != path else ""
    change = (
        f"; if `{other.name}` changes the file that `{one.name}` makes, also give `{other.name}` `inputs: [{path}]`"
    )
    return f"give `{other.name}` another output{example}{change}{chain}"
