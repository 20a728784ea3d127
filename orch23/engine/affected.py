"""Name the stages whose keys differ between two moments of a project, and those that read what these make."""

from collections.abc import Mapping

from orch23.decide.freshness import compare
from orch23.engine.moment import Keyed
from orch23.model.affected import AffectedStage
from orch23.model.paths import meets
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.plan.graph import reads_of
from orch23.plan.writers import writes_of

Node = Stage | ForeachStage


def affected_stages(then: Keyed | None, now: Keyed) -> tuple[tuple[AffectedStage, ...], tuple[str, ...]]:
    """Return the affected stages of today's plan, in its order, and the stages that are no more.

    Without a past every stage is new. What comes after a stage only by `needs` is not affected by it.
    """
    before: Mapping[str, Node] = then.plan.nodes if then is not None else {}
    removed = tuple(name for name in before if name not in now.plan.nodes)
    writers: dict[str, Node] = {name: before[name] for name in removed}
    found: list[AffectedStage] = []
    for name in now.plan.order:
        one = _one(name, then, now, writers)
        if one is not None:
            found.append(one)
            writers[name] = now.plan.nodes[name]
    return tuple(found), tuple(name for name in removed if not _is_family(name, now.plan))


def _one(name: str, then: Keyed | None, now: Keyed, writers: Mapping[str, Node]) -> AffectedStage | None:
    after = tuple(writer for writer, node in writers.items() if _reads(now.plan, name, node))
    if then is None or name not in then.manifests:
        return AffectedStage(stage=name, why="added", after=after)
    reasons = compare(then.manifests[name], now.manifests[name])
    if reasons:
        return AffectedStage(stage=name, why="changed", reasons=reasons, after=after)
    return AffectedStage(stage=name, why="downstream", after=after) if after else None


def _reads(plan: Plan, name: str, writer: Node) -> bool:
    """Say whether a stage may read what another makes: its inputs, the list it comes from, the versions before it."""
    node, chains = plan.nodes[name], plan.chains
    if isinstance(node, Stage) and node.chain is not None and isinstance(writer, Stage) and writer.chain is not None:
        own = chains.get(node.chain.chain, ())
        if writer.name in own and node.chain.index < writer.chain.index:
            return False
    reads = [*reads_of(node), *_list_of(plan, name)]
    if isinstance(node, Stage) and node.chain is not None:
        reads += node.outputs
    return any(meets(read, written) for written in writes_of(writer) for read in reads)


def _list_of(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the file whose list an item comes from."""
    families = (node for node in plan.pipeline.stages if isinstance(node, ForeachStage))
    found = next((node for node in families if node.name == name.partition("@")[0]), None)
    return (found.foreach.source,) if found is not None and found.foreach.source is not None else ()


def _is_family(name: str, plan: Plan) -> bool:
    """Say whether a foreach, which had no list then, stands for the items of today."""
    return any(other.startswith(f"{name}@") for other in plan.nodes)
