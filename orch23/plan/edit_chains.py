"""Chains of stages that edit the same files, and the errors of those that have no order (ADR 87)."""

import itertools
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Related
from orch23.model.paths import may_overlap
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.plan.edge_reasons import place_of_output
from orch23.plan.nodes import Node, WriterIndex, chain_of, chains_of, writes_of


def without_edits(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Return nodes with only the files that each must make: of two stages that make the same file, one is too many."""
    return {
        name: _without_edits(node) if isinstance(node, Stage) and node.edits else node for name, node in nodes.items()
    }


def _without_edits(stage: Stage) -> Stage:
    made = stage.required_outputs
    return replace(stage, edits=(), outputs=made, fence=replace(stage.fence, write=made))


def edited_by(node: Node) -> tuple[str, ...]:
    """Return the patterns of files that a node may edit."""
    return writes_of(node) if isinstance(node, ForeachStage) and node.edits else node.edits


def share_edits(one: Node, other: Node) -> bool:
    """Return whether two nodes may write the same file, and one of them by its `edits`."""
    edited, others = edited_by(one), edited_by(other)
    pairs = (*itertools.product(edited, writes_of(other) if edited else ()), *itertools.product(others, writes_of(one)))
    return any(itertools.starmap(may_overlap, pairs))


def edit_pairs(nodes: Mapping[str, Node], order: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the pairs of nodes that must have an order, the earlier one first, and a path or pattern of both.

    `order` is topological. If each pair has an order, all stages that share a file have one.
    """
    place = {name: number for number, name in enumerate(order)}
    found = WriterIndex({name: nodes[name] for name in place}).overlaps(in_order=True)
    return [
        (one, other, path) if place[one] < place[other] else (other, one, path)
        for one, other, path in found
        if share_edits(nodes[one], nodes[other])
        and (chain_of(nodes[one]) is None or chain_of(nodes[one]) != chain_of(nodes[other]))
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
    groups = {name: [name] for name, node in nodes.items() if isinstance(node, Stage)}
    items = (pair for names in chains_of(nodes).values() for pair in itertools.pairwise(names))
    edited = [(one, other) for one, other, _ in pairs if one in groups and other in groups]
    for one, other in (*items, *edited):
        if groups[one] is not groups[other]:
            small, large = sorted((groups[one], groups[other]), key=len)
            large += small
            groups |= dict.fromkeys(small, large)
    place = {name: number for number, name in enumerate(order)}
    joined = {id(groups[one]): groups[one] for pair in edited for one in pair}.values()
    found = (tuple(sorted(names, key=place.__getitem__)) for names in joined)
    return {chain_of(nodes[names[0]]) or names[0]: names for names in found}


def unordered_error(
    pipeline: Pipeline, one: Node, other: Node, path: str, is_possible: Callable[[str, str], bool]
) -> Diagnostic:
    """Return the error about two nodes that edit the same files in no order, with the line to add.

    `is_possible` returns whether the first node can run before the second one.
    """
    # All lines that are named follow one topological order, so together they make no cycle.
    if family_of(one.name) == family_of(other.name):
        hint = f"write `order: sequential` in `foreach` of `{family_of(one.name)}`, or edit other files in each item"
    elif is_possible(one.name, other.name) or not is_possible(other.name, one.name):
        hint = _line(pipeline, one, other)
    else:
        hint = _line(pipeline, other, one)
    return Diagnostic(
        "E821",
        f"stages `{one.name}` and `{other.name}` may both write `{path}`, and have no order",
        place_of_output(pipeline, other, path),
        hint,
        related=(Related(f"`{one.name}` writes here", place_of_output(pipeline, one, path)),),
    )


def _line(pipeline: Pipeline, before: Node, after: Node) -> str:
    name, reader = family_of(before.name), family_of(after.name)
    declared = {stage.name: stage for stage in pipeline.stages}
    # Without `[*]`, the items of two foreach with one list wait only for their own twins.
    are_lists = all(isinstance(declared.get(one), ForeachStage) for one in (name, reader))
    need = f'"{name}[*]"' if are_lists else name
    needs = declared[reader].needs if reader in declared else after.needs
    return f"write `needs: [{', '.join((*needs, need))}]` in `{reader}`, which then starts from the files of `{name}`"
