"""Write for people why a stage is as it is."""

from orch23.model.decision import Edited, Fresh
from orch23.report.diagnostics import visible
from orch23.report.explain_view import Aspect, Cause, Explanation, Question, TextDiff
from orch23.report.marks import Style, Tone
from orch23.report.plan_text import sign
from orch23.report.reasons import brief_value, why
from orch23.report.typed import keep_or_give_up

_SIGNS = {"same": " ", "changed": "~", "added": "+", "removed": "-"}


def explain_text(told: Explanation, style: Style) -> str:
    """Return the explanation as text: the decision, why, the causes, the key then and now, the differences."""
    line = told.line
    mark, tone = sign(line.decision, style.marks)
    where = f"  {visible(str(line.place))}" if line.place else ""
    out = [f"{style.paint(mark, tone)} {style.paint(visible(line.stage), 'strong')}: {line.decision.label}{where}"]
    out += [] if told.causes else [f"  {clause}" for clause in why(line.decision)]
    if isinstance(line.decision, Fresh):
        out.append("  its outputs are what a record of today's key says")
    if isinstance(line.decision, Edited):
        out.append(f"  {keep_or_give_up(line)}")
    out += ["  it uses the network"] if line.network else []
    out += [] if line.sandbox else ["  its processes run without a sandbox"]
    if told.causes:
        out += [_cause(cause, line.stage) for cause in told.causes]
    out += _key(told, style)
    out += _question(told.question) if told.question else []
    for diff in told.diffs:
        out += ["", *_diff(diff, style)]
    return "\n".join(out) + "\n"


def _cause(cause: Cause, stage: str) -> str:
    whose = "" if cause.stage == stage else f"{visible(cause.stage)}: "
    return f"  {'  ' * cause.depth}{whose}{visible(cause.clause)}"


def _key(told: Explanation, style: Style) -> list[str]:
    if not told.aspects:
        return []
    now, then = told.line.key[:12], told.key_then[:12]
    if not then:
        return ["", f"key {now} (it has no earlier result)", *(_now(one) for one in told.aspects)]
    moved = f"key {now}, as it was" if told.key_then == told.line.key else f"key {then} {style.marks.arrow} {now}"
    return ["", moved, *(_aspect(one, style) for one in told.aspects)]


def _now(aspect: Aspect) -> str:
    return f"    {visible(aspect.name)}  {brief_value(aspect.now)}"


def _aspect(aspect: Aspect, style: Style) -> str:
    name = visible(aspect.name)
    if aspect.change == "same":
        return style.paint(f"    {name}  {brief_value(aspect.now)}", "quiet")
    then, now = brief_value(aspect.then), brief_value(aspect.now)
    return style.paint(f"  {_SIGNS[aspect.change]} {name}  {then} {style.marks.arrow} {now}", "notice")


def _question(asked: Question) -> list[str]:
    name = f"request {asked.fingerprint[:12]}"
    if not asked.missing:
        state = f"answered by {', '.join(one[:12] for one in asked.answers)}, which is recorded"
    elif asked.answers:
        state = "its recorded answer was cut off; the one with more room is not recorded"
    else:
        state = f"not recorded{'; next to the nearest, ' + visible(asked.difference) if asked.difference else ''}"
    return ["", f"{name}: {state}", *(f"    {part}  {brief_value(value)}" for part, value in asked.parts.items())]


def _diff(diff: TextDiff, style: Style) -> list[str]:
    out = [f"{visible(diff.subject)}:"]
    for line in diff.lines:
        tone: Tone = "good" if line.startswith("+") else "bad" if line.startswith("-") else "plain"
        out.append(f"  {style.paint(visible(line), tone)}")
    return out
