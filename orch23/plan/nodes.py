"""Nodes of a plan: what they read and write, their chains and promotion groups."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, field

from orch23.model.paths import PatternSet, covers, is_glob, may_overlap, normalize_pattern, static_prefix
from orch23.model.pipeline import (
    ForeachStage,
    GlobInput,
    Input,
    ListInput,
    OrderInput,
    Pipeline,
    SkippedStage,
    Stage,
    family_of,
)
from orch23.model.plan import Edge, Plan

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Node = Stage | ForeachStage
Where: TypeAlias = tuple[str | int, ...]
"""The keys and positions that lead to a value below a stage."""


class PlanNodes(Struct, frozen=True):
    """What a plan is compiled from: a pipeline and its nodes, the items of expanded foreach, and skipped stages."""

    pipeline: Pipeline
    nodes: Mapping[str, Node]
    expansions: Mapping[str, tuple[Stage, ...]]
    skipped: Mapping[str, SkippedStage]


class CompiledGraph(Struct, frozen=True, array_like=True):
    """A compiled plan, with edges in its order. It is stored as an array: the order of the fields is the format."""

    order: tuple[str, ...]
    edges: tuple[Edge, ...]
    upstream_of_chains: dict[str, dict[str, int]]
    # The chains of stages that edit the same files: name -> its members in order (ADR 87).
    edit_chains: dict[str, tuple[str, ...]] = {}


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key, in order."""
    found: defaultdict[_Key, list[_Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def placed_inputs(stage: Stage) -> list[tuple[Where, Input]]:
    """Return the inputs of a stage and of its verification, each with its place below the stage."""
    found: list[tuple[Where, Input]] = [(("inputs", n), one) for n, one in enumerate(stage.inputs)]
    return found + [(("verify", "inputs", n), one) for n, one in enumerate(stage.verify.inputs)]


def reads_of(node: Node, *, order_only: bool = True) -> tuple[str, ...]:
    """Return the patterns of files that a node waits for; without `order_only` those whose contents it depends on.

    Listings are not among them: they have no files that stages make.
    """
    if isinstance(node, ForeachStage):
        return (node.foreach.source, *node.reads) if node.foreach.source else node.reads
    left_out = ListInput if order_only else (ListInput, OrderInput)
    patterns = [one.pattern for one in (*node.inputs, *node.verify.inputs) if not isinstance(one, left_out)]
    return tuple(dict.fromkeys((*patterns, *node.explore, *(condition.path for condition in node.requires))))


def program_files_of(node: Node) -> tuple[str, ...]:
    """Return the files that the program of a model consists of, without folders: agents often read each other's."""
    named = () if isinstance(node, ForeachStage) else node.step.program_files()
    return tuple(one for one in named if not is_glob(one))


def may_read(node: Node, written: Collection[str]) -> bool:
    """Return whether the key of a node may depend on a file that is written under one of these patterns."""
    return any(
        may_overlap_unexcluded(pattern, exclude, other)
        for pattern, exclude in reads_with_exclusions(node)
        for other in written
    )


def reads_with_exclusions(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each pattern whose contents a node depends on, with the patterns that are excluded from it."""
    exclusions = exclusions_of(node)
    yield from ((pattern, ()) for pattern in program_files_of(node))
    for pattern in reads_of(node, order_only=False):
        yield from ((pattern, exclude) for exclude in exclusions.get(pattern, ((),)))


def exclusions_of(node: Node) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the exclusions of each glob of a node, one entry each time that it is listed; {} if no glob has one."""
    if isinstance(node, ForeachStage):
        return {}
    globs = (one for one in (*node.inputs, *node.verify.inputs) if isinstance(one, GlobInput))
    found = grouped((one.pattern, one.exclude) for one in globs)
    has_any = any(any(entries) for entries in found.values())
    return {pattern: tuple(entries) for pattern, entries in found.items()} if has_any else {}


def may_overlap_unexcluded(pattern: str, exclude: tuple[str, ...], written: str) -> bool:
    """Return whether a written path may match the pattern and no exclusion surely covers it."""
    return may_overlap(pattern, written) and not any(covers(one, written) for one in exclude)


def writes_of(node: Node) -> tuple[str, ...]:
    """Return the patterns that a node may write."""
    if isinstance(node, ForeachStage):
        return node.writes
    return tuple(dict.fromkeys((*node.outputs, *node.fence.write)))


class WriterIndex:
    """An index over the write patterns of nodes: literal paths by name, patterns by their fixed folder."""

    def __init__(
        self, nodes: Mapping[str, Node | SkippedStage], writes: Callable[[Any], Iterable[str]] = writes_of
    ) -> None:
        """Index outputs and write scopes."""
        written = [(pattern, name) for name, node in nodes.items() for pattern in writes(node)]
        self._literal = grouped((normalize_pattern(path), name) for path, name in written if not is_glob(path))
        self._patterns = grouped((pattern, name) for pattern, name in written if is_glob(pattern))
        self._by_prefix = grouped((static_prefix(pattern), pattern) for pattern in self._patterns)
        self._chains = {name: chain for name, node in nodes.items() if (chain := chain_of(node)) is not None}
        # The nodes with a pattern that are outside of a chain: every item of the chain needs this list.
        self._others: dict[tuple[str, str], list[str]] = {}

    def writers_of(self, pattern: str) -> tuple[str, ...]:
        """Return the nodes that may write a file that the pattern matches, sorted."""
        if is_glob(pattern):
            found = {name for path, names in self._literal.items() if may_overlap(pattern, path) for name in names}
            candidates: Iterable[str] = self._patterns
        else:
            path = normalize_pattern(pattern)
            found = set(self._literal.get(path, ()))
            candidates = self._patterns_above(path)
        found.update(name for one in candidates if may_overlap(pattern, one) for name in self._patterns[one])
        return tuple(sorted(found))

    def overlaps(self) -> Iterator[tuple[str, str, str]]:
        """Yield pairs of nodes that may write the same path, with a path or pattern that shows it.

        Of nodes with the same pattern, each is paired with the next one only: if no pair is in conflict, or all pairs
        have an order, so it is for all nodes, and 1,000 nodes give 999 pairs instead of 499,500. Items of one chain may
        write the same files, so they have no other pairs.
        """
        seen: set[tuple[str, str]] = set()
        for one, other, path in (*self._literal_pairs(), *self._pattern_pairs()):
            pair = (min(one, other), max(one, other))
            if one != other and pair not in seen:
                seen.add(pair)
                yield (*pair, path)

    def _literal_pairs(self) -> Iterator[tuple[str, str, str]]:
        for path, names in self._literal.items():
            yield from ((*pair, path) for pair in itertools.pairwise(names))
            for pattern in self._patterns_above(path):
                if may_overlap(pattern, path):
                    yield from ((one, other, path) for one in names for other in self._outside_chain(one, pattern))

    def _pattern_pairs(self) -> Iterator[tuple[str, str, str]]:
        patterns = sorted(self._patterns)
        for position, pattern in enumerate(patterns):
            names = self._patterns[pattern]
            yield from ((*pair, pattern) for pair in itertools.pairwise(names))
            for later in patterns[position + 1 :]:
                if may_overlap(pattern, later):
                    yield from ((one, other, pattern) for one in names for other in self._outside_chain(one, later))

    def _outside_chain(self, name: str, pattern: str) -> list[str]:
        chain = self._chains.get(name)
        if chain is None:
            return self._patterns[pattern]
        if (pattern, chain) not in self._others:
            nodes = self._patterns[pattern]
            self._others[pattern, chain] = [one for one in nodes if self._chains.get(one) != chain]
        return self._others[pattern, chain]

    def _patterns_above(self, path: str) -> Iterator[str]:
        for folder in ("", *_folders_above(path)) if self._by_prefix else ():
            yield from self._by_prefix.get(folder, ())


class WrittenPaths(PatternSet):
    """The paths that nodes may write. `made` are the outputs of stages outside of chains: they are no user's files."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """Index outputs and write scopes."""
        super().__init__(pattern for node in nodes.values() for pattern in writes_of(node))
        stages = (node for node in nodes.values() if isinstance(node, Stage) and node.chain is None)
        self.made = frozenset(path for stage in stages for path in stage.outputs)


class OutputIndex(PatternSet):
    """The paths that nodes declare as outputs. Globs of other nodes match these even if git ignores them."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """Index the outputs without `edits`; of a foreach that is not expanded, all that its items may write."""
        super().__init__(
            pattern
            for node in nodes.values()
            for pattern in (node.writes if isinstance(node, ForeachStage) else node.required_outputs)
        )
        self._folders = frozenset(folder for path in self.literal for folder in _folders_above(path))

    def may_be_below(self, folder: str) -> bool:
        """Return whether some output may be below a folder, which ends in `/`."""
        return folder in self._folders or any(may_overlap(f"{folder}**", pattern) for pattern in self.globs)


def _folders_above(path: str) -> Iterator[str]:
    at = path.find("/")
    while at >= 0:
        yield path[: at + 1]
        at = path.find("/", at + 1)


def nodes_of(pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]]) -> Iterator[Node]:
    """Yield the nodes: the stages, and for each expanded foreach its items."""
    for stage in pipeline.stages:
        yield from expansions.get(stage.name, (stage,))


def declared_node(pipeline: Pipeline, name: str) -> Node | None:
    """Return the stage as declared that a node belongs to: of an item its foreach."""
    return next((stage for stage in pipeline.stages if stage.name == family_of(name)), None)


def chain_of(node: Node | SkippedStage) -> str | None:
    """Return the name of the chain that a node is part of, or None."""
    return node.chain.chain if isinstance(node, Stage) and node.chain is not None else None


def chains_of(nodes: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    """Return the chains: name -> its items in order."""
    links = ((node.chain, node.name) for node in nodes.values() if isinstance(node, Stage))
    found = grouped((link.chain, (link.index, name)) for link, name in links if link is not None)
    return {chain: tuple(name for _, name in sorted(items)) for chain, items in found.items()}


def groups_of(pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the promotion groups, name -> nodes."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    named = {stage.promote for stage in pipeline.stages}
    for stage in pipeline.stages:
        group = stage.promote
        if group is None and isinstance(stage, ForeachStage) and stage.foreach.together and stage.name in expansions:
            group = f"{stage.name}[*]" if stage.name in named else stage.name
        if group is not None:
            found[group] += (node.name for node in expansions.get(stage.name, (stage,)))
    return {group: tuple(names) for group, names in found.items()}


def graph_facts_of(node: Node) -> object:
    """Return the facts of a node that its edges and its place in the order follow from."""
    if isinstance(node, ForeachStage):
        return node
    reads = (node.inputs, node.verify.inputs, node.requires, node.needs, node.explore)
    writes = (node.outputs, node.edits, node.fence)
    return (node.name, reads, writes, node.chain, node.item, node.promote, program_files_of(node))


_MAX_CACHED = 100


class _Chain(Struct, frozen=True):
    """What the items of a chain may write. `last` maps a literal output to the index of the last item with it.

    `programs` are those with `edits` that call no model, the last one first.
    """

    written: PatternSet
    last: dict[str, int]
    programs: tuple[Stage, ...]


class PlanIndex(Struct, dict=True):
    """The indexes of one plan. An expansion makes another plan. Stages that are `done` make no version of a file."""

    plan: Plan
    done: Collection[str] = ()
    _chains: dict[str, _Chain] = field(default_factory=dict)
    _makers: dict[tuple[str, tuple[str, ...]], frozenset[str]] = field(default_factory=dict)

    @cached_property
    def written(self) -> WrittenPaths:
        """Index of what all stages may write."""
        return WrittenPaths(self.plan.all_nodes)

    @cached_property
    def outputs(self) -> OutputIndex:
        """Index of what all stages declare as outputs."""
        return OutputIndex(self.plan.all_nodes)

    @cached_property
    def sources(self) -> frozenset[str]:
        """The files that stages name as inputs."""
        nodes = self.plan.all_nodes.values()
        return frozenset(normalize_pattern(read) for node in nodes for read in reads_of(node) if not is_glob(read))

    @cached_property
    def _writers(self) -> WriterIndex:
        return WriterIndex(self.plan.nodes)

    def makers(self, pattern: str, exclude: tuple[str, ...] = ()) -> frozenset[str]:
        """Return the nodes that may write a path that the pattern matches and no exclusion covers.

        The items of a chain often read the same patterns, so the last results are cached. Only a few: each may name all
        items.
        """
        known = self._makers.get((pattern, exclude))
        if known is None:
            nodes, found = self.plan.nodes, self._writers.writers_of(pattern)
            if exclude:
                writes = ((name, writes_of(nodes[name])) for name in found)
                found = tuple(
                    name for name, some in writes if any(may_overlap_unexcluded(pattern, exclude, one) for one in some)
                )
            if len(self._makers) >= _MAX_CACHED:
                self._makers.clear()
            known = self._makers[pattern, exclude] = frozenset(found)
        return known

    def in_chain(self, chain: str, path: str) -> bool:
        """Return whether some item of a chain may write a path."""
        return self._chain(chain).written.contains(path)

    def last_maker(self, chain: str, path: str) -> int:
        """Return the position in a chain of the last item that declares a literal output, or -1."""
        return self._chain(chain).last.get(path, -1)

    def last_program(self, chain: str, path: str) -> int:
        """Return the position in a chain of the last program that edits what is at a path, or -1."""
        found = (item.chain.index for item in self._chain(chain).programs if item.chain and item.takes_edits_of(path))
        return next(found, -1)

    def _chain(self, chain: str) -> _Chain:
        if chain not in self._chains:
            # A foreach that is not expanded yet has no items: it is a node itself.
            names = self.plan.chains.get(chain, (chain,))
            items = [self.plan.nodes[name] for name in names if name in self.plan.nodes]
            makers = [(at, one) for at, one in enumerate(items) if isinstance(one, Stage) and one.name not in self.done]
            last = {path: at for at, one in makers for path in one.literal_outputs}
            programs = (one for _, one in reversed(makers) if one.edits and not one.discovers)
            written = PatternSet(one for item in items for one in writes_of(item))
            self._chains[chain] = _Chain(written, last, tuple(programs))
        return self._chains[chain]
