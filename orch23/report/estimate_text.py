"""Say below a plan what it may take, and where that comes from: calls, tokens, dollars, time."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from orch23.model.estimate import Calls, Estimate
from orch23.report.figures import count, duration
from orch23.report.money import money
from orch23.report.plan_view import PlanView


def estimate_lines(view: PlanView) -> list[str]:
    """Return the line of what a build may take, and the one of what the transcripts save; none where no model is."""
    estimates = [line.estimate for line in view.lines]
    asking = [one for one in estimates if one.may_ask]
    time = _time([line.estimate for line in view.lines if line.decision.label in ("run", "maybe", "expand")])
    if not asking:
        return [f" {time}"] if time else []
    limit = f"; limit {view.max_llm_calls}" if view.max_llm_calls is not None else ""
    facts = [f"LLM calls {_range(view.calls)}{limit}"]
    if any(one.price != "free" for one in asking):
        facts += [_tokens(asking), *_money(asking, view.max_cost)]
    facts += [time or "time unknown (first run)"]
    return [f" {' · '.join(fact for fact in facts if fact)}", *_saved(estimates)]


def _range(calls: Calls) -> str:
    if calls.most is None:
        return f"at least {calls.least}; the most is unknown until the items are known"
    return str(calls.least) if calls.least == calls.most else f"{calls.least} to {calls.most}"


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
        parts += [f"~{money(likely)}"] if likely else []
        parts += [f"at most {money(most)}"] if most is not None else ["the most is unknown"]
    if unpriced:
        parts += [f"unknown price of {count(unpriced, 'stage')}"] if priced else ["unknown price"]
    text = ", ".join(parts)
    if limit is not None:
        text += f"{'; ' if text else ''}limit {money(limit)}"
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
    source = f"median of {count(min(one.runs for one in known), 'run')}"
    missing = len(running) - len(known)
    source += f"; unknown of {count(missing, 'stage')}" if missing else ""
    return f"{_about(seconds)} ({source})"


def _about(seconds: float) -> str:
    """Return a duration without a precision that it does not have."""
    if seconds < 1:
        return "under 1 s"
    return f"~{round(seconds)} s" if round(seconds) < 60 else f"~{duration(seconds)}"  # noqa: PLR2004 - a minute


def _saved(estimates: Sequence[Estimate]) -> list[str]:
    saving = [one for one in estimates if one.saved_calls]
    if not saving:
        return []
    calls = sum(one.saved_calls for one in saving)
    cost = _sum(one.saved_cost for one in saving)
    worth = f", {money(cost)}" if cost else ""
    return [f" recorded answers save {count(calls, 'call')}{worth}"]
