"""A plan as values: one line per stage with the reasons why it is stale, and sums."""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import assert_never

from msgspec import Struct, field

from orch23.model.diagnostic import Location
from orch23.model.digest import Json
from orch23.model.paths import is_glob
from orch23.model.pipeline import DEFAULT_PIPELINE, ForeachStage, Stage
from orch23.model.plan import (
    EMPTY_ESTIMATE,
    Blocked,
    CallRange,
    Decision,
    Edited,
    Estimate,
    Expand,
    Fresh,
    Maybe,
    Plan,
    Restore,
    Run,
    Skipped,
    VerifyOnly,
)
from orch23.model.record import Reason
from orch23.report.diagnostics import visible
from orch23.report.values import plain_value
from orch23.steps.registry import is_llm


class PlanLine(Struct, frozen=True, kw_only=True):
    """One stage of a plan. `outputs` are the paths it would write, as far as they are known.

    `sandbox` is what its processes would have, and `network` what these or a download would; what an item of a foreach
    may turn out to have counts.
    """

    stage: str
    kind: str
    decision: Decision
    estimate: Estimate = EMPTY_ESTIMATE
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
    def calls(self) -> CallRange:
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
    def is_up_to_date(self) -> bool:
        """Say whether a build would do nothing at all."""
        return not self.stale and not self.dead and not self.released

    @property
    def calls(self) -> CallRange:
        """Give the requests of all stages together, within the limit of the pipeline."""
        least, most = sum(line.calls.minimum for line in self.lines), 0
        for line in self.lines:
            if line.calls.maximum is None:
                return CallRange(least, self.max_llm_calls)
            most += line.calls.maximum
        return CallRange(least, most if self.max_llm_calls is None else min(most, self.max_llm_calls))

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
            estimate=(estimates or {}).get(name, EMPTY_ESTIMATE),
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


_SHORT = 40
_DIGEST_DIGITS = 64


def reason_text(reason: Reason) -> str:  # noqa: C901, PLR0911, PLR0912 - one a code; mypy proves that none is missing
    """Return a reason as a clause."""
    subject = visible(reason.subject)
    match reason.code:
        case "first_run":
            return "first run"
        case "input_changed":
            return f"{subject} changed"
        case "input_added":
            return f"{subject} is a new input"
        case "input_removed":
            return f"{subject} is no input any more"
        case "base_changed":
            return f"the version of {subject} that it starts from changed"
        case "command_changed" | "params_changed":
            return _changed(subject, reason)
        case "prompt_changed":
            return f"the {'text to render' if subject == 'render' else subject} changed"
        case "model_changed":
            return _changed(subject, reason)
        case "schema_changed":
            return "the schema changed"
        case "verify_changed":
            return f"verification changed{_what(subject)}"
        case "env_changed":
            return f"the environment variable {subject} changed"
        case "tool_changed":
            return _changed(subject, reason)
        case "salt_changed":
            return "the salt changed" if subject == "salt" else "orch23 makes something else of it now"
        case "output_missing":
            return f"{subject} is missing" if subject else "its bytes are lost"
        case "output_edited":
            return f"{subject} has other bytes"
        case "previous_failed":
            return "it failed when it last ran"
        case "upstream_maybe":
            return f"if what {subject} writes changes"
        case "forced":
            return "forced"
        case "cache_disabled":
            return "it says `cache: false`"
        case "claim":
            return "only the lock file says that it passed"
        case _ as never:
            assert_never(never)


def reason_texts(decision: Decision) -> tuple[str, ...]:
    """Return every reason of a decision as a clause, the most telling first."""
    match decision:
        case Fresh():
            return ()
        case Restore(reasons=reasons):
            return tuple(reason_text(one) for one in reasons) or ("a later stage needs this version",)
        case VerifyOnly(reasons=reasons) | Run(reasons=reasons):
            edits = decision.adopted if isinstance(decision, VerifyOnly) else ()
            edit = f"{_list(edits)} has a user's edit, committed or accepted"
            return (edit,) if edits else tuple(reason_text(one) for one in reasons)
        case Maybe(waiting_on=waiting):
            return (f"if what {_list(waiting)} writes changes",)
        case Expand(waiting_on=waiting, last_count=last):
            known = f"; {last} items last time" if last else ""
            return (f"its items are known after {_list(waiting)} has run{known}",)
        case Blocked(by=by):
            return (f"blocked by {_list(by)}",) if by else ()
        case Edited() as edited:
            return tuple(map(visible, edited.descriptions))
        case Skipped(condition=condition):
            return (f"`if` is false: {visible(condition)}",)
        case _ as never:
            assert_never(never)


def first_reason(clauses: tuple[str, ...]) -> str:
    """Return the first clause, and how many there are besides."""
    if not clauses:
        return ""
    more = f", +{len(clauses) - 1} more" if len(clauses) > 1 else ""
    return f"{clauses[0]}{more}"


def short_value(value: Json) -> str:
    """Return a value of a manifest on a few characters: a digest by its first digits, a long text cut."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=plain_value)
    digits = text.partition(" -> ")[0].removesuffix("+x")
    if len(digits) == _DIGEST_DIGITS and all(c in "0123456789abcdef" for c in digits):
        return visible(digits[:12] + text[len(digits) :])
    text = visible(text).replace("\n", " ")
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def _changed(subject: str, reason: Reason) -> str:
    old, new = reason.old, reason.new
    if isinstance(old, str | int | float) and isinstance(new, str | int | float):
        then, now = short_value(old), short_value(new)
        if then != now:
            return f"{subject} changed: {then} -> {now}"
    return f"{subject} changed"


def _what(aspect: str) -> str:
    _, _, subject = aspect.partition(":")
    return f": {subject}" if subject else ""


def _list(names: tuple[str, ...]) -> str:
    return visible(", ".join(names)) if names else "an earlier stage"


def pipeline_arguments(file: str) -> list[str]:
    """Return how a command names a pipeline: not at all, if it is the one that every command takes by itself."""
    return [] if file == DEFAULT_PIPELINE else [visible(file)]


def edit_hint(line: PlanLine) -> str:
    """Return the two ways out for a stage whose outputs a person has edited."""
    accept = " ".join(
        ["orch23 accept", *(pipeline_arguments(line.place.file) if line.place else ()), visible(line.stage)]
    )
    return f"`{accept}` keeps the edit, `--overwrite-edited` gives it up"
