"""Chains of stages that edit the same files, and the errors of those that have no order (ADR 87)."""

from collections.abc import Iterable, Mapping

import networkx as nx

from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import may_overlap
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.plan.edge_reasons import conflict_error
from orch23.plan.nodes import Node, WriterIndex, chain_of, chains_of, writes_of


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
