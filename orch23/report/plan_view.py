"""What a plan says, as values: one line a stage and the sums below them, the same for every format."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import assert_never

from msgspec import Struct, field

from orch23.model.decision import Blocked, Decision, Edited, Expand, Fresh, Maybe, Restore, Run, Skipped, VerifyOnly
from orch23.model.diagnostic import Location
from orch23.model.estimate import NOTHING, Calls, Estimate
from orch23.model.paths import is_glob
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.steps.registry import is_llm


class PlanLine(Struct, frozen=True, kw_only=True):
    """One stage of a plan. `outputs` are the paths it would write, as far as they are known.

    `sandbox` is what its processes would have, and `network` what these or a download would; what an item of a foreach
    may turn out to have counts.
    """

    stage: str
    kind: str
    decision: Decision
    estimate: Estimate = NOTHING
    outputs: tuple[str, ...] = ()
    key: str = ""
    place: Location | None = None
    network: bool = False
    sandbox: bool = True

    @property
    def may_start(self) -> bool:
        """Say whether a process of the stage may be started."""
        return isinstance(self.decision, Run | Maybe | VerifyOnly | Expand)

    @property
    def calls(self) -> Calls:
        """Give how many requests the stage may make."""
        return self.estimate.calls


class PlanView(Struct, frozen=True, kw_only=True):
    """A whole plan. `dead` are files of ended stages that a green build removes, `released` those that stay as sources.

    Of so many stages besides those of `lines` it is known that they are fresh, or skipped. `groups` are the promotion
    groups that the pipeline names, each with its stages among `lines`.
    """

    name: str
    file: str
    lines: tuple[PlanLine, ...]
    models: tuple[str, ...] = ()
    max_llm_calls: int | None = None
    max_cost: Decimal | None = None
    dead: tuple[str, ...] = ()
    released: Mapping[str, str] = field(default_factory=dict)
    fresh_besides: int = 0
    skipped_besides: int = 0
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def skip_count(self) -> int:
        """Give how many stages are switched off."""
        return len(self.skipped) + self.skipped_besides

    @property
    def stage_count(self) -> int:
        """Give how many stages there are that are not switched off."""
        return len(self.lines) - len(self.skipped) + self.fresh_besides

    @property
    def stale(self) -> tuple[PlanLine, ...]:
        """Give the stages that a build would not find fresh."""
        return tuple(line for line in self.lines if not isinstance(line.decision, Fresh | Skipped))

    @property
    def skipped(self) -> tuple[PlanLine, ...]:
        """Give the stages that are switched off."""
        return tuple(line for line in self.lines if isinstance(line.decision, Skipped))

    @property
    def would_run(self) -> int:
        """Give how many stages would run, be verified or be restored, for sure."""
        return sum(isinstance(line.decision, Run | Restore | VerifyOnly) for line in self.lines)

    @property
    def possible(self) -> int:
        """Give how many more may run, depending on what is written before them."""
        return sum(isinstance(line.decision, Maybe | Expand) for line in self.lines)

    @property
    def is_quiet(self) -> bool:
        """Say whether a build would do nothing at all."""
        return not self.stale and not self.dead and not self.released

    @property
    def calls(self) -> Calls:
        """Give the requests of all stages together, within the limit of the pipeline."""
        least, most = sum(line.calls.least for line in self.lines), 0
        for line in self.lines:
            if line.calls.most is None:
                return Calls(least, self.max_llm_calls)
            most += line.calls.most
        return Calls(least, most if self.max_llm_calls is None else min(most, self.max_llm_calls))

    def counts(self) -> dict[str, int]:
        """Return how many stages there are of each action, in the order of first appearance."""
        found: dict[str, int] = {}
        for line in self.lines:
            found[line.decision.label] = found.get(line.decision.label, 0) + 1
        return found


def plan_view(
    plan: Plan,
    decisions: Mapping[str, Decision],
    *,
    keys: Mapping[str, str] | None = None,
    estimates: Mapping[str, Estimate] | None = None,
    dead: tuple[str, ...] = (),
    released: Mapping[str, str] | None = None,
    skipped: tuple[str, ...] = (),
) -> PlanView:
    """Return what a plan says. `estimates` say of stages that would or may run what they may take."""
    pipeline = plan.pipeline
    lines = tuple(
        PlanLine(
            stage=name,
            kind=plan.nodes[name].kind,
            decision=decision,
            estimate=(estimates or {}).get(name, NOTHING),
            outputs=_would_write(plan.nodes[name], decision),
            key=(keys or {}).get(name, ""),
            place=pipeline.locate("stages", name),
            network=_may_reach_network(plan.nodes[name]),
            sandbox=_is_confined(plan.nodes[name]),
        )
        for name, decision in decisions.items()
    )
    off = tuple(
        PlanLine(stage=name, kind=one.kind, decision=Skipped(one.condition), place=pipeline.locate("stages", name))
        for name in skipped
        for one in (plan.skipped[name],)
    )
    return PlanView(
        name=pipeline.name,
        file=pipeline.file,
        lines=(*lines, *off),
        models=models_of(pipeline.stages),
        max_llm_calls=pipeline.stop.max_llm_calls,
        max_cost=pipeline.stop.max_cost_usd,
        dead=dead,
        released=released or {},
        groups=_named_groups(plan, decisions),
    )


def _named_groups(plan: Plan, decisions: Mapping[str, Decision]) -> dict[str, tuple[str, ...]]:
    """Return the groups that the pipeline names, each with those of its stages that are planned, sorted."""
    named = {stage.promote for stage in plan.pipeline.stages if stage.promote is not None}
    found = {
        group: tuple(sorted(set(plan.groups[group]) & decisions.keys())) for group in sorted(named & set(plan.groups))
    }
    return {group: names for group, names in found.items() if names}


def models_of(stages: Iterable[Stage | ForeachStage]) -> tuple[str, ...]:
    """Return who answers, as `provider model`, sorted, each once."""
    found: set[str] = set()
    for stage in stages:
        if isinstance(stage, Stage):
            if is_llm(stage.step):
                found.add(f"{stage.step.provider} {stage.step.model}")
            continue
        llm = stage.body.get("llm")
        if isinstance(llm, Mapping):
            found.add(f"{llm.get('provider', '')} {llm.get('model', '')}".strip())
    return tuple(sorted(found - {""}))


def _may_reach_network(node: Stage | ForeachStage) -> bool:
    """Return whether a stage uses the network, in its step or its processes; one whose item decides it may."""
    if isinstance(node, Stage):
        return node.network or node.step.uses_network
    return node.uses_network or node.body.get("network") not in (None, False)


def _is_confined(node: Stage | ForeachStage) -> bool:
    """Say whether a stage keeps its sandbox; one whose item decides it may not."""
    return node.sandbox if isinstance(node, Stage) else node.body.get("sandbox") in (None, "on")


def _would_write(node: Stage | ForeachStage, decision: Decision) -> tuple[str, ...]:
    match decision:
        case Run() | Maybe() | VerifyOnly():
            return node.outputs if isinstance(node, Stage) else ()
        case Restore(record=record):
            return tuple(sorted(record.outputs))
        case Expand():
            return tuple(path for path in node.writes if not is_glob(path)) if isinstance(node, ForeachStage) else ()
        case Fresh() | Blocked() | Edited() | Skipped():
            return ()
        case _ as never:
            assert_never(never)
