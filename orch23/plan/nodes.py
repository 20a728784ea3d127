"""The nodes of a plan, their chains and their promotion groups."""

from collections.abc import Iterator, Mapping

from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.plan.reads import Node


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


def place_of(node: Node) -> object:
    """Return what of a node its place in the graph follows from."""
    if isinstance(node, ForeachStage):
        return node
    reads = (node.inputs, node.verify.inputs, node.requires, node.needs)
    return (node.name, reads, node.outputs, node.fence, node.chain, node.item, node.promote)
