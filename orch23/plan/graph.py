"""Make the graph of a pipeline: who comes after whom, in which fixed order, and what is wrong with it.

Edges come from outputs and fences against inputs, and from `needs`. An edge out of a chain, or one that rests on a
pattern that an unexpanded foreach may turn out to have, yields where its reader stands upstream of its producer by
firmer edges: such a reader sees the chain's files as they were before it (version 0).
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Related
from orch23.model.nearest import nearest
from orch23.model.paths import covers, is_glob, meets
from orch23.model.pipeline import (
    ForeachStage,
    GlobInput,
    Input,
    ListInput,
    Pipeline,
    SkippedStage,
    Stage,
)
from orch23.model.plan import Edge, Plan
from orch23.plan.network import Network
from orch23.plan.promotion import between_members
from orch23.plan.reasons import because, unbounded_output
from orch23.plan.writers import Writers, writes_of

Node = Stage | ForeachStage


class Firmness(IntEnum):
    """How firmly an edge stands: those of a lower rank yield to those above."""

    FIRM = 0
    CHAIN_FILE = 1
    CHAIN_PATTERN = 2


class _Candidate(Struct, frozen=True):
    edge: Edge
    firmness: Firmness


def build_plan(
    pipeline: Pipeline,
    expansions: Mapping[str, tuple[Stage, ...]] | None = None,
    items_off: Iterable[SkippedStage] = (),
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan of a pipeline with these foreach stages expanded, or everything that is wrong with it.

    `items_off` are the items of these foreach stages that their `if` switches off.
    """
    expansions = dict(expansions or {})
    skipped = {one.name: one for one in (*pipeline.skipped, *items_off)}
    nodes = {node.name: node for node in _nodes(pipeline, expansions)}
    chains = _chains(nodes)
    need_edges, problems = _need_edges(pipeline, nodes, expansions, skipped)
    writers = Writers(nodes)
    problems += _two_owners(pipeline, nodes, writers)
    candidates = [_Candidate(edge, Firmness.FIRM) for edge in need_edges]
    candidates += [_Candidate(edge, Firmness.FIRM) for edge in _chain_edges(chains)]
    candidates += [_Candidate(edge, Firmness.FIRM) for edge in _list_edges(pipeline, expansions, writers)]
    candidates += list(_file_edges(nodes, writers))
    groups = _groups(pipeline, expansions)
    graph, dropped = _settle(nodes, candidates)
    named = {stage.promote for stage in pipeline.stages}
    between = between_members(
        pipeline, nodes, graph, {group: names for group, names in groups.items() if group in named}
    )
    problems += between
    if not between:
        _wait_for_all(graph, groups, frozenset(named))
        _gather_before_chains(graph, chains)
    order = graph.order()
    if len(order) < len(nodes):
        problems += _cycle(pipeline, nodes, graph)
    if problems:
        return None, tuple(problems)
    return (
        Plan(
            pipeline=pipeline,
            nodes=nodes,
            order=order,
            upstream={name: tuple(sorted(graph.before(name))) for name in order},
            downstream={name: tuple(sorted(graph.after(name))) for name in order},
            edges=tuple(Edge(a, b, why) for a in sorted(nodes) for b, why in sorted(graph.edges[a].items())),
            expansions=expansions,
            chains=chains,
            above=_above(nodes, dropped),
            groups=groups,
            skipped=skipped,
        ),
        (),
    )


def unknown_needs(pipeline: Pipeline, names: Collection[str]) -> tuple[Diagnostic, ...]:
    """Complain of each entry of `needs` that is none of these names: what is sure without a plan."""
    return tuple(
        _no_such_stage(pipeline, stage.name, position, need, sorted(names))
        for stage in pipeline.stages
        for position, need in enumerate(stage.needs)
        if need.removesuffix("[*]").partition("@")[0] not in names
    )


def extend(
    plan: Plan, stage: str, items: tuple[Stage, ...], off: tuple[SkippedStage, ...] = ()
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return a new plan in which one more foreach is expanded, `off` being skipped, or what is wrong with that."""
    return build_plan(plan.pipeline, {**plan.expansions, stage: items}, (*plan.skipped.values(), *off))


def reads_of(node: Node) -> tuple[str, ...]:
    """Return the patterns whose contents a node depends on. Listings are no part: they leave out what is made."""
    if isinstance(node, ForeachStage):
        source = (node.foreach.source,) if node.foreach.source else ()
        return (*source, *node.reads)
    declared = (*node.inputs, *node.verify.inputs)
    patterns = [p for one in declared if (p := _read_pattern(one)) is not None]
    patterns += [condition.path for condition in node.requires]
    return tuple(dict.fromkeys(patterns))


def _read_pattern(one: Input) -> str | None:
    if isinstance(one, ListInput):
        return None
    return one.pattern if isinstance(one, GlobInput) else one.path


def may_read(node: Node, written: Collection[str]) -> bool:
    """Return whether a node may read a file that is written under one of these patterns."""
    return any(_meets_rest(pattern, exclude, other) for pattern, exclude in _reads(node) for other in written)


def _reads(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each pattern whose contents a node depends on, with the patterns that are excluded from it."""
    limited = _limited_reads(node)
    for pattern in reads_of(node):
        yield from ((pattern, exclude) for exclude in limited.get(pattern, ((),)))


def _limited_reads(node: Node) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return what is excluded from each glob of a node, if anything is, as often as the glob is listed."""
    if isinstance(node, ForeachStage):
        return {}
    globs = [one for one in (*node.inputs, *node.verify.inputs) if isinstance(one, GlobInput)]
    if not any(one.exclude for one in globs):
        return {}
    return {one.pattern: tuple(other.exclude for other in globs if other.pattern == one.pattern) for one in globs}


def _meets_rest(pattern: str, exclude: tuple[str, ...], written: str) -> bool:
    """Return whether a written path may be one that the pattern means and no exclusion removes."""
    return meets(pattern, written) and not any(covers(one, written) for one in exclude)


def _nodes(pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]]) -> Iterator[Node]:
    for stage in pipeline.stages:
        if isinstance(stage, ForeachStage) and stage.name in expansions:
            yield from expansions[stage.name]
        else:
            yield stage


def _chains(nodes: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[Stage]] = {}
    for node in nodes.values():
        if isinstance(node, Stage) and node.chain is not None:
            found.setdefault(node.chain.chain, []).append(node)
    return {
        chain: tuple(stage.name for stage in sorted(stages, key=lambda s: s.chain.index if s.chain else 0))
        for chain, stages in found.items()
    }


def _chain_edges(chains: Mapping[str, tuple[str, ...]]) -> Iterator[Edge]:
    for chain, names in chains.items():
        for before, after in itertools.pairwise(names):
            yield Edge(before, after, f"order of {chain}")


def _list_edges(pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]], writers: Writers) -> Iterator[Edge]:
    """Let items come after whoever makes the list that they were expanded from."""
    for foreach in pipeline.stages:
        source = foreach.foreach.source if isinstance(foreach, ForeachStage) else None
        if source is not None and foreach.name in expansions:
            producers = writers.meeting(source)
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
                problems.append(_no_such_stage(pipeline, name, position, need, known))
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


def _no_such_stage(pipeline: Pipeline, name: str, position: int, need: str, known: list[str]) -> Diagnostic:
    wanted = need.removesuffix("[*]")
    return Diagnostic(
        "E827" if "@" in wanted else "E823",
        f"stage `{name}` needs `{wanted}`, which is no stage of this pipeline",
        pipeline.locate("stages", name, "needs", position),
        closest(wanted, known, "`needs` names stages"),
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


def _file_edges(nodes: Mapping[str, Node], writers: Writers) -> Iterator[_Candidate]:
    for name, node in nodes.items():
        limited = _limited_reads(node)
        for pattern in reads_of(node):
            for producer in writers.meeting(pattern):
                if producer == name or _one_chain(node, nodes[producer]):
                    continue
                if pattern in limited and not any(
                    _meets_rest(pattern, exclude, written)
                    for exclude in limited[pattern]
                    for written in writes_of(nodes[producer])
                ):
                    continue
                firmness = _firmness(node, nodes[producer], pattern)
                yield _Candidate(Edge(producer, name, pattern), firmness)


def _firmness(reader: Node, producer: Node, pattern: str) -> Firmness:
    if isinstance(reader, ForeachStage):
        source = reader.foreach.source
        return Firmness.FIRM if pattern == source else Firmness.CHAIN_PATTERN
    if isinstance(producer, ForeachStage):
        return Firmness.CHAIN_PATTERN
    if producer.chain is None:
        return Firmness.FIRM
    return Firmness.CHAIN_PATTERN if is_glob(pattern) else Firmness.CHAIN_FILE


def _one_chain(one: Node, other: Node) -> bool:
    if isinstance(one, ForeachStage) or isinstance(other, ForeachStage):
        return False
    return one.chain is not None and other.chain is not None and one.chain.chain == other.chain.chain


def _settle(nodes: Mapping[str, Node], candidates: list[_Candidate]) -> tuple[Network, list[Edge]]:
    """Add the edges rank by rank; a yielding one is dropped where the ranks above it lead from reader to producer."""
    graph = Network(nodes)
    dropped: list[Edge] = []
    for rank in Firmness:
        standing: list[Edge] = []
        after: dict[str, set[str]] = {}
        for edge in (c.edge for c in candidates if c.firmness is rank):
            if rank is not Firmness.FIRM:
                if edge.reader not in after:
                    after[edge.reader] = graph.descendants(edge.reader)
                if edge.producer in after[edge.reader]:
                    dropped.append(edge)
                    continue
            standing.append(edge)
        for edge in standing:
            graph.add(edge.producer, edge.reader, edge.why)
    return graph, dropped


def _groups(pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the promotion groups, name -> nodes."""
    found: dict[str, list[str]] = {}
    named = {stage.promote for stage in pipeline.stages}
    for stage in pipeline.stages:
        nodes = [item.name for item in expansions[stage.name]] if stage.name in expansions else [stage.name]
        if stage.promote is not None:
            found.setdefault(stage.promote, []).extend(nodes)
        elif isinstance(stage, ForeachStage) and stage.foreach.together and stage.name in expansions:
            found[stage.name if stage.name not in named else f"{stage.name}[*]"] = nodes
    return {group: tuple(names) for group, names in found.items()}


def _wait_for_all(graph: Network, groups: Mapping[str, tuple[str, ...]], named: Collection[str | None]) -> None:
    """Let a stage that comes after one member of a promotion group come after all of them."""
    for group, items in groups.items():
        why = f"promote: {group}" if group in named else f"promote: together of {group.removesuffix('[*]')}"
        inside = set(items)
        for reader in sorted({after for item in items for after in graph.after(item)} - inside):
            for item in items:
                graph.add(item, reader, why)


def _gather_before_chains(graph: Network, chains: Mapping[str, tuple[str, ...]]) -> None:
    """Let all that a chain's items wait for come before its first item, so that the chain can be looked at as one."""
    for chain, items in chains.items():
        if len(items) == 1:
            continue
        after = set(items).union(*(graph.descendants(item) for item in items))
        outside = {up for item in items[1:] for up in graph.before(item)} - after
        for up in sorted(outside):
            graph.add(up, items[0], f"order of {chain}")


def _above(nodes: Mapping[str, Node], dropped: Iterable[Edge]) -> dict[str, frozenset[str]]:
    above: dict[str, set[str]] = {}
    for edge in dropped:
        producer = nodes[edge.producer]
        chain = producer.chain.chain if isinstance(producer, Stage) and producer.chain else producer.name
        above.setdefault(edge.reader, set()).add(chain)
    return {name: frozenset(chains) for name, chains in above.items()}


# ---- complaints -------------------------------------------------------------------------------


def _two_owners(pipeline: Pipeline, nodes: Mapping[str, Node], writers: Writers) -> list[Diagnostic]:
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


def _cycle(pipeline: Pipeline, nodes: Mapping[str, Node], network: Network) -> list[Diagnostic]:
    """Name a cycle in each part of the graph that has one."""
    import networkx as nx  # noqa: PLC0415 - heavy, and needed only to name what hardly ever is

    graph: nx.DiGraph[str] = nx.DiGraph(
        (a, b, {"why": why}) for a, after in network.edges.items() for b, why in after.items()
    )
    problems = []
    for component in nx.strongly_connected_components(graph):
        if len(component) == 1:
            continue
        # sorted: the order of declaration must not show
        part: nx.DiGraph[str] = nx.DiGraph(sorted(graph.subgraph(component).edges))
        path = [a for a, _ in nx.find_cycle(part, source=min(component))]
        start = path.index(min(path))
        path = path[start:] + path[:start]
        steps = [(nodes[a], nodes[b], str(graph.edges[a, b]["why"])) for a, b in itertools.pairwise([*path, path[0]])]
        problems.append(
            Diagnostic(
                "E820",
                "cycle: " + " -> ".join([*path, path[0]]),
                pipeline.locate("stages", path[0]),
                _way_out_of_cycle(pipeline, steps),
                related=tuple(because(pipeline, *step) for step in steps),
            )
        )
    return sorted(problems, key=lambda d: d.message)


def _way_out_of_cycle(pipeline: Pipeline, steps: Iterable[tuple[Node, Node, str]]) -> str:
    """Return how to remove an edge; of an output whose path an item decides, a folder in front often suffices."""
    unbounded = next((text for step in steps if (text := unbounded_output(pipeline, *step))), "")
    if not unbounded:
        return "remove one of these inputs, outputs or needs"
    return f"`{unbounded}` may turn out to be any path: put a folder in front of it, or remove one of these"


def closest(name: str, known: list[str], otherwise: str) -> str:
    """Return a did-you-mean, or another hint where nothing is near."""
    close = nearest(name, known)
    return f"did you mean `{close[0]}`?" if close else otherwise
