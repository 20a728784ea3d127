"""Nodes of a plan: what they read and write, their chains and promotion groups."""

from collections.abc import Collection, Iterator, Mapping

from orch23.model.paths import covers, is_glob, match_any, may_overlap, normalize_pattern, static_prefix
from orch23.model.pipeline import ForeachStage, GlobInput, Input, ListInput, OrderInput, Pipeline, Stage

Node = Stage | ForeachStage


def reads_of(node: Node) -> tuple[str, ...]:
    """Return the patterns of files that a node waits for. Listings are no part: they leave out what is made."""
    return _patterns(node, order_only=True)


def _patterns(node: Node, *, order_only: bool) -> tuple[str, ...]:
    """Return the patterns whose contents a node depends on, and those for order only if these are wanted."""
    if isinstance(node, ForeachStage):
        source = (node.foreach.source,) if node.foreach.source else ()
        return (*source, *node.reads)
    declared = (one for one in (*node.inputs, *node.verify.inputs) if order_only or not isinstance(one, OrderInput))
    patterns = [p for one in declared if (p := _read_pattern(one)) is not None]
    patterns += [condition.path for condition in node.requires]
    return tuple(dict.fromkeys(patterns))


def _read_pattern(one: Input) -> str | None:
    if isinstance(one, ListInput):
        return None
    return one.pattern if isinstance(one, GlobInput) else one.path


def may_read(node: Node, written: Collection[str]) -> bool:
    """Return whether the key of a node may depend on a file that is written under one of these patterns."""
    return any(
        may_overlap_unexcluded(pattern, exclude, other)
        for pattern, exclude in reads_with_exclusions(node)
        for other in written
    )


def reads_with_exclusions(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each pattern whose contents a node depends on, with the patterns that are excluded from it."""
    limited = exclusions_of(node)
    for pattern in _patterns(node, order_only=False):
        yield from ((pattern, exclude) for exclude in limited.get(pattern, ((),)))


def exclusions_of(node: Node) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return what is excluded from each glob of a node, if anything is, as often as the glob is listed."""
    if isinstance(node, ForeachStage):
        return {}
    globs = [one for one in (*node.inputs, *node.verify.inputs) if isinstance(one, GlobInput)]
    if not any(one.exclude for one in globs):
        return {}
    return {one.pattern: tuple(other.exclude for other in globs if other.pattern == one.pattern) for one in globs}


def may_overlap_unexcluded(pattern: str, exclude: tuple[str, ...], written: str) -> bool:
    """Return whether a written path may be one that the pattern means and no exclusion removes."""
    return may_overlap(pattern, written) and not any(covers(one, written) for one in exclude)


class WriterIndex:
    """An index over the write patterns of nodes: literal paths by name, patterns by their fixed folder."""

    def __init__(self, nodes: Mapping[str, Stage | ForeachStage]) -> None:
        """Index outputs and fences."""
        self._literal: dict[str, list[str]] = {}
        self._patterns: dict[str, list[str]] = {}
        self._by_prefix: dict[str, list[str]] = {}
        self._chains: dict[str, str] = {}
        self._others: dict[tuple[str, str], list[str]] = {}
        for name, node in nodes.items():
            if isinstance(node, Stage) and node.chain is not None:
                self._chains[name] = node.chain.chain
            for pattern in writes_of(node):
                if is_glob(pattern):
                    self._patterns.setdefault(pattern, []).append(name)
                else:
                    self._literal.setdefault(normalize_pattern(pattern), []).append(name)
        for pattern in self._patterns:
            self._by_prefix.setdefault(static_prefix(pattern), []).append(pattern)

    def writers_of(self, pattern: str) -> tuple[str, ...]:
        """Return the nodes that may write something that the pattern means, sorted."""
        found: set[str] = set()
        if is_glob(pattern):
            for path, names in self._literal.items():
                if may_overlap(pattern, path):
                    found.update(names)
            candidates = list(self._patterns)
        else:
            found.update(self._literal.get(normalize_pattern(pattern), ()))
            candidates = list(self._above(normalize_pattern(pattern)))
        for other in candidates:
            if may_overlap(pattern, other):
                found.update(self._patterns[other])
        return tuple(sorted(found))

    def overlaps(self) -> Iterator[tuple[str, str, str]]:
        """Yield pairs of nodes that may write the same path, with a path or pattern that shows it.

        Of many nodes with one and the same pattern each is paired with the first: every clash shows, no list explodes.
        Items of one chain, which may write the same, are paired only like that.
        """
        seen: set[tuple[str, str]] = set()
        for one, other, path in self._pairs():
            pair = (min(one, other), max(one, other))
            if one != other and pair not in seen:
                seen.add(pair)
                yield (*pair, path)

    def _pairs(self) -> Iterator[tuple[str, str, str]]:
        for path, names in self._literal.items():
            for other in names[1:]:
                yield names[0], other, path
            for pattern in self._above(path):
                if may_overlap(pattern, path):
                    yield from ((one, other, path) for one in names for other in self._apart(one, pattern))
        patterns = sorted(self._patterns)
        for position, pattern in enumerate(patterns):
            names = self._patterns[pattern]
            yield from ((names[0], other, pattern) for other in names[1:])
            for other_pattern in patterns[position + 1 :]:
                if may_overlap(pattern, other_pattern):
                    yield from ((one, other, pattern) for one in names for other in self._apart(one, other_pattern))

    def _apart(self, name: str, pattern: str) -> list[str]:
        """Return the nodes with a pattern that are not of the same chain as a node."""
        chain = self._chains.get(name)
        if chain is None:
            return self._patterns[pattern]
        if (pattern, chain) not in self._others:
            nodes = self._patterns[pattern]
            self._others[pattern, chain] = [one for one in nodes if self._chains.get(one) != chain]
        return self._others[pattern, chain]

    def _above(self, path: str) -> Iterator[str]:
        """Yield the patterns whose fixed directory is one that the path lies in."""
        parts = path.split("/")
        for depth in range(len(parts)):
            prefix = "/".join(parts[:depth]) + "/" if depth else ""
            yield from self._by_prefix.get(prefix, ())


class WrittenPaths:
    """An index over what nodes may write, for paths as they are on a disk: there no character is a wildcard."""

    def __init__(self, nodes: Mapping[str, Stage | ForeachStage]) -> None:
        """Index outputs and fences."""
        stages = [node for node in nodes.values() if isinstance(node, Stage) and node.chain is None]
        patterns = dict.fromkeys(pattern for node in nodes.values() for pattern in writes_of(node))
        self._outputs = frozenset(path for stage in stages for path in stage.outputs)
        self._literal = frozenset(normalize_pattern(pattern) for pattern in patterns if not is_glob(pattern))
        self._globs = tuple(pattern for pattern in patterns if is_glob(pattern))

    def is_output(self, path: str) -> bool:
        """Say whether a stage of no chain has this very path as its output: whatever is there is not a person's."""
        return path in self._outputs

    def is_named(self, path: str) -> bool:
        """Return whether some node declares to write this very path."""
        return path in self._literal

    def has_writer(self, path: str) -> bool:
        """Say whether some node may write a path."""
        return path in self._literal or match_any(self._globs, path)


class OutputIndex:
    """An index over what nodes declare as outputs: wildcards of others see these also where git ignores them."""

    def __init__(self, nodes: Mapping[str, Stage | ForeachStage]) -> None:
        """Index outputs; of a foreach that is not expanded, all that its items may write."""
        declared = dict.fromkeys(
            pattern
            for node in nodes.values()
            for pattern in (node.writes if isinstance(node, ForeachStage) else node.outputs)
        )
        self._literal = frozenset(normalize_pattern(pattern) for pattern in declared if not is_glob(pattern))
        self._folders = frozenset(above for path in self._literal for above in _folders_above(path))
        self._globs = tuple(pattern for pattern in declared if is_glob(pattern))

    def contains(self, path: str) -> bool:
        """Return whether a path is an output of some node."""
        return path in self._literal or match_any(self._globs, path)

    def may_be_below(self, folder: str) -> bool:
        """Return whether an output of some node may lie below a folder, which ends in `/`."""
        return folder in self._folders or any(may_overlap(f"{folder}**", pattern) for pattern in self._globs)


def _folders_above(path: str) -> Iterator[str]:
    at = path.find("/")
    while at >= 0:
        yield path[: at + 1]
        at = path.find("/", at + 1)


def writes_of(node: Stage | ForeachStage) -> tuple[str, ...]:
    """Return the patterns that a node may write."""
    if isinstance(node, ForeachStage):
        return node.writes
    return tuple(dict.fromkeys((*node.outputs, *node.fence.write)))


def nodes_of(pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]]) -> Iterator[Node]:
    """Yield the nodes: items in the place of a foreach that is expanded."""
    for stage in pipeline.stages:
        if isinstance(stage, ForeachStage) and stage.name in expansions:
            yield from expansions[stage.name]
        else:
            yield stage


def chains_of(nodes: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    """Return the chains: name -> its items in order."""
    found: dict[str, list[Stage]] = {}
    for node in nodes.values():
        if isinstance(node, Stage) and node.chain is not None:
            found.setdefault(node.chain.chain, []).append(node)
    return {
        chain: tuple(stage.name for stage in sorted(stages, key=lambda s: s.chain.index if s.chain else 0))
        for chain, stages in found.items()
    }


def groups_of(pipeline: Pipeline, expansions: Mapping[str, tuple[Stage, ...]]) -> dict[str, tuple[str, ...]]:
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


def graph_facts_of(node: Node) -> object:
    """Return what of a node its place in the graph follows from."""
    if isinstance(node, ForeachStage):
        return node
    reads = (node.inputs, node.verify.inputs, node.requires, node.needs)
    return (node.name, reads, node.outputs, node.fence, node.chain, node.item, node.promote)
