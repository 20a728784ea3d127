"""Write a plan as text: actions, reasons, estimates of calls, tokens, cost and time."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import assert_never

from orch23.model.plan import (
    Blocked,
    CallRange,
    Decision,
    Edited,
    Estimate,
    Expand,
    Fresh,
    Maybe,
    Restore,
    Run,
    Skipped,
    VerifyOnly,
)
from orch23.report.diagnostics import visible
from orch23.report.marks import MAX_IDLE_LINES, Marks, Style, Tone
from orch23.report.plan_view import PlanLine, PlanView, edit_hint, first_reason, reason_texts
from orch23.report.values import format_counts, format_duration, format_money, pluralize


def estimate_lines(view: PlanView) -> list[str]:
    """Return the line of what a build may take, and the one of what the transcripts save; none where no model is."""
    estimates = [line.estimate for line in view.lines]
    asking = [one for one in estimates if one.may_call]
    time = _time([line.estimate for line in view.lines if line.decision.label in ("run", "maybe", "expand")])
    if not asking:
        return [f" {time}"] if time else []
    limit = f"; limit {view.max_llm_calls}" if view.max_llm_calls is not None else ""
    facts = [f"LLM calls {_range(view.calls)}{limit}"]
    if any(one.price != "free" for one in asking):
        facts += [_tokens(asking), *_money(asking, view.max_cost)]
    facts += [time or "time unknown (first run)"]
    return [f" {' · '.join(fact for fact in facts if fact)}", *_saved(estimates)]


def _range(calls: CallRange) -> str:
    if calls.maximum is None:
        return f"at least {calls.minimum}; the most is unknown until the items are known"
    return str(calls.minimum) if calls.minimum == calls.maximum else f"{calls.minimum} to {calls.maximum}"


def _tokens(asking: Sequence[Estimate]) -> str:
    """Return the tokens of the first attempts. What is not known is no part of a sum, and said to be missing."""
    given = [one.input_tokens for one in asking]
    written = [one.output_tokens for one in asking]
    known_in, known_out = [n for n in given if n is not None], [n for n in written if n is not None]
    if not known_in:
        return "tokens unknown (first run)"
    if not any((*known_in, *known_out)) and len(known_out) == len(written):
        return ""  # all first attempts are recorded
    if not known_out:
        text = f"~{sum(known_in):,} tokens in for first attempts, out unknown (first run)"
    else:
        text = f"~{sum(known_in):,}+{sum(known_out):,} tokens for first attempts"
        text += f", out unknown of {len(written) - len(known_out)}" if len(known_out) < len(written) else ""
    return f"{text}, in unknown of {len(given) - len(known_in)}" if len(known_in) < len(given) else text


def _money(asking: Sequence[Estimate], limit: Decimal | None) -> list[str]:
    priced = [one for one in asking if one.price == "known"]
    unpriced = sum(one.price == "unknown" for one in asking)
    parts = []
    if priced:
        likely, most = _sum(one.likely_cost for one in priced), _sum(one.most_cost for one in priced)
        parts += [f"~{format_money(likely)}"] if likely else []
        parts += [f"at most {format_money(most)}"] if most is not None else ["the most is unknown"]
    if unpriced:
        parts += [f"unknown price of {pluralize(unpriced, 'stage')}"] if priced else ["unknown price"]
    text = ", ".join(parts)
    if limit is not None:
        text += f"{'; ' if text else ''}limit {format_money(limit)}"
    return [text] if text else []


def _sum(amounts: Iterable[Decimal | None]) -> Decimal | None:
    found = list(amounts)
    return None if None in found else sum((one for one in found if one is not None), Decimal(0))


def _time(running: Sequence[Estimate]) -> str:
    """Return how long the stages took before, one after the other."""
    known = [one for one in running if one.duration_s is not None]
    if not known:
        return ""
    seconds = sum(one.duration_s or 0.0 for one in known)
    source = f"median of {pluralize(min(one.runs for one in known), 'run')}"
    missing = len(running) - len(known)
    source += f"; unknown of {pluralize(missing, 'stage')}" if missing else ""
    return f"{_about(seconds)} ({source})"


def _about(seconds: float) -> str:
    """Return a duration without a precision that it does not have."""
    if seconds < 1:
        return "under 1 s"
    return f"~{round(seconds)} s" if round(seconds) < 60 else f"~{format_duration(seconds)}"  # noqa: PLR2004 - a minute


def _saved(estimates: Sequence[Estimate]) -> list[str]:
    saving = [one for one in estimates if one.saved_calls]
    if not saving:
        return []
    calls = sum(one.saved_calls for one in saving)
    cost = _sum(one.saved_cost for one in saving)
    worth = f", {format_money(cost)}" if cost else ""
    return [f" recorded answers save {pluralize(calls, 'call')}{worth}"]


_MOST_NAMED = 8
_MIN_ACTION_WIDTH = 8


def plan_text(view: PlanView, style: Style, *, verbose: bool = False) -> str:
    """Return the plan as text. `verbose` names every reason; else the first, with the number of the others.

    Of many stages only those are named that are not fresh, unless it is verbose.
    """
    lines = [_head(view, style)]
    if view.is_up_to_date:
        lines += _skipped(view, style)
        return "\n".join(lines) + "\n"
    shown = view.lines if verbose or view.stage_count <= MAX_IDLE_LINES else view.stale
    width, action_width = _width(shown), _action_width(shown)
    lines += [f"   {'stage':<{width}}  {'action':<{action_width}} why"]
    for line in shown:
        lines += _line(line, width, style, verbose=verbose, action_width=action_width)
    lines += _footer(view)
    return "\n".join(lines) + "\n"


def status_text(view: PlanView, style: Style) -> str:
    """Return the plan in short: counts, and the stages that are not fresh."""
    if view.is_up_to_date:
        lines = [f"{visible(view.name)}: up to date ({_how_many(view)})", *_skipped(view, style)]
        return "\n".join(lines) + "\n"
    lines = [f"{visible(view.name)}: {pluralize(len(view.lines), 'stage')}: {format_counts(view.counts())}"]
    width, stale = _width(view.lines), view.stale
    action_width = _action_width(stale)
    for line in stale:
        lines += _line(line, width, style, verbose=False, action_width=action_width)
    lines += [*_skipped(view, style), *_dead(view), *_released(view)]
    return "\n".join(lines) + "\n"


def decision_sign(decision: Decision, marks: Marks) -> tuple[str, Tone]:
    """Return the sign and the tone of a decision."""
    match decision:
        case Fresh():
            return marks.fresh, "quiet"
        case Run() | Restore() | VerifyOnly():
            return marks.run, "notice"
        case Maybe() | Expand():
            return marks.maybe, "plain"
        case Blocked() | Skipped():
            return marks.idle, "quiet"
        case Edited():
            return marks.edited, "bad"
        case _ as never:
            assert_never(never)


def _head(view: PlanView, style: Style) -> str:
    if view.is_up_to_date:
        text = f"{visible(view.name)}: up to date ({_how_many(view)})"
    else:
        text = f"{visible(view.name)}: {view.would_run} of {pluralize(view.stage_count, 'stage')} would run"
        text += f", {view.possible} may" if view.possible else ""
        text += f", {view.skip_count} skipped" if view.skip_count else ""
    shown = "   ".join(f"provider {visible(model)}" for model in view.models)
    return f"{style.paint(text, 'strong')}   {shown}".rstrip()


def _how_many(view: PlanView) -> str:
    skipped = f", {view.skip_count} skipped" if view.skip_count else ""
    return f"{pluralize(view.stage_count, 'stage')}{skipped}"


def _skipped(view: PlanView, style: Style) -> list[str]:
    width = _width(view.lines)
    return [text for line in view.skipped for text in _line(line, width, style, verbose=False)]


def _width(lines: Sequence[PlanLine]) -> int:
    return max([len(visible(line.stage)) for line in lines] + [len("stage")])


def _action_width(lines: Sequence[PlanLine]) -> int:
    return max([_MIN_ACTION_WIDTH, *(len(_action(line.decision)) for line in lines)])


def _action(decision: Decision) -> str:
    """Return what is done with a stage, and whether that is since only the lock file has its result."""
    return f"{decision.label}: claim" if isinstance(decision, VerifyOnly) and decision.claim else decision.label


def _line(
    line: PlanLine, width: int, style: Style, *, verbose: bool, action_width: int = _MIN_ACTION_WIDTH
) -> list[str]:
    mark, tone = decision_sign(line.decision, style.marks)
    clauses = reason_texts(line.decision)
    shown = clauses[0] if verbose and clauses else first_reason(clauses)
    name, action = f"{visible(line.stage):<{width}}", f"{_action(line.decision):<{action_width}}"
    indent = f"   {'':<{width}}  {'':<{action_width}} "
    out = [f" {style.paint(mark, tone)} {name}  {style.paint(action, tone)} {shown}".rstrip()]
    if verbose:
        out += [f"{indent}{clause}" for clause in clauses[1:]]
    if isinstance(line.decision, Edited):
        out.append(f"{indent}{edit_hint(line)}")
    return out


def _footer(view: PlanView) -> list[str]:
    out = estimate_lines(view)
    sure = [path for line in view.lines if isinstance(line.decision, Run | Restore) for path in line.outputs]
    maybe = [p for line in view.lines if isinstance(line.decision, Maybe | Expand) for p in line.outputs]
    writes = " ".join(part for part in (_in_part(sure), f"({_in_part(maybe)})" if maybe else "") if part)
    if writes:
        out.append(f" would write {writes}")
    return [*out, *_groups(view), *_open_doors(view), *_dead(view), *_released(view)]


def _groups(view: PlanView) -> list[str]:
    """Name the stages of each promotion group in which something would be done."""
    stale = {line.stage for line in view.stale}
    return [
        f" promoted together as `{visible(group)}`: {_in_part(list(names))}"
        for group, names in view.groups.items()
        if not stale.isdisjoint(names)
    ]


def _open_doors(view: PlanView) -> list[str]:
    """Name the stages that would run with less between them and the machine than others."""
    network = [line.stage for line in view.lines if line.may_start and line.network]
    unconfined = [line.stage for line in view.lines if line.may_start and not line.sandbox]
    told = (("with the network", network), ("without a sandbox", unconfined))
    return [f" would run {how}: {_in_part(stages)}" for how, stages in told if stages]


def _dead(view: PlanView) -> list[str]:
    if not view.dead:
        return []
    return [
        f" would remove {_in_part(list(view.dead))}: no stage makes {'it' if len(view.dead) == 1 else 'them'} any more"
    ]


def _released(view: PlanView) -> list[str]:
    if not view.released:
        return []
    stages = ", ".join(f"`{visible(name)}`" for name in dict.fromkeys(view.released.values()))
    return [f" would release {_in_part(list(view.released))}: {stages} ended, the file stays as a source"]


def _in_part(names: list[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - _MOST_NAMED} more" if len(unique) > _MOST_NAMED else ""
    return visible(" ".join(unique[:_MOST_NAMED])) + more
