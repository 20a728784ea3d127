"""Write a plan as text: actions, reasons, estimates of calls, tokens, cost and time."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from orch23.model.event import waiting_text
from orch23.model.plan import CallRange, Decision, Edited, Estimate, Expand, Maybe, Restore, Run, Skipped, VerifyOnly
from orch23.model.text import format_duration, format_money, one_line, visible, visible_line
from orch23.report.plan_view import (
    PlanLine,
    PlanView,
    base_tests_text,
    edit_hint,
    end_texts,
    first_names,
    first_reason,
    reason_texts,
)
from orch23.report.values import MAX_IDLE_LINES, Marks, Style, Tone, format_counts, pluralize

_CENT = Decimal("0.01")
_MAX_END = 60
_MIN_ACTION_WIDTH = 8
# The field of Marks and the tone of each label of a decision.
_SIGNS: Mapping[str, tuple[str, Tone]] = {
    "fresh": ("fresh", "quiet"),
    "done": ("fresh", "quiet"),
    "run": ("run", "notice"),
    "restore": ("run", "notice"),
    "verify": ("run", "notice"),
    "maybe": ("maybe", "plain"),
    "expand": ("maybe", "plain"),
    "blocked": ("idle", "quiet"),
    "skipped": ("idle", "quiet"),
    "edited": ("edited", "bad"),
}


def decision_sign(decision: Decision, marks: Marks) -> tuple[str, Tone]:
    """Return the symbol and the tone of a decision."""
    name, tone = _SIGNS[decision.label]
    return getattr(marks, name), tone


# ---- estimates --------------------------------------------------------------------------------


def _estimate_lines(view: PlanView) -> list[str]:
    estimates = [line.estimate for line in view.lines]
    # A recorded response costs nothing. What may follow it, if it no longer passes, is shown beside what it saves.
    recorded = [one for one in estimates if one.saved_calls]
    calling = [one for one in estimates if one.may_call and not one.saved_calls]
    time = _time([line.estimate for line in view.lines if isinstance(line.decision, Run | Maybe | Expand)])
    if not calling and not recorded:
        return [f" {time}"] if time else []
    limit = f"; limit {view.max_llm_calls}" if view.max_llm_calls is not None else ""
    facts = [f"LLM calls {_range(view.calls)}{limit}"]
    # Models on this machine cost nothing: their tokens are not worth a line.
    if any(one.price != "free" for one in calling):
        facts += [_tokens(calling), _money(calling, view.max_cost)]
    facts += [time or "no estimate of time"]
    saving = sum((one.cache_saving for one in estimates), Decimal(0))
    cached = [f" the prompt cache should save ~{format_money(saving)} of first attempts"] if saving >= _CENT else []
    shared = Counter((one.shared_lines, one.shared_end) for one in estimates if one.cache_saving) if cached else {}
    for (lines, end), users in shared.items():
        part = f"first {pluralize(lines, 'line')}, to `{visible_line(end[:_MAX_END])}`" if lines else "system text"
        cached.append(f" {pluralize(users, 'prompt')} share their {part}")
    return [f" {' · '.join(filter(None, facts))}", *_saved(view, recorded), *cached]


def _range(calls: CallRange) -> str:
    if calls.maximum is None:
        return f"at least {calls.minimum}; the maximum is unknown until the items are known"
    more = ", and those of new items" if calls.has_new_items else ""
    return str(calls.minimum) if calls.minimum == calls.maximum else f"{calls.minimum} to {calls.maximum}{more}"


def _tokens(calling: Sequence[Estimate]) -> str:
    known_in = [one.input_tokens for one in calling if one.input_tokens is not None]
    known_out = [one.output_tokens for one in calling if one.output_tokens is not None]
    unknown_in, unknown_out = len(calling) - len(known_in), len(calling) - len(known_out)
    if not known_in:
        return "tokens unknown"
    if not unknown_out and not any((*known_in, *known_out)):
        return ""  # the responses of all first attempts are recorded
    text = f"~{sum(known_in):,}+{sum(known_out):,} tokens for first attempts"
    if not known_out:
        text = f"~{sum(known_in):,} tokens in for first attempts, out unknown"
    elif unknown_out:
        text += f", out unknown of {unknown_out}"
    return f"{text}, in unknown of {unknown_in}" if unknown_in else text


def _money(calling: Sequence[Estimate], limit: Decimal | None) -> str:
    priced = [one for one in calling if one.price == "known"]
    unpriced = sum(one.price == "unknown" for one in calling)
    parts = _price_range(priced)
    if unpriced:
        parts += [f"unknown price of {pluralize(unpriced, 'stage')}" if priced else "unknown price"]
    text = f"limit {format_money(limit)}" if limit is not None else ""
    return "; ".join(filter(None, (", ".join(parts), text)))


def _price_range(priced: Sequence[Estimate]) -> list[str]:
    if not priced:
        return []
    likely, most = _sum(one.likely_cost for one in priced), _sum(one.most_cost for one in priced)
    at_most = "maximum unknown" if most is None else f"at most {format_money(most)}"
    return [f"~{format_money(likely)}", at_most] if likely else [at_most]


def _sum(amounts: Iterable[Decimal | None]) -> Decimal | None:
    # A sum without the unknown amounts would look like the whole sum.
    found = list(amounts)
    return None if None in found else sum((one for one in found if one is not None), Decimal(0))


def _time(running: Sequence[Estimate]) -> str:
    known = [(one.duration_s, one.runs) for one in running if one.duration_s is not None]
    # Without the time of a call, the sum would be the time of the quick stages beside it.
    if not known or any(one.calls.minimum and one.duration_s is None for one in running):
        return ""
    unknown = len(running) - len(known)
    source = f"median of {pluralize(min(runs for _, runs in known), 'run')}"
    source += f"; not counting {pluralize(unknown, 'stage')} without history" if unknown else ""
    seconds = sum(duration_s for duration_s, _ in known)
    # Tenths of a second would claim a precision that an estimate does not have.
    about = f"~{round(seconds)} s" if round(seconds) < 60 else f"~{format_duration(seconds)}"  # noqa: PLR2004 - a minute
    return f"{'under 1 s' if seconds < 1 else about} ({source})"


def _saved(view: PlanView, recorded: Sequence[Estimate]) -> list[str]:
    if not recorded:
        return []
    cost = _sum(one.saved_cost for one in recorded)
    calls = pluralize(sum(one.saved_calls for one in recorded), "call")
    saved = f"{calls}, {format_money(cost)}" if cost else calls
    most = view.calls_of(recorded).maximum
    bounds = ["calls follow" if most is None else f"up to {pluralize(most, 'call')}"]
    if any(one.price != "free" for one in recorded):
        bounds.append(_money(recorded, view.max_cost))
    return [f" recorded responses save {saved}{'' if most == 0 else '; if they no longer pass: ' + ', '.join(bounds)}"]


# ---- the plan ---------------------------------------------------------------------------------


def plan_text(view: PlanView, style: Style, *, verbose: bool = False) -> str:
    """Return the plan as text. With `verbose` all reasons; else the first one, and the number of the others.

    Of more than 64 stages only the stale ones are listed, unless it is verbose.
    """
    head = _head(view, style)
    if view.is_up_to_date:
        return _joined([head, *_skipped(view, style), *_waiting(view)])
    empty = tuple(line for line in view.skipped if line.decision == Skipped(""))
    shown = view.lines if verbose or view.stage_count <= MAX_IDLE_LINES else (*view.stale, *empty)
    width, action_width = _width(shown), _action_width(shown)
    columns = f"   {'stage':<{width}}  {'action':<{action_width}} why"
    lines = [text for line in shown for text in _line(line, width, style, verbose=verbose, action_width=action_width)]
    return _joined([head, columns, *lines, *_waiting(view), *_footer(view)])


def status_text(view: PlanView, style: Style, *, verbose: bool = False) -> str:
    """Return the plan in short: counts, and the stages that are not fresh; with `verbose` all, with descriptions."""
    if view.is_up_to_date and not verbose:
        return _joined([_up_to_date(view), *_skipped(view, style), *_waiting(view)])
    counts = view.counts()
    head = f"{visible(view.name)}: {pluralize(sum(counts.values()), 'stage')}: {format_counts(counts)}"
    listed = view.lines if verbose else view.stale
    width, action_width = _width(listed), _action_width(listed)
    lines = []
    for line in listed:
        lines += _line(line, width, style, verbose=False, action_width=action_width)
        if verbose and (desc := visible(one_line(line.desc))):
            lines.append(f"     {style.paint(desc, 'quiet')}")
    skipped = [] if verbose else _skipped(view, style)
    return _joined([head, *lines, *skipped, *_waiting(view), *_dead(view), *_released(view)])


def _waiting(view: PlanView) -> list[str]:
    return [f"waiting: {visible(waiting_text(one))}" for one in view.waiting]


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _up_to_date(view: PlanView) -> str:
    return f"{visible(view.name)}: up to date ({pluralize(view.stage_count, 'stage')}{_skip_count(view)})"


def _skip_count(view: PlanView) -> str:
    counts = ((view.counts().get("done", 0), "done"), (view.skip_count, "skipped"))
    return "".join(f", {number} {what}" for number, what in counts if number)


def _head(view: PlanView, style: Style) -> str:
    possible = f", {view.possible} {'depends' if view.possible == 1 else 'depend'} on upstream" if view.possible else ""
    text = f"{visible(view.name)}: {view.would_run} of {pluralize(view.stage_count, 'stage')} to run{possible}"
    text = _up_to_date(view) if view.is_up_to_date else text + _skip_count(view)
    models = "   ".join(f"provider {visible(model)}" for model in view.models)
    return f"{style.paint(text, 'strong')}   {models}".rstrip()


def _skipped(view: PlanView, style: Style) -> list[str]:
    width = _width(view.lines)
    return [text for line in view.skipped for text in _line(line, width, style, verbose=False)]


def _width(lines: Sequence[PlanLine]) -> int:
    return max([len("stage"), *(len(visible(line.stage)) for line in lines)])


def _action_width(lines: Sequence[PlanLine]) -> int:
    return max([_MIN_ACTION_WIDTH, *(len(_action(line.decision)) for line in lines)])


def _action(decision: Decision) -> str:
    """Return the label of a decision; `verify: claim` for a result that only the lock file has."""
    return f"{decision.label}: claim" if isinstance(decision, VerifyOnly) and decision.claim else decision.label


def _line(
    line: PlanLine, width: int, style: Style, *, verbose: bool, action_width: int = _MIN_ACTION_WIDTH
) -> list[str]:
    mark, tone = decision_sign(line.decision, style.marks)
    clauses, ends = reason_texts(line.decision), end_texts(line.decision)
    shown = clauses[0] if verbose and clauses else first_reason(clauses[: len(clauses) - len(ends)])
    name, action = f"{visible(line.stage):<{width}}", f"{_action(line.decision):<{action_width}}"
    indent = " " * (width + action_width + len("     ") + 1)
    out = [f" {style.paint(mark, tone)} {name}  {style.paint(action, tone)} {shown}".rstrip()]
    # It is always shown that a run may end as `edited`: this is not only a reason.
    out += [f"{indent}{clause}" for clause in (clauses[1:] if verbose else ends)]
    out += [f"{indent}first verifies the base, without an answer"] if line.estimate.verifies_base else []
    out += [f"{indent}explores {visible(line.estimate.explores)}"] if line.estimate.explores else []
    out += [f"{indent}{base_tests_text(line)}"] if line.fails_on_base else []
    out += [f"{indent}{edit_hint(line)}"] if isinstance(line.decision, Edited) else []
    return [*out, f"{indent}{visible(line.approve)}"] if line.approve else out


def _footer(view: PlanView) -> list[str]:
    files = {"write": _files(view, lambda line: line.outputs), "edit": _files(view, lambda line: line.edits)}
    servers = sorted({line.estimate.stored_at for line in view.lines if line.estimate.may_call} - {""})
    return [
        *_estimate_lines(view),
        *(f" would {verb} {names}" for verb, names in files.items() if names),
        *_groups(view),
        *_exposed(view),
        *(f" tool {visible(name)}: {visible(origin)}" for name, origin in view.tools.items()),
        *(f" requests go to {visible(server)}, from {visible(name)}" for name, server in view.servers.items()),
        *(f" responses are stored at {visible(one)}; `llm.background: false` prevents it" for one in servers),
        *_shared(view),
        *_dead(view),
        *_released(view),
    ]


def _files(view: PlanView, files_of: Callable[[PlanLine], Iterable[str]]) -> str:
    """Return files of the stages that run, and in parentheses those of stages that may run."""
    sure, maybe = (
        first_names(one for line in view.lines if isinstance(line.decision, some) for one in files_of(line))
        for some in ((Run, Restore), (Maybe, Expand))
    )
    return " ".join(filter(None, (sure, f"({maybe})" if maybe else "")))


def _groups(view: PlanView) -> list[str]:
    stale = {line.stage for line in view.stale}
    return [
        f" promoted together as `{visible(group)}`: {first_names(names)}"
        for group, names in view.groups.items()
        if not stale.isdisjoint(names)
    ]


def _exposed(view: PlanView) -> list[str]:
    # These stages have more access to the machine than others: the user should see it before the build.
    starting = [line for line in view.lines if isinstance(line.decision, Run | Maybe | VerifyOnly | Expand)]
    exposed = {
        "with the network": [line.stage for line in starting if line.network],
        "without a sandbox": [line.stage for line in starting if not line.sandbox],
    }
    return [f" would run {how}: {first_names(stages)}" for how, stages in exposed.items() if stages]


def _shared(view: PlanView) -> list[str]:
    stored = [f" would store in the shared cache: {first_names(view.would_store)}"] if view.would_store else []
    by_reason: dict[str, list[str]] = {}
    for name, reasons in view.not_shared.items():
        by_reason.setdefault("; ".join(map(visible, reasons)), []).append(name)
    if not by_reason:
        return stored
    from orch23.model.shared_cache import PLATFORM_HINT  # noqa: PLC0415 - few plans use a shared cache

    refused = [f" not shared: {first_names(names)}: {why}" for why, names in by_reason.items()]
    return [*stored, *refused, f" to share them, {PLATFORM_HINT}"]


def _dead(view: PlanView) -> list[str]:
    sure, maybe = (
        (view.dead, "would", "no stage makes {} any more"),
        (view.uncertain, "may", "if no stage makes {} again"),
    )
    which = ((paths, verb, why.format("it" if len(paths) == 1 else "them")) for paths, verb, why in (sure, maybe))
    return [f" {verb} remove {first_names(paths)}: {why}" for paths, verb, why in which if paths]


def _released(view: PlanView) -> list[str]:
    if not view.released:
        return []
    stages = ", ".join(f"`{visible(name)}`" for name in dict.fromkeys(view.released.values()))
    return [f" would release {first_names(view.released)} as source files: the pipeline no longer has {stages}"]
