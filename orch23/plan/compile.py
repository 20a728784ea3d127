"""Compile a plan: compute edges and order, and report cycles and write conflicts.

Edges come from outputs and write scopes against inputs, and from `needs`. An edge out of a chain, or one that rests on
a pattern that an unexpanded foreach may turn out to have, yields where its reader is upstream of its producer by firmer
edges: such a reader sees the chain's files as they were before it (version 0).
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Related
from orch23.model.paths import is_glob
from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage
from orch23.model.plan import Edge, Plan
from orch23.plan.diagnostics import explain_edge, unbounded_output, unknown_stage_error
from orch23.plan.nodes import (
    Node,
    WriterIndex,
    chains_of,
    exclusions_of,
    groups_of,
    may_overlap_unexcluded,
    reads_of,
    writes_of,
)
from orch23.plan.stage_graph import (
    StageGraph,
    add_edge,
    edge_reason,
    find_cycles,
    new_graph,
    promotion_cycle_errors,
    reachable_goals,
    topological_order,
    with_descendants,
)


class EdgeFirmness(IntEnum):
    """How firmly an edge stands: those of a lower rank yield to those above."""

    FIRM = 0
    CHAIN_FILE = 1
    CHAIN_PATTERN = 2


class _Candidate(Struct, frozen=True):
    edge: Edge
    firmness: EdgeFirmness


def compile_plan(
    pipeline: Pipeline,
    nodes: Mapping[str, Node],
    expansions: Mapping[str, tuple[Stage, ...]],
    skipped: Mapping[str, SkippedStage],
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan of a pipeline with these nodes, or everything that is wrong with it.

    `expansions` are the items of each foreach that is expanded, `skipped` the stages and items that are switched off.
    """
    chains = chains_of(nodes)
    need_edges, problems = _need_edges(pipeline, nodes, expansions, skipped)
    writers = WriterIndex(nodes)
    problems += _two_owners(pipeline, nodes, writers)
    candidates = [_Candidate(edge, EdgeFirmness.FIRM) for edge in need_edges]
    candidates += [_Candidate(edge, EdgeFirmness.FIRM) for edge in _chain_edges(chains)]
    candidates += [_Candidate(edge, EdgeFirmness.FIRM) for edge in _list_edges(pipeline, expansions, writers)]
    candidates += list(_file_edges(nodes, writers))
    groups = groups_of(pipeline, expansions)
    graph, dropped = _settle(nodes, candidates)
    named = {stage.promote for stage in pipeline.stages}
    between = promotion_cycle_errors(
        pipeline, nodes, graph, {group: names for group, names in groups.items() if group in named}
    )
    problems += between
    if not between:
        _wait_for_all(graph, groups, frozenset(named))
        _gather_before_chains(graph, chains)
    order = topological_order(graph)
    if len(order) < len(nodes):
        problems += _cycles(pipeline, nodes, graph)
    if problems:
        return None, tuple(problems)
    return (
        Plan(
            pipeline=pipeline,
            nodes=nodes,
            order=order,
            upstream={name: tuple(sorted(graph.predecessors(name))) for name in order},
            downstream={name: tuple(sorted(graph.successors(name))) for name in order},
            edges=tuple(
                Edge(a, b, edge_reason(graph, a, b)) for a in sorted(nodes) for b in sorted(graph.successors(a))
            ),
            expansions=expansions,
            chains=chains,
            upstream_of_chains=_above(nodes, dropped),
            groups=groups,
            skipped=skipped,
        ),
        (),
    )


def _chain_edges(chains: Mapping[str, tuple[str, ...]]) -> Iterator[Edge]:
    for chain, names in chains.items():
        for before, after in itertools.pairwise(names):
            yield Edge(before, after, f"order of {chain}")


def _list_edges(
    pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]], writers: WriterIndex
) -> Iterator[Edge]:
    """Let items come after whoever makes the list that they were expanded from."""
    for foreach in pipeline.stages:
        source = foreach.foreach.source if isinstance(foreach, ForeachStage) else None
        if source is not None and foreach.name in expansions:
            producers = writers.writers_of(source)
            yield from (Edge(p, item.name, source) for p in producers for item in expansions[foreach.name])


# ---- needs ------------------------------------------------------------------------------------


def _need_edges(
    pipeline: Pipeline,
    nodes: Mapping[str, Node],
    expansions: Mapping[str, tuple[Stage, ...]],
    skipped: Mapping[str, SkippedStage],
) -> tuple[list[Edge], list[Diagnostic]]:
    foreach = {stage.name: stage for stage in pipeline.stages if isinstance(stage, ForeachStage)}
    known = sorted({stage.name for stage in pipeline.stages} | set(nodes) | set(skipped))
    edges: list[Edge] = []
    problems: list[Diagnostic] = []
    for name, node in nodes.items():
        for position, need in enumerate(node.needs):
            producers = _needed(node, need, nodes, foreach, expansions, skipped)
            if producers is None:
                problems.append(unknown_stage_error(pipeline, name, position, need, known))
            elif name in producers:
                problems.append(_needs_itself(pipeline, name, position, need))
            else:
                edges += [Edge(producer, name, f"needs {need}") for producer in producers]
    return edges, problems


def _needs_itself(pipeline: Pipeline, name: str, position: int, need: str) -> Diagnostic:
    return Diagnostic(
        "E820",
        f"cycle: {name} -> {name}",
        pipeline.locate("stages", name, "needs", position),
        f"`{name}` needs itself; remove `{need}` from what it needs",
    )


def _needed(
    node: Node,
    need: str,
    nodes: Mapping[str, Node],
    foreach: Mapping[str, ForeachStage],
    expansions: Mapping[str, tuple[Stage, ...]],
    skipped: Mapping[str, SkippedStage],
) -> tuple[str, ...] | None:
    """Return the nodes that one entry of `needs` means, or None where there is no such stage."""
    wanted = need.removesuffix("[*]")
    if wanted in nodes:
        return (wanted,)
    if wanted in skipped or wanted.partition("@")[0] in skipped:
        return ()
    if wanted not in expansions:
        return None
    items = tuple(stage.name for stage in expansions[wanted])
    family = foreach.get(node.name.partition("@")[0])
    if isinstance(node, Stage) and node.item and family and need == wanted and _same_list(family, foreach[wanted]):
        twin = f"{wanted}@{node.item.key}"
        if twin in skipped:
            return ()
        return (twin,) if twin in items else items
    return items


def _same_list(one: ForeachStage, other: ForeachStage) -> bool:
    a, b = one.foreach, other.foreach
    return (a.source, a.pointer, a.values) == (b.source, b.pointer, b.values)


# ---- files ------------------------------------------------------------------------------------


def _file_edges(nodes: Mapping[str, Node], writers: WriterIndex) -> Iterator[_Candidate]:
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for name, node in nodes.items():
        limited = exclusions_of(node)
        own = node.chain.chain if isinstance(node, Stage) and node.chain is not None else ""
        for pattern in reads_of(node):
            if (pattern, own) not in found:  # the items of a chain often read the same
                meeting = writers.writers_of(pattern)
                found[pattern, own] = tuple(one for one in meeting if not _one_chain(node, nodes[one]))
            for producer in found[pattern, own]:
                if producer == name:
                    continue
                if pattern in limited and not any(
                    may_overlap_unexcluded(pattern, exclude, written)
                    for exclude in limited[pattern]
                    for written in writes_of(nodes[producer])
                ):
                    continue
                firmness = _firmness(node, nodes[producer], pattern)
                yield _Candidate(Edge(producer, name, pattern), firmness)


def _firmness(reader: Node, producer: Node, pattern: str) -> EdgeFirmness:
    if isinstance(reader, ForeachStage):
        source = reader.foreach.source
        return EdgeFirmness.FIRM if pattern == source else EdgeFirmness.CHAIN_PATTERN
    if isinstance(producer, ForeachStage):
        return EdgeFirmness.CHAIN_PATTERN
    if producer.chain is None:
        return EdgeFirmness.FIRM
    return EdgeFirmness.CHAIN_PATTERN if is_glob(pattern) else EdgeFirmness.CHAIN_FILE


def _one_chain(one: Node, other: Node) -> bool:
    if isinstance(one, ForeachStage) or isinstance(other, ForeachStage):
        return False
    return one.chain is not None and other.chain is not None and one.chain.chain == other.chain.chain


def _settle(nodes: Mapping[str, Node], candidates: list[_Candidate]) -> tuple[StageGraph, list[Edge]]:
    """Add the edges rank by rank; a yielding one is dropped where the ranks above it lead from reader to producer."""
    graph = new_graph(nodes)
    dropped: list[Edge] = []
    for rank in EdgeFirmness:
        edges = [one.edge for one in candidates if one.firmness is rank]
        if rank is not EdgeFirmness.FIRM and edges:
            producers = {name: number for number, name in enumerate(dict.fromkeys(edge.producer for edge in edges))}
            leads = reachable_goals(graph, producers)
            yields = [bool(leads[edge.reader] >> producers[edge.producer] & 1) for edge in edges]
            dropped += [edge for edge, is_dropped in zip(edges, yields, strict=True) if is_dropped]
            edges = [edge for edge, is_dropped in zip(edges, yields, strict=True) if not is_dropped]
        for edge in edges:
            add_edge(graph, edge.producer, edge.reader, edge.why)
    return graph, dropped


def _wait_for_all(graph: StageGraph, groups: Mapping[str, tuple[str, ...]], named: Collection[str | None]) -> None:
    """Let a stage that comes after one member of a promotion group come after all of them."""
    for group, items in groups.items():
        why = f"promote: {group}" if group in named else f"promote: together of {group.removesuffix('[*]')}"
        inside = set(items)
        for reader in sorted({after for item in items for after in graph.successors(item)} - inside):
            for item in items:
                add_edge(graph, item, reader, why)


def _gather_before_chains(graph: StageGraph, chains: Mapping[str, tuple[str, ...]]) -> None:
    """Let all that a chain's items wait for come before its first item, so that the chain can be looked at as one."""
    for chain, items in chains.items():
        if len(items) == 1:
            continue
        after = with_descendants(graph, items)
        outside = {up for item in items[1:] for up in graph.predecessors(item)} - after
        for up in sorted(outside):
            add_edge(graph, up, items[0], f"order of {chain}")


def _above(nodes: Mapping[str, Node], dropped: Iterable[Edge]) -> dict[str, frozenset[str]]:
    above: dict[str, set[str]] = {}
    for edge in dropped:
        producer = nodes[edge.producer]
        chain = producer.chain.chain if isinstance(producer, Stage) and producer.chain else producer.name
        above.setdefault(edge.reader, set()).add(chain)
    return {name: frozenset(chains) for name, chains in above.items()}


# ---- complaints -------------------------------------------------------------------------------


def _two_owners(pipeline: Pipeline, nodes: Mapping[str, Node], writers: WriterIndex) -> list[Diagnostic]:
    problems = []
    for one, other, path in writers.overlaps():
        a, b = nodes[one], nodes[other]
        if _one_chain(a, b) or isinstance(a, ForeachStage) or isinstance(b, ForeachStage):
            continue
        problems.append(
            Diagnostic(
                "E821",
                f"stages `{one}` and `{other}` may both write `{path}`",
                pipeline.locate("stages", other, "outputs"),
                "narrow the outputs or allowed_paths.write of one, or make them one sequential foreach",
                related=(Related(f"`{one}` writes here", pipeline.locate("stages", one, "outputs")),),
            )
        )
    return problems


def _cycles(pipeline: Pipeline, nodes: Mapping[str, Node], graph: StageGraph) -> list[Diagnostic]:
    """Name a cycle in each part of the graph that has one, with its edges."""
    problems = []
    for edges in find_cycles(graph):
        steps = [(nodes[a], nodes[b], why) for a, b, why in edges]
        path = [a for a, _, _ in edges]
        problems.append(
            Diagnostic(
                "E820",
                "cycle: " + " -> ".join([*path, path[0]]),
                pipeline.locate("stages", path[0]),
                _way_out_of_cycle(pipeline, steps),
                related=tuple(explain_edge(pipeline, *step) for step in steps),
            )
        )
    return sorted(problems, key=lambda d: d.message)


def _way_out_of_cycle(pipeline: Pipeline, steps: Iterable[tuple[Node, Node, str]]) -> str:
    """Return how to remove an edge; of an output whose path an item decides, a folder in front often suffices."""
    unbounded = next((text for step in steps if (text := unbounded_output(pipeline, *step))), "")
    if not unbounded:
        return "remove one of these inputs, outputs or needs"
    return f"`{unbounded}` may turn out to be any path: put a folder in front of it, or remove one of these"
