"""Write a plan for people: what would be done with each stage, why, and how much it may cost."""

from collections.abc import Sequence
from typing import assert_never

from orch23.model.decision import Blocked, Decision, Edited, Expand, Fresh, Maybe, Restore, Run, Skipped, VerifyOnly
from orch23.report.diagnostics import visible
from orch23.report.estimate_text import estimate_lines
from orch23.report.figures import count, counts
from orch23.report.marks import MOST_DULL_LINES, Marks, Style, Tone
from orch23.report.plan_view import PlanLine, PlanView
from orch23.report.reasons import in_short, why
from orch23.report.typed import keep_or_give_up

_MOST_NAMED = 8
_MIN_ACTION_WIDTH = 8


def plan_text(view: PlanView, style: Style, *, verbose: bool = False) -> str:
    """Return the plan as text. `verbose` names every reason; else the first, with the number of the others.

    Of many stages only those are named that are not fresh, unless it is verbose.
    """
    lines = [_head(view, style)]
    if view.is_quiet:
        lines += _skipped(view, style)
        return "\n".join(lines) + "\n"
    shown = view.lines if verbose or view.stage_count <= MOST_DULL_LINES else view.stale
    width, action_width = _width(shown), _action_width(shown)
    lines += [f"   {'stage':<{width}}  {'action':<{action_width}} why"]
    for line in shown:
        lines += _line(line, width, style, verbose=verbose, action_width=action_width)
    lines += _footer(view)
    return "\n".join(lines) + "\n"


def status_text(view: PlanView, style: Style) -> str:
    """Return the plan in short: counts, and the stages that are not fresh."""
    if view.is_quiet:
        lines = [f"{visible(view.name)}: up to date ({_how_many(view)})", *_skipped(view, style)]
        return "\n".join(lines) + "\n"
    lines = [f"{visible(view.name)}: {count(len(view.lines), 'stage')}: {counts(view.counts())}"]
    width, stale = _width(view.lines), view.stale
    action_width = _action_width(stale)
    for line in stale:
        lines += _line(line, width, style, verbose=False, action_width=action_width)
    lines += [*_skipped(view, style), *_dead(view), *_released(view)]
    return "\n".join(lines) + "\n"


def sign(decision: Decision, marks: Marks) -> tuple[str, Tone]:
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
    if view.is_quiet:
        text = f"{visible(view.name)}: up to date ({_how_many(view)})"
    else:
        text = f"{visible(view.name)}: {view.would_run} of {count(view.stage_count, 'stage')} would run"
        text += f", {view.possible} may" if view.possible else ""
        text += f", {view.skip_count} skipped" if view.skip_count else ""
    shown = "   ".join(f"provider {visible(model)}" for model in view.models)
    return f"{style.paint(text, 'strong')}   {shown}".rstrip()


def _how_many(view: PlanView) -> str:
    skipped = f", {view.skip_count} skipped" if view.skip_count else ""
    return f"{count(view.stage_count, 'stage')}{skipped}"


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
    mark, tone = sign(line.decision, style.marks)
    clauses = why(line.decision)
    shown = clauses[0] if verbose and clauses else in_short(clauses)
    name, action = f"{visible(line.stage):<{width}}", f"{_action(line.decision):<{action_width}}"
    indent = f"   {'':<{width}}  {'':<{action_width}} "
    out = [f" {style.paint(mark, tone)} {name}  {style.paint(action, tone)} {shown}".rstrip()]
    if verbose:
        out += [f"{indent}{clause}" for clause in clauses[1:]]
    if isinstance(line.decision, Edited):
        out.append(f"{indent}{keep_or_give_up(line)}")
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
