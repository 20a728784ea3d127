"""Build, extend and restore plans; select the stages that a command line names."""

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.errors import NotFoundError
from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage
from orch23.model.plan import CompileCache, Edge, Plan
from orch23.plan.diagnostics import unknown_stage_error
from orch23.plan.nodes import Node, chains_of, graph_facts_of, groups_of, nodes_of


class _Order(msgspec.Struct, frozen=True, array_like=True):
    """What compiling a plan finds: the order of its nodes, the edges by producer and reader, who is above a chain."""

    order: tuple[str, ...]
    edges: tuple[Edge, ...]
    above: dict[str, tuple[str, ...]]


def build_plan(
    pipeline: Pipeline,
    expansions: Mapping[str, tuple[Stage, ...]] | None = None,
    items_off: Iterable[SkippedStage] = (),
    cache: CompileCache | None = None,
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan of a pipeline with these foreach stages expanded, or everything that is wrong with it.

    `items_off` are the items of these foreach stages that their `if` switches off. `cache` has stored plans: only
    where they lack this one the graph is made, checked and ordered by networkx.
    """
    expansions = dict(expansions or {})
    skipped = {one.name: one for one in (*pipeline.skipped, *items_off)}
    nodes = {node.name: node for node in nodes_of(pipeline, expansions)}
    name = "\0".join((pipeline.file, *sorted(expansions)))
    made_of = _made_of(pipeline, expansions, skipped) if cache is not None else b""
    known = cache.get(name, made_of) if cache is not None and made_of else None
    stored = _stored(known) if known is not None else None
    if stored is not None:
        return _plan(stored, pipeline, nodes, expansions, skipped, cache), ()
    from orch23.plan.compile import compile_plan  # noqa: PLC0415 - it loads networkx

    plan, problems = compile_plan(pipeline, nodes, expansions, skipped)
    if plan is None or cache is None or not made_of:
        return plan, problems
    found = _Order(
        plan.order, plan.edges, {one: tuple(sorted(chains)) for one, chains in plan.upstream_of_chains.items()}
    )
    cache.put(name, made_of, msgspec.msgpack.encode(found))
    return msgspec.structs.replace(plan, cache=cache), problems


def _made_of(
    pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]], skipped: Mapping[str, SkippedStage]
) -> bytes:
    """Return all that the graph follows from; nothing where that cannot be written.

    A stage whose command or description is another one has the same place in the graph.
    """
    items = [(name, list(map(graph_facts_of, stages))) for name, stages in expansions.items()]
    try:
        return msgspec.msgpack.encode((list(map(graph_facts_of, pipeline.stages)), items, list(skipped.values())))
    except (TypeError, UnicodeError):  # a value that cannot be written
        return b""


def _stored(data: bytes) -> _Order | None:
    """Return a stored order, or None where another version of orch23 stored it in a form of its own."""
    try:
        return msgspec.msgpack.decode(data, type=_Order)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _plan(
    found: _Order,
    pipeline: Pipeline,
    nodes: Mapping[str, Node],
    expansions: Mapping[str, tuple[Stage, ...]],
    skipped: Mapping[str, SkippedStage],
    cache: CompileCache | None,
) -> Plan:
    upstream: dict[str, list[str]] = {name: [] for name in found.order}
    downstream: dict[str, list[str]] = {name: [] for name in found.order}
    for edge in found.edges:  # by producer, and of each by reader
        upstream[edge.reader].append(edge.producer)
        downstream[edge.producer].append(edge.reader)
    return Plan(
        pipeline=pipeline,
        nodes=nodes,
        order=found.order,
        upstream={name: tuple(names) for name, names in upstream.items()},
        downstream={name: tuple(names) for name, names in downstream.items()},
        edges=found.edges,
        expansions=expansions,
        chains=chains_of(nodes),
        upstream_of_chains={name: frozenset(chains) for name, chains in found.above.items()},
        groups=groups_of(pipeline, expansions),
        skipped=skipped,
        cache=cache,
    )


def unknown_needs_errors(pipeline: Pipeline, names: Collection[str]) -> tuple[Diagnostic, ...]:
    """Complain of each entry of `needs` that is none of these names: what is sure without a plan."""
    return tuple(
        unknown_stage_error(pipeline, stage.name, position, need, sorted(names))
        for stage in pipeline.stages
        for position, need in enumerate(stage.needs)
        if need.removesuffix("[*]").partition("@")[0] not in names
    )


def extend_plan(
    plan: Plan, expansions: Mapping[str, tuple[Stage, ...]], off: Iterable[SkippedStage] = ()
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return a new plan in which more foreach stages are expanded, `off` being skipped, or what is wrong with that.

    All of it is ordered again: the order is a matter of what the plan holds, not of what was expanded first.
    """
    skipped = (*plan.skipped.values(), *off)
    return build_plan(plan.pipeline, {**plan.expansions, **expansions}, skipped, plan.cache)


class Selection(Struct, frozen=True, kw_only=True):
    """What is asked for. Nothing means everything.

    `targets` bring all that they need; `downstream` bring what follows and what that needs; `only` bring themselves.
    A name is a stage, an item `stage@key`, or a foreach for all of its items.
    """

    targets: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    downstream: tuple[str, ...] = ()

    @property
    def selects_all(self) -> bool:
        """Say whether nothing was named, so that everything is wanted."""
        return not (self.targets or self.only or self.downstream)

    def nodes(self, plan: Plan) -> frozenset[str]:
        """Return the nodes of a plan that are wanted. An item of a foreach that is not expanded yet stands for it.

        Raises:
            NotFoundError: a name is no stage of the plan.

        """
        if self.selects_all:
            return frozenset(plan.nodes)
        below = _closure(_named(plan, self.downstream), plan.downstream)
        wanted = _closure(_named(plan, self.targets) | below, plan.upstream)
        return frozenset(wanted | _named(plan, self.only))

    def skipped(self, plan: Plan) -> tuple[str, ...]:
        """Return the skipped stages that are to be told of: all of them, or those that are named."""
        named = {*self.targets, *self.only, *self.downstream}
        return tuple(n for n, one in plan.skipped.items() if self.selects_all or n in named or one.family in named)


ALL_STAGES = Selection()


def _named(plan: Plan, names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    problems = []
    for name in names:
        meant = _meant(plan, name)
        if meant is None:
            known = sorted({stage.name for stage in plan.pipeline.stages} | set(plan.nodes) | set(plan.skipped))
            close = nearest_names(name, known)
            hint = f"did you mean `{close[0]}`?" if close else "`orch23 graph` shows the stages"
            problems.append(Diagnostic("E823", f"no stage is named `{name}`", hint=hint))
        else:
            found |= meant
    if problems:
        raise NotFoundError(*problems)
    return found


def _meant(plan: Plan, name: str) -> set[str] | None:
    """Return the nodes that a name stands for, or None where it is no stage."""
    if name in plan.nodes:
        return {name}
    if name in plan.expansions:
        return {stage.name for stage in plan.expansions[name]}
    family = name.partition("@")[0]
    if name in plan.skipped or family in plan.skipped:
        return set()
    return {family} if "@" in name and isinstance(plan.nodes.get(family), ForeachStage) else None


def _closure(start: set[str], edges: Mapping[str, tuple[str, ...]]) -> set[str]:
    found, todo = set(start), list(start)
    while todo:
        for name in edges.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found
