"""Compile a plan: compute edges and order, and report cycles and write conflicts.

An edge leads from the stage that may write a path to the stage that reads it; `needs` adds edges too. Edges have ranks
(ADR 5). Edges from a chain, and those of the patterns of an unexpanded foreach, have a lower rank: such an edge is
dropped if edges of higher ranks already put its reader before its producer. The reader then sees the files as they were
before the chain (version 0).

This module is imported only if no stored plan can be used: importing networkx takes a tenth of a second.
"""

import functools
import itertools
import operator
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

import networkx as nx

from orch23.model.diagnostic import Diagnostic, Suggestions, quoted_names
from orch23.model.paths import is_glob, may_overlap
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.model.plan import Edge
from orch23.model.text import join_first
from orch23.plan.diagnostics import unknown_need_error
from orch23.plan.edge_reasons import conflict_error, cycle_error, explain_edge, output_of
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
    """Return the topological order in which nodes that do not depend on each other stay as they were added.

    It is empty if there is a cycle.
    """
    position = {name: number for number, name in enumerate(graph)}
    try:
        return tuple(nx.lexicographical_topological_sort(graph, position.__getitem__))
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
    pipeline: Pipeline, nodes: Mapping[str, Node], graph: StageGraph, groups: Mapping[str, tuple[str, ...]]
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
    """Return the graph in which each group is one node."""
    merged: StageGraph = nx.relabel_nodes(graph, {name: _merged_name(name, group_of) for name in graph})
    merged.remove_edges_from([*nx.selfloop_edges(merged)])
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
        after = sorted(graph.successors(path[-1]))
        back = next((name for name in after if name in members), None)
        if back is not None and len(path) > 1:
            return [*path, back]
        for name in (*after, *mates.get(path[-1], ())):
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []


# The ranks of edges: an edge is dropped where edges of the ranks before its own lead the other way.
_RANKS = _FIRM, _CHAIN_FILE, _CHAIN_PATTERN, _EDITORS = range(4)
_Candidate: TypeAlias = tuple[int, Edge]


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
    candidates = [*((_FIRM, edge) for edge in firm), *_file_edges(nodes, writers)]
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
    edges = tuple(Edge(a, b, edge_reason(graph, a, b)) for a in order for b in sorted(graph[a], key=place.__getitem__))
    # Its cached views refer to it: without this, its nodes and edges would stay in memory for the whole build.
    graph.clear()
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


def _firmness(reader: Node, producer: Node, pattern: str) -> int:
    if isinstance(reader, ForeachStage) and pattern == reader.foreach.source:
        return _FIRM
    if share_edits(reader, producer) and any(may_overlap(pattern, one) for one in edited_by(producer)):
        return _EDITORS
    if isinstance(reader, ForeachStage) or isinstance(producer, ForeachStage):
        return _CHAIN_PATTERN
    if producer.chain is None:
        return _FIRM
    is_open = is_glob(pattern) or (producer.edits and pattern not in producer.literal_outputs)
    return _CHAIN_PATTERN if is_open else _CHAIN_FILE


# A planner often reads files that the stages of its plan write. With edges of one rank, that would be a cycle; with
# ranks, it reads the files as they were before these stages (ADR 5). Stages that edit the same files often read them
# all, so this is the weakest reason for an order.
def _build_graph(nodes: Mapping[str, Node], candidates: list[_Candidate]) -> tuple[StageGraph, list[Edge]]:
    """Return the graph with its edges, added rank by rank, and the edges that are dropped."""
    graph = new_graph(nodes)
    dropped: list[Edge] = []
    for rank in _RANKS:
        edges = [edge for firmness, edge in candidates if firmness == rank]
        if edges and rank != _FIRM:
            # An edge is dropped if its reader is upstream of its producer already.
            goals = {name: 1 << number for number, name in enumerate(dict.fromkeys(edge.producer for edge in edges))}
            reachable = reachable_goals(graph, goals)
            dropped += (edge for edge in edges if reachable[edge.reader] & goals[edge.producer])
            edges = [edge for edge in edges if not reachable[edge.reader] & goals[edge.producer]]
            if rank == _EDITORS:
                # Each reads what the other one edits: only `needs` can give them an order.
                pairs = {(edge.producer, edge.reader) for edge in edges}
                dropped += (edge for edge in edges if (edge.reader, edge.producer) in pairs)
                edges = [edge for edge in edges if (edge.reader, edge.producer) not in pairs]
        for edge in edges:
            add_edge(graph, edge.producer, edge.reader, edge.why)
    return graph, dropped


def _order_after_groups(
    graph: StageGraph, groups: Mapping[str, tuple[str, ...]], named: Collection[str | None]
) -> None:
    for group, items in groups.items():
        why = f"promote: {group}" if group in named else f"promote: together of {group.removesuffix('[*]')}"
        readers = {after for item in items for after in graph.successors(item)}
        for reader in sorted(readers.difference(items)):
            for item in items:
                add_edge(graph, item, reader, why)


def _order_before_chains(graph: StageGraph, chains: Mapping[str, tuple[str, ...]]) -> None:
    # Whether a user edited a chain, and which old versions of its files are needed, is decided once, before its first
    # item. Items may start later than necessary (ADR 5). Of stages that edit files of their own, each may be the first.
    for chain, items in chains.items():
        above = {up for item in items[1:] for up in graph.predecessors(item)}
        if not above:
            continue
        after = with_descendants(graph, {one for item in items for one in graph.successors(item)})
        firsts = [item for item in items if item not in after]
        for up, item in itertools.product(sorted(above - after - {*items}), firsts):
            add_edge(graph, up, item, f"order of {chain}")


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


def made_by(node: Node) -> tuple[str, ...]:
    """Return what a node surely may write without its `edits`: of two that make the same file, one is too many."""
    return () if isinstance(node, ForeachStage) else node.required_outputs if node.edits else writes_of(node)


def edited_by(node: Node) -> tuple[str, ...]:
    """Return the patterns of files that a node may edit."""
    return writes_of(node) if isinstance(node, ForeachStage) and node.edits else node.edits


def share_edits(one: Node, other: Node) -> bool:
    """Return whether two nodes may write the same file, and one of them by its `edits`."""
    both = ((one, other), (other, one))
    return any(may_overlap(a, b) for x, y in both for a in edited_by(x) for b in writes_of(y))


def edit_pairs(nodes: Mapping[str, Node], order: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the pairs of nodes that must have an order, the earlier one first, and a path or pattern of both.

    `order` is topological. If each pair has an order, all stages that share a file have one.
    """
    place = {name: number for number, name in enumerate(order)}
    found = WriterIndex({name: nodes[name] for name in place}).overlaps()
    return [
        (one, other, path) if place[one] < place[other] else (other, one, path)
        for one, other, path in found
        if share_edits(nodes[one], nodes[other])
        and (chain_of(nodes[one]) or one) != chain_of(nodes[other])
        and all(_surely_writes(nodes[name], path) for name in (one, other))
    ]


def _surely_writes(node: Node, path: str) -> bool:
    """Return whether a path is not only one that an item of a list may have."""
    if isinstance(node, Stage):
        return True
    outputs = node.body.get("outputs")
    written = (*node.edits, *(outputs if isinstance(outputs, list | tuple) else ()))
    return any("${{" not in str(one) and may_overlap(str(one), path) for one in written)


def edit_chains(
    nodes: Mapping[str, Node], pairs: Iterable[tuple[str, str, str]], order: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Return the chains that these pairs join: name -> members in order. Each has the name of its first one's chain.

    A foreach that is not expanded is not in a chain: its items will be.
    """
    edited = [pair[:2] for pair in pairs if all(isinstance(nodes[name], Stage) for name in pair[:2])]
    joined: nx.Graph[str] = nx.Graph(edited)
    ends = {*joined}
    for names in chains_of(nodes).values():
        nx.add_path(joined, names)
    place = {name: number for number, name in enumerate(order)}
    found = (sorted(names, key=place.__getitem__) for names in nx.connected_components(joined) if names & ends)
    return {chain_of(nodes[names[0]]) or names[0]: tuple(names) for names in found}


def unordered_error(pipeline: Pipeline, one: Node, other: Node, path: str) -> Diagnostic:
    """Return the error about two nodes that edit the same files in no order, with the line to add."""
    # All lines that are named follow one topological order, so together they make no cycle.
    hint = f"write `order: sequential` in `foreach` of `{family_of(one.name)}`, or edit other files in each item"
    if family_of(one.name) != family_of(other.name):
        hint = _line(pipeline, one, other)
    return conflict_error(pipeline, one, other, path, hint, ", and have no order")


def _line(pipeline: Pipeline, before: Node, after: Node) -> str:
    name, reader = family_of(before.name), family_of(after.name)
    declared = {stage.name: stage for stage in pipeline.stages}
    # Without `[*]`, the items of two foreach with one list wait only for their own twins.
    are_lists = all(isinstance(declared.get(one), ForeachStage) for one in (name, reader))
    need = f'"{name}[*]"' if are_lists else name
    needs = declared[reader].needs if reader in declared else after.needs
    return f"write `needs: [{', '.join((*needs, need))}]` in `{reader}`, which then starts from the files of `{name}`"
