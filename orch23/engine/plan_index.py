"""Index what the stages of a plan declare to read and write."""

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct, field

from orch23.model.paths import is_glob, match_any, normalize_pattern
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.plan.nodes import OutputIndex, WriterIndex, WrittenPaths, may_overlap_unexcluded, reads_of, writes_of

_MAX_CACHED = 100


class _Chain(Struct, frozen=True):
    """What the items of a chain may write. `last` maps a literal output to the index of the last item with it."""

    literal: frozenset[str]
    globs: tuple[str, ...]
    last: dict[str, int]


class PlanIndex(Struct, dict=True):
    """The indexes of one plan. An expansion makes another plan."""

    plan: Plan
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
        index = self._chain(chain)
        return path in index.literal or match_any(index.globs, path)

    def last_maker(self, chain: str, path: str) -> int:
        """Return the position in a chain of the last item that declares a literal output, or -1."""
        return self._chain(chain).last.get(path, -1)

    def _chain(self, chain: str) -> _Chain:
        if chain not in self._chains:
            patterns = dict.fromkeys(self._patterns(chain))
            literal = frozenset(normalize_pattern(one) for one in patterns if not is_glob(one))
            items = (self.plan.nodes[name] for name in self.plan.chains.get(chain, ()))
            last = {path: at for at, item in enumerate(items) if isinstance(item, Stage) for path in item.outputs}
            self._chains[chain] = _Chain(literal, tuple(one for one in patterns if is_glob(one)), last)
        return self._chains[chain]

    def _patterns(self, chain: str) -> Iterator[str]:
        foreach = self.plan.nodes.get(chain)
        for name in self.plan.chains.get(chain, ()):
            yield from writes_of(self.plan.nodes[name])
        if isinstance(foreach, ForeachStage):
            yield from foreach.writes
