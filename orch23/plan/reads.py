"""What the nodes of a plan read, as patterns."""

from collections.abc import Collection, Iterator

from orch23.model.paths import covers, meets
from orch23.model.pipeline import ForeachStage, GlobInput, Input, ListInput, OrderInput, Stage

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
    return any(meets_rest(pattern, exclude, other) for pattern, exclude in each_read(node) for other in written)


def each_read(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each pattern whose contents a node depends on, with the patterns that are excluded from it."""
    limited = limited_reads(node)
    for pattern in _patterns(node, order_only=False):
        yield from ((pattern, exclude) for exclude in limited.get(pattern, ((),)))


def limited_reads(node: Node) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return what is excluded from each glob of a node, if anything is, as often as the glob is listed."""
    if isinstance(node, ForeachStage):
        return {}
    globs = [one for one in (*node.inputs, *node.verify.inputs) if isinstance(one, GlobInput)]
    if not any(one.exclude for one in globs):
        return {}
    return {one.pattern: tuple(other.exclude for other in globs if other.pattern == one.pattern) for one in globs}


def meets_rest(pattern: str, exclude: tuple[str, ...], written: str) -> bool:
    """Return whether a written path may be one that the pattern means and no exclusion removes."""
    return meets(pattern, written) and not any(covers(one, written) for one in exclude)
