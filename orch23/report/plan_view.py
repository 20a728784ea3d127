"""A plan as values: one line per stage with the reasons why it is stale, and sums."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import assert_never, cast, get_args

from msgspec import Struct, field

from orch23.model.action import NAMESPACES_TIER
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json, json_builtin
from orch23.model.event import BatchWaiting
from orch23.model.event_data import EventReason
from orch23.model.parsing import as_mapping, json_at
from orch23.model.paths import is_glob
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import ForeachStage, ListInput, Stage
from orch23.model.plan import (
    EMPTY_ESTIMATE,
    Blocked,
    CallRange,
    Decision,
    Done,
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
from orch23.model.record import Reason, ReasonCode
from orch23.model.text import join_first, visible
from orch23.report.values import truncate
from orch23.steps.registry import is_llm

_MAX_VALUE = 40
_MAX_NAMES = 8
_DIGEST = lazy_pattern(r"([0-9a-f]{12})[0-9a-f]{52}((?:\+x)?(?: -> .*)?)", re.DOTALL)

# A clause for each code; `{}` is replaced by the subject. The subjects in `_SPECIAL_TEXTS` have clauses of their own.
REASON_TEXTS: Mapping[ReasonCode, str] = {
    "first_run": "first run",
    "input_changed": "{} changed",
    "input_added": "{} is a new input",
    "input_removed": "{} is no longer an input",
    "base_changed": "the version of {} that it starts from changed",
    "command_changed": "{} changed",
    "params_changed": "{} changed",
    "prompt_changed": "the {} changed",
    "model_changed": "{} changed",
    "schema_changed": "the schema changed",
    "verify_changed": "verification changed",
    "env_changed": "the environment variable {} changed",
    "tool_changed": "{} changed",
    "salt_changed": "this version of orch23 builds it differently",
    "output_missing": "{} is missing",
    "output_edited": "{} differs from the recorded output",
    "previous_failed": "the last run failed",
    "upstream_maybe": "if the outputs of {} change",
    "forced": "forced",
    "resample": "`--resample` calls its model again",
    "cache_disabled": "`cache: false` is set",
    "tool_cache_empty": "the tool cache {} is empty",
    "claim": "a record says that it passed, but no build of yours verified it",
    "shared_cache": "the shared cache has its result",
}
_SPECIAL_TEXTS: Mapping[tuple[ReasonCode, str], str] = {
    ("prompt_changed", "render"): "the text to render changed",
    ("salt_changed", "salt"): "the salt changed",
    ("output_missing", ""): "its output is missing from the store",
}
REASON_CODES: tuple[str, ...] = get_args(ReasonCode)
# What to say of outputs on disk when they have been restored.
_OF_OUTPUTS: Mapping[str, str] = {"output_missing": "was missing", "output_edited": "had other bytes"}
_AS_THEY_ARE = frozenset({*_OF_OUTPUTS, "shared_cache"})
_WITH_VALUES = frozenset({"command_changed", "params_changed", "model_changed", "tool_changed"})


class PlanLine(Struct, frozen=True, kw_only=True):
    """One stage of a plan. `outputs` are the paths it would write, as far as they are known.

    `edits` are the patterns of other files that it may change. `files` are the inputs and outputs that it declares.

    `network`: the step or its processes use the network. `sandbox`: all its processes run in a sandbox. For a
    foreach without items, both describe the least confined item that is possible. `accept`: the command that keeps an
    edit; `approve`: a clause about its changes that wait for approval, or were rejected. `fails_on_base` are the
    patterns of files that must make its verification fail on the base.
    """

    stage: str
    kind: str
    decision: Decision
    desc: str = ""
    estimate: Estimate = EMPTY_ESTIMATE
    outputs: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    files: Mapping[str, Json] = field(default_factory=lambda: {"inputs": [], "outputs": []})
    key: str = ""
    place: Location | None = None
    network: bool = False
    sandbox: bool = True
    accept: str = ""
    approve: str = ""
    fails_on_base: tuple[str, ...] = ()


class PlanView(Struct, frozen=True, kw_only=True):
    """A whole plan. `groups` are the promotion groups that the pipeline names, each with its stages among `lines`.

    `dead` are files of removed stages that a successful build deletes; `uncertain` those that it deletes unless a stage
    makes them again; `released` are those that stay as source files, with their stages. A plan of what an edit reaches
    has no `lines` for the other stages: `fresh_besides` and `skipped_besides` count them. `waiting` are the batches
    that the last build waits for, `errors` those that a build would find at the stages that run, `warnings` those about
    responses that it will refuse, `sources` the texts that they are in. `would_store` are the stages whose results
    would be stored in the shared cache, `not_shared` maps stages that run to the reasons why the cache is not used for
    them. `tools` are the declared tools outside of the system directories, and where each is, `servers` the
    variables of the environment that name a server, and the server of each.
    """

    name: str
    file: str
    lines: tuple[PlanLine, ...]
    models: tuple[str, ...] = ()
    max_llm_calls: int | None = None
    max_cost: Decimal | None = None
    dead: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    released: Mapping[str, str] = field(default_factory=dict)
    fresh_besides: int = 0
    skipped_besides: int = 0
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    waiting: tuple[BatchWaiting, ...] = ()
    errors: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    would_store: tuple[str, ...] = ()
    not_shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, str] = field(default_factory=dict)

    @property
    def skip_count(self) -> int:
        """Return the number of stages that are switched off."""
        return len(self.skipped) + self.skipped_besides

    @property
    def stage_count(self) -> int:
        """Return the number of stages that are not switched off."""
        return len(self.lines) - len(self.skipped) + self.fresh_besides

    @property
    def stale(self) -> tuple[PlanLine, ...]:
        """Return the stages that are neither fresh nor switched off."""
        return tuple(line for line in self.lines if not isinstance(line.decision, Fresh | Skipped))

    @property
    def skipped(self) -> tuple[PlanLine, ...]:
        """Return the stages that are switched off."""
        return tuple(line for line in self.lines if isinstance(line.decision, Skipped))

    @property
    def would_run(self) -> int:
        """Return the number of stages that a build runs, verifies or restores for certain."""
        return sum(isinstance(line.decision, Run | Restore | VerifyOnly) for line in self.lines)

    @property
    def possible(self) -> int:
        """Return the number of further stages that may run, depending on the outputs of stages before them."""
        decisions = [line.decision for line in self.lines]
        return sum(isinstance(one, Expand) or (isinstance(one, Maybe) and one.may_run) for one in decisions)

    @property
    def is_up_to_date(self) -> bool:
        """Return whether a build would do nothing at all."""
        return not self.stale and not self.dead and not self.released

    @property
    def calls(self) -> CallRange:
        """Return the model calls of all stages, within the limit of the pipeline."""
        return self.calls_of(line.estimate for line in self.lines)

    def calls_of(self, estimates: Iterable[Estimate]) -> CallRange:
        """Return the model calls of some stages, within the limit of the pipeline."""
        calls = [one.calls for one in estimates]
        # One unknown maximum makes the sum unknown, and so do new items. A limit of the pipeline still bounds it.
        known = [one.maximum for one in calls if one.maximum is not None]
        limits = [] if self.max_llm_calls is None else [self.max_llm_calls]
        is_open = any(one.has_new_items for one in calls)
        sums = [sum(known)] if len(known) == len(calls) and not (is_open and limits) else []
        least = min([sum(one.minimum for one in calls), *limits])
        return CallRange(least, min(sums + limits, default=None), has_new_items=is_open and not limits)

    def counts(self) -> dict[str, int]:
        """Return the number of stages of each action, in the order of first appearance; of those with none last."""
        found = Counter[str](line.decision.label for line in self.lines)
        fresh, skipped = found.pop("fresh", 0) + self.fresh_besides, found.pop("skipped", 0) + self.skipped_besides
        return {**found, **({"fresh": fresh} if fresh else {}), **({"skipped": skipped} if skipped else {})}


def plan_view(
    plan: Plan,
    decisions: Mapping[str, Decision],
    *,
    keys: Mapping[str, str] | None = None,
    estimates: Mapping[str, Estimate] | None = None,
    skipped: tuple[str, ...] = (),
) -> PlanView:
    """Return the view of a plan. `estimates` has the stages that run or may run; `skipped` those switched off."""
    pipeline = plan.pipeline
    lines = [
        PlanLine(
            stage=name,
            kind=plan.nodes[name].kind,
            decision=decision,
            desc=plan.nodes[name].desc,
            estimate=(estimates or {}).get(name, EMPTY_ESTIMATE),
            outputs=_would_write(plan.nodes[name], decision),
            edits=plan.nodes[name].edits if isinstance(decision, Run | Maybe | VerifyOnly | Expand) else (),
            files=declared_files(plan.nodes[name]),
            key=(keys or {}).get(name, ""),
            place=pipeline.locate("stages", name),
            network=_may_reach_network(plan.nodes[name]),
            sandbox=_is_confined(plan.nodes[name]),
            accept=pipeline.command_line("accept", name) if isinstance(decision, Edited) else "",
            fails_on_base=_base_tests(plan.nodes[name]) if isinstance(decision, Run | Maybe | VerifyOnly) else (),
        )
        for name, decision in decisions.items()
    ]
    lines += [
        PlanLine(
            stage=name,
            kind=one.kind,
            decision=Skipped(one.condition),
            desc=one.desc,
            place=pipeline.locate("stages", name),
        )
        for name, one in ((name, plan.idle[name]) for name in skipped)
    ]
    return PlanView(
        name=pipeline.name,
        file=pipeline.file,
        lines=tuple(lines),
        models=models_of(pipeline.stages),
        max_llm_calls=pipeline.stop.max_llm_calls,
        max_cost=pipeline.stop.max_cost_usd,
        groups=_named_groups(plan, decisions),
    )


def _named_groups(plan: Plan, decisions: Mapping[str, Decision]) -> dict[str, tuple[str, ...]]:
    named = {stage.promote for stage in plan.pipeline.stages if stage.promote is not None}
    planned = {group: tuple(filter(decisions.__contains__, names)) for group, names in plan.groups.items()}
    return {group: names for group, names in planned.items() if names and group in named}


def models_of(stages: Iterable[Stage | ForeachStage]) -> tuple[str, ...]:
    """Return the models that stages may call, as `provider model`, sorted, each once."""
    return tuple(sorted({model for stage in stages for model in _models_of(stage)}))


def model_names(stages: Iterable[Stage | ForeachStage]) -> dict[str, tuple[str, ...]]:
    """Return the models that each stage may call, by its name; without stages whose models depend on the item."""
    found = {stage.name: tuple(_models_of(stage)) for stage in stages}
    return {name: models for name, models in found.items() if models and not any("${{" in one for one in models)}


def _models_of(stage: Stage | ForeachStage) -> Iterator[str]:
    if isinstance(stage, Stage):
        step = stage.step
        steps = (*step.of_attempts(stage.retry), *step.fallbacks()) if is_llm(step) else ()
        yield from (f"{step.provider} {step.model}" for step in steps)
        return
    llm = stage.body.get("llm")
    if isinstance(llm, Mapping):
        escalate, fallback = json_at(stage.body, "retry", "escalate"), llm.get("fallback")
        listed = [*(escalate if isinstance(escalate, list | tuple) and escalate else ({},))]
        # As it is written: an expression has a value only for an item.
        for one in (*listed, *(fallback if isinstance(fallback, list | tuple) else ())):
            stated = {"model": one} if isinstance(one, str) else as_mapping(one)
            names = [str(stated.get(key, llm.get(key, ""))) for key in ("provider", "model")]
            yield " ".join(names).strip()


def _may_reach_network(node: Stage | ForeachStage) -> bool:
    if isinstance(node, Stage):
        return node.network or node.step.uses_network
    # An expression in the body has a value only for an item: it counts as true.
    return node.uses_network or node.body.get("network") not in (None, False)


def _is_confined(node: Stage | ForeachStage) -> bool:
    return node.sandbox if isinstance(node, Stage) else node.body.get("sandbox") in (None, "on", NAMESPACES_TIER)


def declared_files(node: Stage | ForeachStage) -> dict[str, Json]:
    """Return the inputs of a node and of its verification, as a pipeline has them, and its outputs; for JSON.

    Of a foreach that is not expanded yet, they are the patterns that its items may read and write.
    """
    if isinstance(node, ForeachStage):
        return {"inputs": list(node.reads), "outputs": list(node.writes), **_edits(node)}
    found: list[Json] = []
    for one in (*node.inputs, *node.verify.inputs):
        found.append({"list": one.text} if isinstance(one, ListInput) else one.text)
        found += [f"!{pattern}" for pattern in getattr(one, "exclude", ())]
    return {"inputs": found, "outputs": list(node.required_outputs), **_edits(node)}


def _base_tests(node: Stage | ForeachStage) -> tuple[str, ...]:
    return node.verify.fails_on_base if isinstance(node, Stage) else ()


def _edits(node: Stage | ForeachStage) -> dict[str, Json]:
    return {"edits": list(node.edits)} if node.edits else {}


def _would_write(node: Stage | ForeachStage, decision: Decision) -> tuple[str, ...]:
    match decision:
        case Restore(record=record):
            return tuple(sorted(record.outputs))
        case Maybe(may_run=False):
            return ()
        case Run() | Maybe() | VerifyOnly() if isinstance(node, Stage):
            return node.required_outputs
        case Expand() if isinstance(node, ForeachStage):
            return tuple(path for path in node.writes if not is_glob(path) and path not in node.edits)
        case _:
            return ()


def reason_text(reason: Reason) -> str:
    """Return a reason as a clause."""
    code, subject = reason.code, visible(reason.subject)
    text = _SPECIAL_TEXTS.get((code, reason.subject)) or REASON_TEXTS[code].format(subject)
    if code in _WITH_VALUES:
        return text + _values(reason)
    _, _, aspect = subject.partition(":")
    return f"{text}: {aspect}" if code == "verify_changed" and aspect else text


def event_reason_text(reason: EventReason) -> str:
    """Return the reason of an event as a clause, empty if its code is not known: another version wrote the journal."""
    if reason.code not in REASON_CODES:
        return ""
    return reason_text(Reason(cast("ReasonCode", reason.code), reason.subject))


def _values(reason: Reason) -> str:
    old, new = reason.old, reason.new
    if not (isinstance(old, str | int | float) and isinstance(new, str | int | float)):
        return ""
    then, now = short_value(old), short_value(new)
    return f": {then} -> {now}" if then != now else ""  # two long values can be equal as far as they are shown


_DONE_TEXT = "its result is committed, and its files are yours: it runs again only if its task text changes"


def reason_texts(decision: Decision) -> tuple[str, ...]:
    """Return every reason of a decision as a clause, the most important first."""
    match decision:
        case Fresh():
            return (_DONE_TEXT,) if isinstance(decision, Done) else ()
        case VerifyOnly(adopted=edits) if edits:
            return (f"{_list(edits)} was edited by a user, who committed or accepted the edit",)
        case Restore(reasons=reasons) | VerifyOnly(reasons=reasons) | Run(reasons=reasons):
            texts = _restore_texts(reasons) if isinstance(decision, Restore) else map(reason_text, reasons)
            return (*texts, *end_texts(decision))
        case Maybe(waiting_on=waiting, edits=edits):
            paths = edits.paths if edits is not None else ()
            formatted = f"maybe edited: {_list(paths)} (a build formats the result, too, and compares)"
            return (
                REASON_TEXTS["upstream_maybe"].format(_list(waiting)) if waiting else formatted,
                *end_texts(decision),
            )
        case Expand(waiting_on=waiting, last_count=last):
            known = f"; {last} items last time" if last else ""
            return (f"its items are known after {_list(waiting)} has run{known}", *end_texts(decision))
        case Blocked(by=by):
            return (f"blocked by {_list(by)}",) if by else ()
        case Edited(descriptions=clauses):
            return tuple(map(visible, clauses))
        case Skipped():
            return (visible(str(decision)),)
        case _ as never:
            assert_never(never)


def end_texts(decision: Decision) -> tuple[str, ...]:
    """Return how a run ends if its result differs from edits of the user, as clauses."""
    match decision:
        case Maybe(waiting_on=()):
            return ()
        case Run(edits=Edited(descriptions=clauses)) | Maybe(edits=Edited(descriptions=clauses)):
            return tuple(f"may end as edited ({visible(clause)})" for clause in clauses)
        case Expand(at_stake=files) if files:
            return (f"may replace or remove {first_names(files)}: `orch23 release` of this stage keeps them",)
        case _:
            return ()


def _restore_texts(reasons: Sequence[Reason]) -> tuple[str, ...]:
    first, *others = map(reason_text, reasons) if reasons else ("a later stage needs this version",)
    is_change = bool(reasons) and reasons[0].code not in _AS_THEY_ARE
    return (_as_before(first) if is_change else first, *others)


def _as_before(clause: str) -> str:
    # A change is a reason to run: the text has to say why the stage does not.
    return f"{clause} back" if clause.endswith(" changed") else f"{clause}; an earlier result has the same inputs"


def restored_because(reasons: Sequence[EventReason]) -> str:
    """Return in a few words why files were restored, after these files; an empty text if it is not known."""
    first = next(iter(reasons), None)
    text = "" if first is None else event_reason_text(first)
    if first is None or not text:
        return ""
    return _OF_OUTPUTS.get(first.code) or (text if first.code in _AS_THEY_ARE else _as_before(text))


def first_reason(clauses: tuple[str, ...]) -> str:
    """Return the first clause, and the number of the others."""
    if not clauses:
        return ""
    more = f", +{len(clauses) - 1} more" if len(clauses) > 1 else ""
    return f"{clauses[0]}{more}"


def short_value(value: Json) -> str:
    """Return a value of a manifest in a few characters: a digest by its first 12 digits, a long text truncated."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=json_builtin)
    if digest := _DIGEST.fullmatch(text):
        return visible(digest[1] + digest[2])
    return truncate(visible(text).replace("\n", " "), _MAX_VALUE)


def first_names(names: Iterable[str]) -> str:
    """Return the first 8 names, each once, and the number of the others: `a b and 3 more`."""
    return visible(join_first([*dict.fromkeys(names)], _MAX_NAMES, " "))


def _list(names: Sequence[str]) -> str:
    return visible(", ".join(names)) if names else "an earlier stage"


def base_tests_text(line: PlanLine) -> str:
    """Return what the verification of a stage must show on its base."""
    tests = visible(", ".join(line.fails_on_base))
    return f"then verifies the base with {tests} of the result: a test must fail there"


def edit_hint(line: PlanLine) -> str:
    """Return the two ways to go on with a stage whose outputs the user has edited."""
    return f"`{visible(line.accept)}` keeps the edit, `--overwrite-edited` discards it"
