"""What led to the work of a run: which changes, which stages they made run, and where the work ended early."""

from collections.abc import Sequence

from orch23.features.pages.html.page import ImpactView, Row
from orch23.features.pages.html.texts import Anchors
from orch23.model.event_data import EventReason
from orch23.model.run_facts import RunFacts, StageFacts
from orch23.model.text import join_first
from orch23.report.plan_view import event_reason_text
from orch23.report.values import pluralize

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
