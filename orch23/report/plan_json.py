"""Write a plan as one JSON document."""

from decimal import Decimal

from orch23.model.diagnostic import Location
from orch23.model.digest import Json
from orch23.model.parsing import from_struct
from orch23.model.plan import CallRange, Estimate, Expand, Maybe
from orch23.model.record import Reason
from orch23.report.diagnostics import diagnostic_document
from orch23.report.plan_view import PlanLine, PlanView, reason_text, reason_texts
from orch23.report.values import json_document


def plan_json(view: PlanView) -> str:
    """Return the plan as JSON. A field that changes its meaning, or is removed, raises `orch23_plan`."""
    document: dict[str, Json] = {
        "orch23_plan": 1,
        "name": view.name,
        "pipeline": view.file,
        "would_run": view.would_run,
        "may_run": view.possible,
        "up_to_date": view.is_up_to_date,
        "counts": dict(view.counts()),
        "models": list(view.models),
        "llm_calls": _calls(view.calls),
        "max_llm_calls": view.max_llm_calls,
        "max_cost_usd": _amount(view.max_cost),
        "dead_files": list(view.dead),
        "may_remove": list(view.uncertain),
        "released_files": dict(view.released),
        "groups": {group: list(names) for group, names in view.groups.items()},
        "would_store": list(view.would_store),
        "not_shared": {name: list(reasons) for name, reasons in view.not_shared.items()},
        "tools": dict(view.tools),
        "waiting": [from_struct(one) for one in view.waiting],
        "errors": [diagnostic_document(one) for one in view.errors],
        "warnings": [diagnostic_document(one) for one in view.warnings],
        "stages": [stage_document(line) for line in view.lines],
    }
    return json_document(document)


def stage_document(line: PlanLine) -> dict[str, Json]:
    """Return one stage of a plan as plain values."""
    decision = line.decision
    return {
        "stage": line.stage,
        "kind": line.kind,
        "desc": line.desc,
        "action": decision.label,
        "why": list(reason_texts(decision)),
        # Not every kind of decision has reasons.
        "reasons": [reason_document(one) for one in getattr(decision, "reasons", ())],
        "waiting_on": list(decision.waiting_on) if isinstance(decision, Maybe | Expand) else [],
        **line.files,
        "would_write": list(line.outputs),
        **({"would_edit": list(line.edits)} if line.edits else {}),
        **({"fails_on_base": list(line.fails_on_base)} if line.fails_on_base else {}),
        "network": line.network,
        "sandbox": "on" if line.sandbox else "off",
        "llm_calls": _calls(line.estimate.calls),
        "estimate": _estimate_document(line.estimate),
        "key": line.key or None,
        "location": place_document(line.place),
        "approve": line.approve or None,
    }


def _estimate_document(estimate: Estimate) -> dict[str, Json]:
    # Amounts are decimal strings: a float would change them.
    return {
        "input_tokens": estimate.input_tokens,
        "output_tokens": estimate.output_tokens,
        "earlier_answers": estimate.responses,
        "price": estimate.price,
        "cost_usd": {
            "min": _amount(estimate.least_cost),
            "likely": _amount(estimate.likely_cost),
            "max": _amount(estimate.most_cost),
        },
        "saved": {"calls": estimate.saved_calls, "cost_usd": _amount(estimate.saved_cost)},
        "cache_saving_usd": _amount(estimate.cache_saving),
        "shared_lines": estimate.shared_lines,
        "stored_at": estimate.stored_at or None,
        "explores": estimate.explores or None,
        "verifies_base": estimate.verifies_base,
        "duration_s": estimate.duration_s,
        "earlier_runs": estimate.runs,
    }


def reason_document(reason: Reason) -> dict[str, Json]:
    """Return a reason as plain values."""
    return {**from_struct(reason), "text": reason_text(reason)}


def place_document(place: Location | None) -> Json:
    """Return a place as plain values."""
    return None if place is None else {"file": place.file, "line": place.line, "column": place.column}


def _amount(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")


def _calls(calls: CallRange) -> dict[str, Json]:
    return {"min": calls.minimum, "max": None if calls.has_new_items else calls.maximum}
