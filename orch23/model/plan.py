"""The stages as a graph in a fixed order. Extending a plan gives a new plan."""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage


class Edge(Struct, frozen=True):
    """`reader` comes after `producer`; `why` names the path, pattern or key that makes it so."""

    producer: str
    reader: str
    why: str


class Plan(Struct, frozen=True, kw_only=True, dict=True):
    """The graph. `order` is the lexicographically smallest topological order of the node names.

    A node is a stage, an item of a foreach, or a foreach that is not expanded yet. `expansions` are the stages that
    each foreach was expanded to. `above` maps a node to the chains that it stands upstream of: it sees the files of
    those as they were before (version 0). `skipped` are the stages and items that their `if` switches off: no nodes.
    `groups` are the promotion groups, name -> nodes: a name that the pipeline gives, or that of an expanded foreach
    that is promoted together (`NAME[*]` where a group has the same name). `unexpanded` are the foreach among the nodes.
    """

    pipeline: Pipeline
    nodes: Mapping[str, Stage | ForeachStage]
    order: tuple[str, ...]
    upstream: Mapping[str, tuple[str, ...]]
    downstream: Mapping[str, tuple[str, ...]]
    edges: tuple[Edge, ...] = ()
    expansions: Mapping[str, tuple[Stage, ...]] = field(default_factory=dict)
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    above: Mapping[str, frozenset[str]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: Mapping[str, SkippedStage] = field(default_factory=dict)

    @cached_property
    def unexpanded(self) -> tuple[ForeachStage, ...]:
        """Return the nodes that are not expanded to stages yet."""
        return tuple(node for node in self.nodes.values() if isinstance(node, ForeachStage))

    @cached_property
    def _group_of(self) -> Mapping[str, str]:
        return {name: group for group, names in self.groups.items() for name in names}

    def earlier_items(self, name: str) -> tuple[str, ...]:
        """Return the items before a node in its chain, in order. It may read any of their files.

        The graph has an edge from the item directly before it alone: that one comes after all others already.
        """
        node = self.nodes[name]
        if isinstance(node, ForeachStage) or node.chain is None:
            return ()
        return self.chains.get(node.chain.chain, ())[: node.chain.index]

    def group_of(self, name: str) -> str | None:
        """Return the name of a node's promotion group, or None if the node is promoted by itself."""
        return self._group_of.get(name)

    def promoted_with(self, name: str) -> tuple[str, ...]:
        """Return the nodes that are promoted in one transaction with a node, itself among them.

        A foreach that is not expanded yet stands for its items: the group is not complete without them.
        """
        group = self._group_of.get(name)
        return (name,) if group is None else self.groups[group]
