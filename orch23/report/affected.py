"""Write which stages are affected since a revision: for a person, or as JSON."""

from orch23.model.affected import Affected, AffectedStage
from orch23.model.digest import Json
from orch23.report.diagnostics import visible
from orch23.report.document import document
from orch23.report.plan_json import reason_document
from orch23.report.reasons import in_short, words

AFFECTED_VERSION = 1
_SHOWN_DIGITS = 12


def affected_text(affected: Affected) -> str:
    """Return a line for each affected stage, with the first reasons."""
    since = f"{visible(affected.since)} ({affected.commit[:_SHOWN_DIGITS]})"
    if not affected.stages and not affected.removed:
        return f"{affected.name}: nothing is affected since {since}\n"
    head = f"{affected.name}: {len(affected.stages)} of {affected.count} stages are affected since {since}"
    lines = [head if affected.comparable else f"{head}: it has no valid {affected.file}"]
    width = max((len(one.stage) for one in affected.stages), default=0)
    lines += [f"  {one.stage:{width}}  {_why(one)}" for one in affected.stages]
    lines += [f"  {name:{width}}  no longer declared" for name in affected.removed]
    return "".join(f"{line}\n" for line in lines)


def affected_json(affected: Affected) -> str:
    """Return the same as one document of a versioned shape."""
    stages: list[Json] = [
        {
            "stage": one.stage,
            "why": one.why,
            "reasons": [reason_document(reason) for reason in one.reasons],
            "after": list(one.after),
        }
        for one in affected.stages
    ]
    return document(
        {
            "orch23_affected": AFFECTED_VERSION,
            "name": affected.name,
            "pipeline": affected.file,
            "since": affected.since,
            "commit": affected.commit,
            "comparable": affected.comparable,
            "stages": stages,
            "removed": list(affected.removed),
        }
    )


def _why(one: AffectedStage) -> str:
    match one.why:
        case "added":
            return "new"
        case "changed":
            return in_short(tuple(words(reason) for reason in one.reasons))
        case "downstream":
            return f"after {', '.join(one.after)}"
