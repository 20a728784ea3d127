"""Name the stages whose keys differ between two moments of a project, and those that read what these make."""

from collections.abc import Collection, Mapping

from orch23.decide.freshness import compare
from orch23.engine.moment import Keyed, versions_of
from orch23.model.affected import AffectedStage
from orch23.model.paths import match_any, meets
from orch23.model.pipeline import ForeachStage, SliceInput, Stage
from orch23.model.plan import Plan
from orch23.model.record import same_result
from orch23.plan.reads import may_read, reads_of
from orch23.plan.writers import writes_of

Node = Stage | ForeachStage


def affected_stages(
    then: Keyed | None, now: Keyed, settled: Collection[str]
) -> tuple[tuple[AffectedStage, ...], tuple[str, ...]]:
    """Return the affected stages of today's plan, in its order, and the stages that are no more.

    Without a past every stage is new. What comes after a stage only by `needs` is not affected by it. `settled` are the
    stages of which today's result is known: what they make is compared, and is a reason of its own or none.
    """
    before: Mapping[str, Node] = then.plan.nodes if then is not None else {}
    removed = tuple(name for name in before if name not in now.plan.nodes)
    writers: dict[str, Node] = {name: before[name] for name in removed}
    known = {*settled, *removed}
    found: list[AffectedStage] = []
    for name in now.plan.order:
        one = _one(name, then, now, {w: node for w, node in writers.items() if _reads(now.plan, name, node)}, known)
        if one is not None:
            found.append(one)
            writers[name] = now.plan.nodes[name]
    return tuple(found), tuple(name for name in removed if not _is_family(name, now.plan))


def _one(
    name: str, then: Keyed | None, now: Keyed, writers: Mapping[str, Node], known: Collection[str]
) -> AffectedStage | None:
    """Return a stage if it is affected; `writers` are the affected ones whose results it may read."""
    if then is None or name not in then.manifests:
        return AffectedStage(stage=name, why="added", after=tuple(writers))
    reasons = compare(then.manifests[name], now.manifests[name])
    if reasons:
        return AffectedStage(stage=name, why="changed", reasons=reasons, after=tuple(writers))
    lost = [path for path in _parts_of(now.plan, name) if then.made.is_lost(path)]
    untold = [w for w, node in writers.items() if w not in known or not _is_compared(then, now, name, node)]
    untold += [
        w for path in lost for w, node in now.plan.nodes.items() if w != name and match_any(writes_of(node), path)
    ]
    untold += _other_versions(then, now, name)
    return AffectedStage(stage=name, why="downstream", after=tuple(dict.fromkeys(untold))) if untold else None


def _is_compared(then: Keyed, now: Keyed, name: str, writer: Node) -> bool:
    """Say whether the comparison of a stage's manifests has told what is different in all that a writer makes."""
    node = now.plan.nodes[name]
    if isinstance(node, ForeachStage):
        return False
    written, reads = writes_of(writer), (*reads_of(node), *_list_of(now.plan, name))
    before = then.plan.nodes[name]
    versioned = (*versions_of(now.plan, node), *(versions_of(then.plan, before) if isinstance(before, Stage) else ()))
    if _meet(versioned, written):
        return False
    return not any(match_any(written, path) and match_any(reads, path) for path in then.made.unknown)


def _parts_of(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the files of which a stage reads a part, or whose list it comes from: their digests do not decide."""
    node = plan.nodes[name]
    declared = (*node.inputs, *node.verify.inputs) if isinstance(node, Stage) else ()
    return (*(one.path for one in declared if isinstance(one, SliceInput)), *_list_of(plan, name))


def _other_versions(then: Keyed, now: Keyed, name: str) -> tuple[str, ...]:
    """Return the items before a stage in its chain, if they are others than then, or those with another version."""
    earlier, earlier_then = _earlier(now.plan, name), _earlier(then.plan, name)
    if earlier != earlier_then:
        return tuple(dict.fromkeys((*earlier, *earlier_then)))
    both = ((one, then.made.lock.records.get(one), now.made.lock.records.get(one)) for one in earlier)
    return tuple(one for one, a, b in both if a is not None and b is not None and not same_result(a, b))


def _earlier(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the earlier items of a stage's chain that may make what it starts from or reads."""
    node = plan.nodes[name]
    if not isinstance(node, Stage) or node.chain is None:
        return ()
    before = plan.chains[node.chain.chain][: node.chain.index]
    return tuple(one for one in before if _reads(plan, name, plan.nodes[one]))


def _reads(plan: Plan, name: str, writer: Node) -> bool:
    """Say whether a stage may read what another makes: its inputs, the list it comes from, the versions before it."""
    node, chains = plan.nodes[name], plan.chains
    if isinstance(node, Stage) and node.chain is not None and isinstance(writer, Stage) and writer.chain is not None:
        own = chains.get(node.chain.chain, ())
        if writer.name in own and node.chain.index < writer.chain.index:
            return False
    reads = [*_list_of(plan, name)]
    if isinstance(node, Stage) and node.chain is not None:
        reads += node.outputs
    return may_read(node, writes_of(writer)) or _meet(reads, writes_of(writer))


def _meet(some: Collection[str], others: Collection[str]) -> bool:
    return any(meets(one, other) for other in others for one in some)


def _list_of(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the file whose list an item comes from."""
    families = (node for node in plan.pipeline.stages if isinstance(node, ForeachStage))
    found = next((node for node in families if node.name == name.partition("@")[0]), None)
    return (found.foreach.source,) if found is not None and found.foreach.source is not None else ()


def _is_family(name: str, plan: Plan) -> bool:
    """Say whether a foreach, which had no list then, stands for the items of today."""
    return any(other.startswith(f"{name}@") for other in plan.nodes)
