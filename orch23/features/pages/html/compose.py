"""Compose the page of a run from its facts."""

from collections.abc import Callable, Sequence
from decimal import Decimal

from msgspec import UNSET, Struct

from orch23.features.pages.html.attempts import (
    Changes,
    attempt_texts,
    attempt_view,
    first_failing,
    payment,
    shown_command,
)
from orch23.features.pages.html.comparison import compare_runs, cost_text, describe_impact
from orch23.features.pages.html.graph import draw_graph, draw_timeline
from orch23.features.pages.html.metrics import NO_METRICS, MetricsHistory, describe_metrics
from orch23.features.pages.html.page import (
    Fact,
    FailureView,
    Row,
    RunPage,
    SentRow,
    SentView,
    StageGroup,
    StageView,
    count_words,
    run_badge,
    stage_badge,
    worst_badge,
)
from orch23.features.pages.html.texts import (
    Anchors,
    LongText,
    TextReader,
    cut_text,
    fair_limit,
    html_size,
    large_families,
    read_limit,
    total_limit,
)
from orch23.model.event import FROM_SHARED_CACHE
from orch23.model.event_data import SentFile
from orch23.model.run_facts import RunFacts, StageFacts
from orch23.model.text import format_duration, format_money, join_first, parse_amount
from orch23.report.plan_view import event_reason_text
from orch23.report.shared_cache import shared_cache_clauses
from orch23.report.stage_text import not_run_lines
from orch23.report.values import LINE_WIDTH, format_counts, pluralize, truncate

# Up to so many stages with nothing to do have a row of their own.
_MAX_IDLE = 32
_MAX_MEMBERS = 1_000
# With more attempts than this, those that passed show prompt and response only.
_MANY_ATTEMPTS = 600
_MAX_FAILURES = 20
_MAX_EXCERPT = 4_000
_MAX_TESTS = 10
_MAX_NOTES = 20
_MAX_REASON = 160
_MAX_PATHS = 12
_IDLE = frozenset({"fresh", "done", "skipped", "waiting"})
_FAILED = frozenset({"failed", "edited"})
_DIGITS = 16


class PageSources(Struct, frozen=True, kw_only=True):
    """What a page needs besides the journal: texts of attempts, changes to outputs, earlier metrics, redaction.

    `generated` are facts about the program that writes the page, `notes` what the reader of the page should know first.
    """

    read: TextReader
    redact: Callable[[str], str]
    # Without the store, none are known.
    changes: Changes = lambda _stage, _key: ()
    generated: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    metrics: MetricsHistory = NO_METRICS


class _StageTexts(Struct, frozen=True):
    attempts: dict[int, list[LongText]]
    changes: Sequence[LongText]


def compose_page(run: RunFacts, sources: PageSources, former: RunFacts | None = None) -> RunPage:
    """Return the page of a run, compared with a former run if there is one."""
    anchors = Anchors()
    attempts = sum(len(one.attempts) for one in run.stages.values())
    longest_read = read_limit(attempts)
    brief = attempts > _MANY_ATTEMPTS
    texts = {one.name: _texts(one, sources, longest_read, brief=brief) for one in run.stages.values() if one.has_run}
    every = [text for one in texts.values() for group in (*one.attempts.values(), one.changes) for text in group]
    limit = fair_limit([html_size(one.text) for one in every], total_limit(attempts))
    longest = max((one.duration_s or 0.0 for one in run.stages.values()), default=0.0)
    views = {
        one.name: _stage_view(one, texts.get(one.name), limit, longest, sources, anchors) for one in run.stages.values()
    }
    began = run.began
    return RunPage(
        title=began.name or began.pipeline or run.run_id,
        badge=run_badge(run.status),
        verdict=_verdict(run),
        subtitle=_subtitle(run),
        totals=_totals(run),
        failures=_failures(run, anchors),
        notes=(*sources.notes, *_notes(run)),
        graph=draw_graph(run, anchors),
        timeline=draw_timeline(run, anchors),
        impact=describe_impact(run, anchors),
        blocks=_blocks(run, views, anchors),
        comparison=compare_runs(former, run, anchors) if former is not None else None,
        metrics=describe_metrics(run, sources.metrics, sources.redact),
        sent=sent_by_receiver(run),
        provenance=_provenance(run),
        versions=_versions(run, sources),
        generated=run.run_id,
    )


# ---- head -----------------------------------------------------------------------------------------


def _verdict(run: RunFacts) -> str:
    counts = {stage_badge(status).word: number for status, number in run.counts.items()}
    stages = f"{pluralize(sum(counts.values()), 'stage')}: {format_counts(counts)}" if counts else "no stages"
    verdict = f"{stages}." if run.stages or not counts else f"Nothing had changed. {stages}."
    return " ".join([verdict, *(f"{line}." for line in not_run_lines(run.ends, LINE_WIDTH))])


def _subtitle(run: RunFacts) -> str:
    models = " ".join((", ".join(run.began.provider), ", ".join(run.began.model))).strip()
    parts = (run.began.pipeline, run.started_at[:19].replace("T", " ") + " UTC" if run.started_at else "", models)
    return " · ".join(filter(None, parts))


def _totals(run: RunFacts) -> tuple[Fact, ...]:
    cost, limits = run.cost, run.began.limits
    ended = run.ended
    of_calls = "" if limits is UNSET or limits.max_llm_calls is None else f"limit {limits.max_llm_calls:,}"
    of_tokens = "" if limits is UNSET or limits.max_tokens is None else f"limit {limits.max_tokens:,}"
    amount = None if limits is UNSET else parse_amount(limits.max_cost_usd)
    of_cost = f"limit {format_money(amount)}" if amount is not None else ""
    before = parse_amount(ended.before.cost) if ended is not None else None
    if before:
        of_cost = f"{of_cost}, " * bool(of_cost) + f"{format_money(before)} before an interruption"
    reused = sum(number for status, number in run.counts.items() if status in ("fresh", "restored"))
    jobs = f"at most {pluralize(run.began.jobs, 'stage')} at once" if run.began.jobs else ""
    facts = [
        Fact("Time", format_duration(run.last_s), jobs),
        Fact("Model calls", f"{cost.calls:,}", of_calls or _unanswered(run)),
        _tokens(run, of_tokens),
        Fact("Cost", cost_text(cost), of_cost),
        Fact("Recorded responses", f"{cost.recorded:,}", _saved(run)),
        Fact("Stages reused", f"{reused:,}", "fresh or restored; they did not run"),
    ]
    if cost.cache_read_tokens or cost.cache_write_tokens:
        effect = "saved" if cost.cache_saved >= 0 else "cost"
        note = f"{effect} {format_money(abs(cost.cache_saved))}"
        facts.append(Fact("Prompt cache", f"{cost.cache_read_tokens:,} tokens read", note))
    if run.shared_cache is not None and (clauses := shared_cache_clauses(run.shared_cache)):
        facts.append(Fact("Shared cache", clauses[0], ", ".join(clauses[1:])))
    return tuple(facts)


def _tokens(run: RunFacts, limit: str) -> Fact:
    cost = run.cost
    if cost.calls and not cost.input_tokens and not cost.output_tokens:
        return Fact("Tokens", "not known", limit or "the provider reports none")
    # Without a call, a reader asks what the tokens are of.
    of_recorded = " of recorded responses" if cost.recorded and not cost.calls else ""
    note = f"input + output{of_recorded}" if cost.calls or cost.recorded else ""
    return Fact("Tokens", f"{cost.input_tokens:,} + {cost.output_tokens:,}", limit or note)


def _unanswered(run: RunFacts) -> str:
    parts = [f"{run.cost.unanswered:,} without a response"] if run.cost.unanswered else []
    parts += [f"{run.cost.unusable:,} without a usable response"] if run.cost.unusable else []
    return ", ".join(parts)


def _saved(run: RunFacts) -> str:
    if not run.cost.recorded:
        return ""
    saved = run.cost.saved
    if saved is None and _prices(run) == ("free",):
        return "no call needed"
    amount = "their price is not known" if saved is None else f"saved {format_money(saved)}"
    return f"no call needed, {amount}" if saved is None or saved > Decimal(0) else "no call needed"


def _notes(run: RunFacts) -> tuple[str, ...]:
    more = len(run.notes) - _MAX_NOTES
    return (*run.notes[:_MAX_NOTES], *([f"{pluralize(more, 'more warning')}: `orch23 log {run.run_id}`"] * (more > 0)))


def _failures(run: RunFacts, anchors: Anchors) -> tuple[FailureView, ...]:
    found: list[FailureView] = []
    for stage in run.stages.values():
        end = stage.ended
        if end is None or stage.status not in _FAILED or len(found) == _MAX_FAILURES:
            continue
        excerpt = truncate(end.failure.strip("\n"), _MAX_EXCERPT)
        first = stage.message.partition("\n")[0]
        is_silent = end.exit_code is not UNSET and not end.failure.strip()
        found.append(
            FailureView(
                anchor=anchors.of_stage(stage.name),
                name=stage.name,
                message=f"{first}; it printed nothing" if is_silent else first,
                command=shown_command(end.command) if end.command else "",
                excerpt="" if excerpt == first else excerpt,
                hints=_hints(stage),
                failing=_failing(stage),
            )
        )
    return tuple(found)


def _failing(stage: StageFacts) -> tuple[str, ...]:
    ends = [one.ended for _, one in sorted(stage.attempts.items()) if one.ended is not None]
    return first_failing(ends[-1].failing if ends else (), _MAX_TESTS)


def _hints(stage: StageFacts) -> tuple[str, ...]:
    problems = stage.ended.problems[:_MAX_NOTES] if stage.ended is not None else ()
    return tuple(f"{one.code}: {one.message}" + (f" - {one.hint}" if one.hint else "") for one in problems)


# ---- stages ---------------------------------------------------------------------------------------


def _texts(stage: StageFacts, sources: PageSources, limit: int, *, brief: bool) -> _StageTexts:
    changes = sources.changes(stage.name, stage.key) if stage.key and stage.has_run else ()
    return _StageTexts(attempt_texts(stage, sources.read, limit, brief=brief), changes)


def _stage_view(
    stage: StageFacts, texts: _StageTexts | None, limit: int, longest: float, sources: PageSources, anchors: Anchors
) -> StageView:
    cost, seconds = stage.cost, stage.duration_s
    kept = texts or _StageTexts({}, ())
    has_calls = bool(cost.calls or cost.recorded)
    # If a stage could not run, the reason says as much.
    is_plain = stage.message == stage.status or (stage.ended is not None and stage.ended.by)
    message = "" if is_plain else stage.message.partition("\n")[0]
    return StageView(
        anchor=anchors.of_stage(stage.name),
        name=stage.name,
        kind=stage.kind,
        badge=stage_badge(stage.status),
        reason=_reason(stage),
        attempts=f"{len(stage.attempts)}" if stage.attempts else "",
        calls=_calls(stage),
        tokens=f"{cost.input_tokens:,}+{cost.output_tokens:,}" if cost.input_tokens or cost.output_tokens else "",
        cost=cost_text(cost) if cost.calls else ("$0" if has_calls else ""),
        time="" if seconds is None else format_duration(seconds),
        share=(seconds or 0.0) / longest if longest else 0.0,
        message=message,
        hints=_hints(stage),
        facts=_facts(stage) if stage.has_run or stage.written or stage.removed else (),
        tries=tuple(
            attempt_view(attempt, _cut(kept.attempts.get(number, []), limit, sources))
            for number, attempt in sorted(stage.attempts.items())
        ),
        changes=_cut(kept.changes, limit, sources),
    )


def _cut(texts: Sequence[LongText], limit: int, sources: PageSources) -> tuple[LongText, ...]:
    return tuple(cut_text(one, limit, sources.redact) for one in texts)


def _calls(stage: StageFacts) -> str:
    parts = [f"{stage.cost.calls:,}"] if stage.cost.calls else []
    parts += [f"{stage.cost.recorded:,} recorded"] if stage.cost.recorded else []
    parts += [f"{stage.ended.by_hand:,} by hand"] if stage.ended is not None and stage.ended.by_hand else []
    return ", ".join(parts)


def _reason(stage: StageFacts) -> str:
    if stage.ended is not None and stage.ended.by:
        return f"needs {', '.join(stage.ended.by[:3])}"
    reasons = stage.decided.reasons if stage.decided is not None else ()
    is_shared = stage.message == FROM_SHARED_CACHE
    clauses = ["from the shared cache"] if is_shared else []
    clauses += [event_reason_text(one) or one.code for one in reasons if not (is_shared and one.code == "shared_cache")]
    text = "; ".join(clauses[:2]) + (f"; {len(clauses) - 2} more" if len(clauses) > 2 else "")  # noqa: PLR2004 - two
    return truncate(text, _MAX_REASON)


def _facts(stage: StageFacts) -> tuple[Row, ...]:
    rows = [Row("key", stage.key[:_DIGITS])] if stage.key else []
    rows += [Row("wrote", join_first(stage.written, _MAX_PATHS))] if stage.written else []
    rows += [Row("removed", join_first(stage.removed, _MAX_PATHS))] if stage.removed else []
    if stage.ended is not None and stage.ended.unchanged:
        rows.append(Row("result", "the same bytes as before"))
    rows += [Row("sent again after", ", ".join(stage.retries[:8]))] if stage.retries else []
    rows += [Row("waits for", join_first(stage.withheld_for, _MAX_PATHS))] if stage.withheld_for else []
    return tuple(rows)


def _blocks(run: RunFacts, views: dict[str, StageView], anchors: Anchors) -> tuple[StageView | StageGroup, ...]:
    """Return the rows. Items of a large foreach are one group, in place of the first; many idle stages the last one."""
    stages = run.stages.values()
    large = large_families((one.name, one.family) for one in stages)
    idle = [one for one in stages if one.status in _IDLE and not one.has_run and one.family not in large]
    folded = frozenset(one.name for one in idle) if len(idle) > _MAX_IDLE else frozenset()
    rows: dict[str, list[StageView]] = {}
    for stage in stages:
        if stage.name not in folded:
            rows.setdefault(stage.family if stage.family in large else stage.name, []).append(views[stage.name])
    blocks = [
        _group(anchors.of_group(name), name, f"{pluralize(len(members), 'item')}: ", members)
        if name in large
        else members[0]
        for name, members in rows.items()
    ]
    if folded:
        title = f"{pluralize(len(idle), 'stage')} with nothing to do"
        blocks.append(_group("idle", title, "", [views[one.name] for one in idle]))
    return tuple(blocks)


def _group(anchor: str, title: str, summary: str, members: Sequence[StageView]) -> StageGroup:
    """Return a group with its first 1,000 stages: those that failed first, then those that ran."""
    ordered = sorted(members, key=lambda one: (one.badge.tone != "bad", not one.tries))
    more = len(ordered) - _MAX_MEMBERS
    return StageGroup(
        anchor=anchor,
        title=title,
        summary=summary + count_words(one.badge for one in members),
        badge=worst_badge(one.badge for one in members),
        stages=tuple(ordered[:_MAX_MEMBERS]),
        more=f"{pluralize(more, 'more stage')} not shown; `orch23 log` lists all." if more > 0 else "",
    )


# ---- origin ---------------------------------------------------------------------------------------


def _prices(run: RunFacts) -> tuple[str, ...]:
    return tuple(dict.fromkeys(table for stage in run.stages.values() for table in stage.cost.prices))


def _provenance(run: RunFacts) -> tuple[Row, ...]:
    began = run.began
    sources: dict[str, int] = {}
    for stage in run.stages.values():
        for call in (one for attempt in stage.attempts.values() for one in attempt.calls):
            if (response := call.response) is not None:
                who = response.provenance or " ".join((call.request.provider, response.model or call.request.model))
                origin = f"{who}: {payment(response)}"
                sources[origin] = sources.get(origin, 0) + 1
    rows = [
        Row("Run", run.run_id),
        Row("Pipeline", began.pipeline),
        Row("Provider", ", ".join(began.provider)),
        Row("Model", ", ".join(began.model)),
        *(Row("Responses", f"{number:,} of {origin}") for origin, number in sources.items()),
        Row("Prices", ", ".join(_prices(run))),
        Row("Specification", f"{began.spec_file}  {began.spec_hash[: len('sha256:') + _DIGITS]}".strip()),
        Row("Lock file at the start", began.lock[: len("sha256:") + _DIGITS]),
        Row("Journal", f"logs/{run.run_id}.jsonl"),
    ]
    return tuple(one for one in rows if one.text)


def _versions(run: RunFacts, sources: PageSources) -> tuple[Row, ...]:
    began = run.began
    rows = (
        Row("orch23", began.version),
        # Journals of earlier versions do not have them.
        Row("Python", "" if began.python is UNSET else began.python),
        Row("Platform", "" if began.platform is UNSET else began.platform),
        Row("Sandbox", began.sandbox),
        *sources.generated,
    )
    return tuple(one for one in rows if one.text)


_MAX_ROWS = 300
_MAX_STAGES = 4


def sent_by_receiver(run: RunFacts) -> tuple[SentView, ...]:
    """Return the files of all requests that were sent, by provider and endpoint; recorded responses need none."""
    found: dict[str, dict[tuple[str, str], list[tuple[str, SentFile]]]] = {}
    for stage in run.stages.values():
        for call in (one for attempt in stage.attempts.values() for one in attempt.calls):
            request = call.request
            for receiver in dict.fromkeys(call.receivers):
                is_first = receiver == request.provider and request.endpoint not in ("", receiver)
                files = found.setdefault(f"{receiver} at {request.endpoint}" if is_first else receiver, {})
                for file in request.files:
                    files.setdefault((file.path, file.slice), []).append((stage.name, file))
    return tuple(_view(receiver, files) for receiver, files in found.items())


def _view(receiver: str, files: dict[tuple[str, str], list[tuple[str, SentFile]]]) -> SentView:
    rows = [
        SentRow(
            place=f"{path}#{part}" if part else path,
            bytes=f"{max(file.bytes for _, file in uses):,}",
            requests=len(uses),
            stages=join_first([*dict.fromkeys(name for name, _ in uses)], _MAX_STAGES),
        )
        for (path, part), uses in sorted(files.items())
    ]
    more = len(rows) - _MAX_ROWS
    note = f"{pluralize(more, 'more file')}: `orch23 log --json` lists all." if more > 0 else ""
    return SentView(receiver, tuple(rows[:_MAX_ROWS]), note)
