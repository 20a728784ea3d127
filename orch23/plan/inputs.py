"""Say which literal inputs nobody has and nobody makes."""

from collections.abc import Callable, Iterator, Mapping

from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import meets
from orch23.model.pipeline import ForeachStage, GlobInput, ListInput, Pipeline, Stage
from orch23.model.plan import Plan
from orch23.plan.graph import closest
from orch23.plan.writers import Writers, writes_of


def missing_inputs(plan: Plan, exists: Mapping[str, bool]) -> tuple[Diagnostic, ...]:
    """Complain of each literal input that neither exists nor is made. `exists` answers for `literal_reads`."""
    names = sorted(
        {path for node in plan.nodes.values() for path in writes_of(node)} | {p for p, is_ in exists.items() if is_}
    )
    writers: Writers | None = None  # made when it is first needed: most inputs exist, or are made right before
    problems = []
    for name, node in plan.nodes.items():
        if isinstance(node, ForeachStage):
            continue
        for where, position, path in _required(node):
            if exists.get(path) or _is_made(plan, name, path) or _own_base(node, path) or _above_made(plan, name, path):
                continue
            writers = writers or Writers(plan.nodes)
            makers = writers.meeting(path)
            if not set(makers).isdisjoint(plan.earlier_items(name)):
                continue
            later = _made_later(plan, node, makers)
            problems.append(_missing(plan.pipeline, name, (*where, position), path, names, later))
    return tuple(problems)


def inputs_of_nobody(pipeline: Pipeline, exists: Callable[[str], bool]) -> tuple[Diagnostic, ...]:
    """Complain of each literal input that is not there and that no stage at all makes: what is sure without a plan."""
    patterns = sorted({pattern for node in pipeline.stages for pattern in writes_of(node)})
    writers = Writers({node.name: node for node in pipeline.stages})
    return tuple(
        _missing(pipeline, stage.name, (*where, position), path, patterns)
        for stage in pipeline.stages
        if isinstance(stage, Stage)
        for where, position, path in _required(stage)
        if not writers.meeting(path) and not exists(path)
    )


def literal_reads(plan: Plan) -> tuple[str, ...]:
    """Return the literal paths that must exist or be made."""
    stages = (node for node in plan.nodes.values() if isinstance(node, Stage))
    return tuple(sorted({path for stage in stages for _, _, path in _required(stage)}))


def _made_later(plan: Plan, stage: Stage, makers: tuple[str, ...]) -> str | None:
    """Return the first later item of the stage's chain that is among the makers of a file."""
    items = plan.chains.get(stage.chain.chain, ())[stage.chain.index + 1 :] if stage.chain is not None else ()
    return next((item for item in items if item in makers), None)


def _missing(
    pipeline: Pipeline,
    name: str,
    where: tuple[str | int, ...],
    path: str,
    names: list[str],
    later: str | None = None,
) -> Diagnostic:
    off = [one.name for one in pipeline.skipped if any(meets(pattern, path) for pattern in one.writes)]
    place = pipeline.locate("stages", name, *where)
    if later is not None:
        message = (
            f"input `{path}` of stage `{name}` does not exist: `{later}`, which makes it, comes later in its chain"
        )
        return Diagnostic("E822", message, place, f"put `{later}` before `{name}` in the list, or remove the input")
    others = [one for one in names if one != path]  # a hint that repeats the path helps nobody
    otherwise = closest(path, others, "give it to the outputs of the stage that makes it")
    return Diagnostic(
        "E822",
        f"input `{path}` of stage `{name}` does not exist, and no stage makes it",
        place,
        f"`{off[0]}`, which makes it, is skipped: give this stage the same `if`" if off else otherwise,
    )


def _required(stage: Stage) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """Yield where it stands, at which position, and the path, for each literal input that must be there."""
    for where, declared in ((("inputs",), stage.inputs), (("verify", "inputs"), stage.verify.inputs)):
        for position, one in enumerate(declared):
            if not isinstance(one, GlobInput | ListInput) and not one.optional:
                yield where, position, one.path


def _is_made(plan: Plan, name: str, path: str) -> bool:
    return any(meets(pattern, path) for up in plan.upstream[name] for pattern in writes_of(plan.nodes[up]))


def _own_base(stage: Stage, path: str) -> bool:
    """Say whether the path is one that the stage's own chain writes: it may come from an earlier item."""
    return stage.chain is not None and any(meets(pattern, path) for pattern in writes_of(stage))


def _above_made(plan: Plan, name: str, path: str) -> bool:
    """Say whether an unexpanded foreach that the stage stands upstream of might hold the path."""
    return any(
        node.name not in plan.above.get(name, ()) and any(meets(w, path) for w in node.writes)
        for node in plan.unexpanded
    )
