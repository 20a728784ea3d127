"""What led to the work of a run (changes, and the stages that these made run), and the run beside the one before it."""

from collections.abc import Sequence
from decimal import Decimal

from orch23.features.pages.html.page import ComparisonRow, ComparisonView, ImpactView, Row, run_badge, stage_badge
from orch23.features.pages.html.texts import Anchors, large_families
from orch23.model.event_data import EventReason
from orch23.model.run_facts import RunCost, RunFacts, StageFacts
from orch23.model.text import format_duration, format_money, join_first
from orch23.report.plan_view import event_reason_text
from orch23.report.values import format_counts, money_text, pluralize

_MAX_STAGES = 24
# A difference of time that is worth a row: seconds, and share of the longer time.
_SECONDS = 0.5
_SHARE = 0.25


def compare_runs(then: RunFacts, now: RunFacts, anchors: Anchors) -> ComparisonView:
    """Return the totals of both runs, and the stages whose result, calls, attempts or time differ.

    Stages that failed or called a model come first. For a foreach with many items only the number is given.
    """
    large = large_families((one.name, one.family) for one in now.stages.values())
    single: list[tuple[int, ComparisonRow]] = []
    folded: dict[str, int] = {}
    for stage in now.stages.values():
        former = then.stages.get(stage.name)
        row = _stage(former, stage, anchors)
        if row is None:
            continue
        weight = _weight(former, stage)
        if stage.family in large and weight:
            folded[stage.family] = folded.get(stage.family, 0) + 1
        else:
            single.append((weight, row))
    single.sort(key=lambda one: one[0])
    rows = [row for _, row in single]
    rows += [
        ComparisonRow(family, "", "", f"{pluralize(number, 'item')} differ", anchors.of_group(family))
        for family, number in folded.items()
    ]
    gone = [name for name in then.stages if name not in now.stages] if now.stages else []
    notes = [f"{pluralize(len(rows) - _MAX_STAGES, 'more stage')} differ."] if len(rows) > _MAX_STAGES else []
    if not then.stages:
        notes.append("Nothing had changed before that run, so it names no stages.")
    elif gone:
        notes.append(f"{pluralize(len(gone), 'stage')} of that run did not take part in this one.")
    return ComparisonView(
        run_id=then.run_id,
        totals=_totals(then, now),
        stages=tuple(rows[:_MAX_STAGES]) if then.stages else (),
        note=" ".join(notes),
    )


def _weight(then: StageFacts | None, now: StageFacts) -> int:
    """Return 0 for a stage that failed in one of the runs, 1 for one with model calls, else 2."""
    both = [now, *([then] if then is not None else [])]
    if any(stage_badge(one.status).tone == "bad" for one in both):
        return 0
    return 1 if any(one.cost.calls for one in both) else 2


def _totals(then: RunFacts, now: RunFacts) -> tuple[ComparisonRow, ...]:
    return (
        ComparisonRow("Result", run_badge(then.status).word, run_badge(now.status).word),
        ComparisonRow("Stages", format_counts(then.counts) or "-", format_counts(now.counts) or "-"),
        ComparisonRow(
            "Time", format_duration(then.last_s), format_duration(now.last_s), _seconds(now.last_s - then.last_s)
        ),
        _numbers("Calls", then.cost.calls, now.cost.calls),
        _numbers("Recorded responses", then.cost.recorded, now.cost.recorded),
        _tokens(then.cost, now.cost),
        ComparisonRow("Cost", cost_text(then.cost), cost_text(now.cost), _money(then.cost, now.cost)),
    )


def _numbers(name: str, then: int, now: int) -> ComparisonRow:
    return ComparisonRow(name, f"{then:,}", f"{now:,}", _number(now - then))


def _tokens(then: RunCost, now: RunCost) -> ComparisonRow:
    before, after = (one.input_tokens + one.output_tokens for one in (then, now))
    unknown_then, unknown_now = has_unknown_tokens(then), has_unknown_tokens(now)
    return ComparisonRow(
        "Tokens",
        "not known" if unknown_then else f"{before:,}",
        "not known" if unknown_now else f"{after:,}",
        "" if unknown_then or unknown_now else _number(after - before),
    )


def has_unknown_tokens(cost: RunCost) -> bool:
    """Return whether a provider did not report the tokens of a call, such as one that was interrupted."""
    return bool(cost.unanswered or (cost.calls and not cost.input_tokens and not cost.output_tokens))


def cost_text(cost: RunCost) -> str:
    """Return what calls cost, and what may have been charged besides."""
    return "price unknown" if cost.paid is None else money_text(cost.paid, cost.possible or Decimal(0))


def _stage(then: StageFacts | None, now: StageFacts, anchors: Anchors) -> ComparisonRow | None:
    after = _words(now)
    link = anchors.of_stage(now.name)
    if then is None:
        return ComparisonRow(now.name, "not part of it", after, link=link) if now.has_run else None
    before = _words(then)
    longer = max(then.duration_s or 0.0, now.duration_s or 0.0)
    change = (now.duration_s or 0.0) - (then.duration_s or 0.0)
    both_ran = then.has_run and now.has_run
    is_slower = both_ran and abs(change) >= max(_SECONDS, _SHARE * longer)
    if then.status == now.status and _work(then) == _work(now) and not is_slower:
        return None
    return ComparisonRow(now.name, before, after, _seconds(change) if is_slower else "", link)


def _work(stage: StageFacts) -> tuple[int, int, int]:
    return len(stage.attempts), stage.cost.calls, stage.cost.recorded


def _words(stage: StageFacts) -> str:
    facts = [stage_badge(stage.status).word]
    facts += [pluralize(len(stage.attempts), "attempt")] if len(stage.attempts) > 1 else []
    facts += [pluralize(stage.cost.calls, "call")] if stage.cost.calls else []
    facts += [f"{stage.cost.recorded} recorded"] if stage.cost.recorded else []
    facts += [format_duration(stage.duration_s)] if stage.duration_s else []
    return ", ".join(facts)


def _number(change: int) -> str:
    return f"{change:+,}" if change else ""


def _seconds(change: float) -> str:
    sign = "+" if change > 0 else "-"
    return f"{sign}{format_duration(abs(change))}" if abs(change) >= 0.05 else ""  # noqa: PLR2004 - shown as 0.0s


def _money(then: RunCost, now: RunCost) -> str:
    if then.paid is None or now.paid is None or then.paid == now.paid:
        return ""
    change = now.paid - then.paid
    return f"{'+' if change > Decimal(0) else '-'}{format_money(abs(change))}"


MAX_ROWS = 24
_WITH_PATH = frozenset({"input_changed", "input_added", "input_removed", "base_changed"})


def describe_impact(run: RunFacts, anchors: Anchors) -> ImpactView:
    """Return the causes of the run's work. A stage without a cause of its own follows the stages that it reads from."""
    writers = {path: one.name for one in run.stages.values() if one.ended for path in one.ended.outputs}
    causes: dict[str, list[Row]] = {}
    followers = []
    for stage in run.stages.values():
        if stage.decided is None or stage.decided.decision in ("fresh", "done", "edited"):
            continue
        own, after = _split(stage, writers, run)
        for clause in own:
            causes.setdefault(clause, []).append(Row(stage.name, "", anchors.of_stage(stage.name)))
        if after and not own:
            followers.append(Row(stage.name, join_first(after, 3, "; "), anchors.of_stage(stage.name)))
    cutoffs = [
        Row(stage.name, _cutoff(stage, run), anchors.of_stage(stage.name))
        for stage in run.stages.values()
        if stage.ended is not None and stage.ended.unchanged and stage.has_run
    ]
    return ImpactView(
        causes=tuple((clause, _first(rows)) for clause, rows in [*causes.items()][:MAX_ROWS]),
        followers=_first(followers),
        cutoffs=_first(cutoffs),
        note="" if causes or followers else "Nothing had to run.",
    )


def _split(stage: StageFacts, writers: dict[str, str], run: RunFacts) -> tuple[list[str], list[str]]:
    own: list[str] = []
    after: list[str] = []
    for reason in stage.decided.reasons if stage.decided else ():
        writer = writers.get(_path(reason)) if reason.code in _WITH_PATH else None
        if writer is not None and writer != stage.name and run.stages[writer].has_run:
            after.append(f"{writer} wrote {_path(reason)}")
        else:
            own.append(event_reason_text(reason) or reason.code)
    return own, after


def _path(reason: EventReason) -> str:
    return reason.subject.partition("#")[0]


def _cutoff(stage: StageFacts, run: RunFacts) -> str:
    readers = [one for one in run.stages.values() if stage.name in one.needs or stage.family in one.needs]
    spared = [one.name for one in readers if one.status == "fresh"]
    same = "wrote the same bytes as before"
    return f"{same}, so {join_first(spared, 4)} stayed fresh" if spared else same


def _first(rows: Sequence[Row]) -> tuple[Row, ...]:
    more = len(rows) - MAX_ROWS
    return (*rows[:MAX_ROWS], Row(f"and {pluralize(more, 'more stage')}", "")) if more > 0 else tuple(rows)
