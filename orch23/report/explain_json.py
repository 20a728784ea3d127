"""Write for programs why a stage is as it is: one JSON document of a versioned shape."""

from orch23.model.digest import Json
from orch23.report.document import document
from orch23.report.explain_view import Explanation, Question
from orch23.report.plan_json import stage_document

EXPLAIN_VERSION = 1


def explain_json(told: Explanation) -> str:
    """Return the explanation as JSON, ending in a newline."""
    aspects: list[Json] = [
        {"aspect": one.name, "change": one.change, "then": one.then, "now": one.now} for one in told.aspects
    ]
    return document(
        {
            "orch23_explain": EXPLAIN_VERSION,
            **stage_document(told.line),
            "key_then": told.key_then or None,
            "aspects": aspects,
            "causes": [{"stage": one.stage, "depth": one.depth, "text": one.clause} for one in told.causes],
            "diffs": [{"subject": one.subject, "diff": "\n".join(one.lines)} for one in told.diffs],
            "request": _question(told.question) if told.question else None,
        }
    )


def _question(asked: Question) -> Json:
    return {
        "fingerprint": asked.fingerprint,
        "parts": dict(asked.parts),
        "answers": list(asked.answers),
        "missing": asked.missing,
        "difference": asked.difference or None,
    }
