"""Build, extend and restore plans; select the stages that a command line names."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Suggestions
from orch23.model.errors import NotFoundError
from orch23.model.paths import may_overlap
from orch23.model.pipeline import ChainLink, ForeachStage, Pipeline, SkippedStage, Stage, family_of
from orch23.model.plan import CompileCache, Plan
from orch23.plan.diagnostics import unknown_need_error, unknown_target_error
from orch23.plan.nodes import CompiledGraph, PlanNodes, chains_of, graph_facts_of, groups_of, nodes_of, writes_of


def unordered_plan(pipeline: Pipeline, cache: CompileCache | None = None) -> Plan:
    """Return the declared stages as a plan without edges and order, in which names are looked up."""
    nodes = {stage.name: stage for stage in pipeline.stages}
    skipped = {one.name: one for one in pipeline.skipped}
    return Plan(pipeline=pipeline, nodes=nodes, order=(), upstream={}, downstream={}, skipped=skipped, cache=cache)


def build_plan(
    pipeline: Pipeline,
    expansions: Mapping[str, tuple[Stage, ...]] | None = None,
    skipped_items: Iterable[SkippedStage] = (),
    cache: CompileCache | None = None,
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan of a pipeline with these foreach stages expanded, or everything that is wrong with it.

    `skipped_items` are the items of these foreach stages that their `if` switches off. `cache` has stored plans; the
    graph is compiled, with networkx, only if it does not have this one.
    """
    expansions = dict(expansions or {})
    facts = PlanNodes(
        pipeline=pipeline,
        nodes={node.name: node for node in nodes_of(pipeline, expansions)},
        expansions=expansions,
        skipped={one.name: one for one in (*pipeline.skipped, *skipped_items)},
    )
    graph, problems = _cached_graph(facts, cache)
    return None if graph is None else _plan(facts, graph, cache), problems


def _cached_graph(facts: PlanNodes, cache: CompileCache | None) -> tuple[CompiledGraph | None, tuple[Diagnostic, ...]]:
    made_of = _made_of(facts) if cache is not None else b""
    # A cache keeps one plan for each name: the newest of this file with these foreach stages expanded.
    name = "\0".join((facts.pipeline.file, *sorted(facts.expansions)))
    if cache is not None and made_of and (stored := cache.get(name, made_of)) is not None:
        with suppress(msgspec.MsgspecError, UnicodeError):  # stored by another version of orch23, in another format
            return msgspec.msgpack.decode(stored, type=CompiledGraph), ()
    from orch23.plan.compile import compile_plan  # noqa: PLC0415 - it loads networkx

    graph, problems = compile_plan(facts)
    if cache is not None and made_of and graph is not None:
        cache.put(name, made_of, msgspec.msgpack.encode(graph))
    return graph, problems


def _made_of(facts: PlanNodes) -> bytes:
    """Return everything that the graph depends on, as bytes; nothing if a value cannot be encoded."""
    items = [(name, list(map(graph_facts_of, stages))) for name, stages in facts.expansions.items()]
    stages = list(map(graph_facts_of, facts.pipeline.stages))
    try:
        return msgspec.msgpack.encode((stages, items, list(facts.skipped.values())))
    except (TypeError, UnicodeError):  # an item holds a value that msgpack or UTF-8 cannot express
        return b""


def _plan(facts: PlanNodes, graph: CompiledGraph, cache: CompileCache | None) -> Plan:
    upstream: dict[str, list[str]] = {name: [] for name in graph.order}
    downstream: dict[str, list[str]] = {name: [] for name in graph.order}
    for edge in graph.edges:  # by the places of producer and reader, so both lists are in order
        upstream[edge.reader].append(edge.producer)
        downstream[edge.producer].append(edge.reader)
    nodes = {**facts.nodes}
    for chain, names in graph.edit_chains.items():
        for index, name in enumerate(names):
            if isinstance(node := nodes[name], Stage):
                nodes[name] = replace(node, chain=ChainLink(chain=chain, index=index))
    return Plan(
        pipeline=facts.pipeline,
        nodes=nodes,
        order=graph.order,
        upstream={name: tuple(names) for name, names in upstream.items()},
        downstream={name: tuple(names) for name, names in downstream.items()},
        edges=graph.edges,
        expansions=facts.expansions,
        chains=chains_of(nodes),
        upstream_of_chains=graph.upstream_of_chains,
        groups=groups_of(facts.pipeline, facts.expansions),
        skipped=facts.skipped,
        cache=cache,
    )


def unknown_needs_errors(pipeline: Pipeline, names: Collection[str]) -> tuple[Diagnostic, ...]:
    """Return an error for each entry of `needs` that is not one of these names. It needs no plan."""
    known = Suggestions(names)
    return tuple(
        unknown_need_error(pipeline, stage, position, need, known)
        for stage in pipeline.stages
        for position, need in enumerate(stage.needs)
        if family_of(need.removesuffix("[*]")) not in names
    )


def extend_plan(
    plan: Plan, expansions: Mapping[str, tuple[Stage, ...]], skipped_items: Iterable[SkippedStage] = ()
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return a new plan with more foreach stages expanded, ordered as if all were at once, or what is wrong with it."""
    skipped = (*plan.skipped.values(), *skipped_items)
    more, problems = build_plan(plan.pipeline, {**plan.expansions, **expansions}, skipped, plan.cache)
    lists = dict(plan.lists)
    for name, items in expansions.items():
        if before := (*lists.get(name, ()), *list_producers(plan, plan.nodes[name])):
            after = (*plan.downstream[name], *(item.name for item in items))
            lists |= {name: before, **{one: (*lists.get(one, ()), name) for one in after}}
    return more and replace(more, lists=lists), problems


def list_producers(plan: Plan, node: Stage | ForeachStage) -> tuple[str, ...]:
    """Return the stages that make the list of a foreach: it can be expanded once they are settled."""
    source = node.foreach.source if isinstance(node, ForeachStage) else None
    # Before stages are ordered, no stage makes a list that is expanded.
    ups = () if source is None else plan.upstream.get(node.name, ())
    return tuple(up for up in ups if any(may_overlap(w, source or "") for w in writes_of(plan.nodes[up])))


class Selection(Struct, frozen=True, kw_only=True):
    """The stages that a command line names. Without any name, all stages are selected.

    `targets` select stages with everything upstream of them; `downstream` select what is downstream of stages, with
    everything upstream of that; `only` select just these stages. A name is a stage, an item `stage@key`, or a foreach
    for all of its items.
    """

    targets: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    downstream: tuple[str, ...] = ()

    @property
    def selects_all(self) -> bool:
        """Return whether no stage is named, so that all are selected."""
        return not (self.targets or self.only or self.downstream)

    def nodes(self, plan: Plan) -> frozenset[str]:
        """Return the selected nodes. An item of a foreach that is not expanded yet selects the foreach.

        Raises:
            NotFoundError: a name is not a stage of the plan.
        """
        return frozenset(plan.nodes if self.selects_all else self._found(plan) & plan.nodes.keys())

    def _found(self, plan: Plan) -> set[str]:
        after: dict[str, list[str]] = {}
        for name, ups in plan.lists.items() if self.downstream else ():
            for up in ups:
                after.setdefault(up, []).append(name)
        below = closure(_named(plan, self.downstream), plan.downstream, after)
        return closure(_named(plan, self.targets) | below, plan.upstream, plan.lists) | _named(plan, self.only)

    def skipped(self, plan: Plan) -> tuple[str, ...]:
        """Return the skipped stages that are named, and the selected empty lists; without a selection, all of them."""
        named = {*self.targets, *self.only, *self.downstream}
        found = plan.idle if self.selects_all else named | self._found(plan)
        return tuple(name for name, one in plan.idle.items() if name in found or one.family in named)


ALL_STAGES = Selection()


def _named(plan: Plan, names: tuple[str, ...]) -> set[str]:
    meant = [(name, _meant(plan, name)) for name in names]
    if unknown := [name for name, nodes in meant if nodes is None]:
        known = sorted({stage.name for stage in plan.pipeline.stages} | set(plan.nodes) | set(plan.skipped))
        raise NotFoundError(*(unknown_target_error(plan, name, known) for name in unknown))
    return {node for _, nodes in meant for node in nodes or ()}


def _meant(plan: Plan, name: str) -> set[str] | None:
    """Return the nodes that a name selects, with its foreach if that is expanded, or None if it is not a stage."""
    if name in plan.nodes:
        return {name}
    if name in plan.expansions:
        return {name, *(stage.name for stage in plan.expansions[name])}
    family = family_of(name)
    if name in plan.skipped or family in plan.skipped:
        return {family}.intersection(plan.lists)
    return {family} if "@" in name and isinstance(plan.nodes.get(family), ForeachStage) else None


def closure(start: set[str], *edges: Mapping[str, Collection[str]]) -> set[str]:
    """Return these nodes, and all that the edges lead to from them."""
    found, todo = set(start), list(start)
    while todo:
        one = todo.pop()
        following = {up for some in edges for up in some.get(one, ())} - found
        found |= following
        todo += following
    return found


def depends_on_model(plan: Plan, name: str) -> bool:
    """Return whether a stage or one of its upstream stages calls a model."""
    return any(calls_model(plan.all_nodes[one]) for one in closure({name}, plan.all_upstream) if one in plan.all_nodes)


def calls_model(node: Stage | ForeachStage) -> bool:
    """Return whether a stage calls a model, or the items of a foreach do."""
    return "llm" in node.body if isinstance(node, ForeachStage) else node.step.asks_model
