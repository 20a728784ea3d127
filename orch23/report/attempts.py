"""Describe the failed attempts of a stage, one line each."""

from collections.abc import Iterable
from decimal import Decimal

from orch23.model.event import AttemptFinished, AttemptStarted, CallSettled, Event
from orch23.model.text import format_duration, parse_amount
from orch23.report.diagnostics import visible
from orch23.report.values import money_text, pluralize, truncate

_MAX_RESULT = 100
_MAX_REASON = 160
_VERIFIED = ("verify_failed", "acceptance_failed")
_NOTHING_TO_VERIFY = ("llm_output_invalid", "write_scope_violation")


def failed_attempts(events: Iterable[tuple[float, Event]]) -> tuple[str, ...]:
    """Return a line for each failed attempt: the result, the duration, the calls and their cost.

    The events are those of a stage, each with its time in seconds.
    """
    lines: list[str] = []
    began: float | None = None
    calls, cost = 0, Decimal(0)
    for now, event in events:
        match event.data:
            case AttemptStarted():
                began, calls, cost = now, 0, Decimal(0)
            case CallSettled():
                calls += event.data.calls
                cost += parse_amount(event.data.cost) or Decimal(0)
            case AttemptFinished(passed=False):
                result = event.message.partition("\n")[0].replace(" failed: verify: ", " failed: ", 1)
                facts = [truncate(visible(result), _MAX_RESULT)]
                # The verification of a recorded result has no start.
                facts += [] if began is None else [format_duration(now - began)]
                facts += [pluralize(calls, "call")] if calls else []
                facts += [money_text(cost, Decimal(0))] if cost else []
                lines.append("   ".join(facts))
    return tuple(lines)


def hidden_reasons(events: Iterable[Event]) -> str:
    """Return the reason of each attempt of a stage: `3 attempts failed: 1: no module; 2, 3: cut off`.

    Empty unless a result failed its verification, and the last attempt failed before there was a result to verify: its
    reason says nothing about the earlier one.
    """
    ended = [one for one in events if isinstance(one.data, AttemptFinished) and one.data.attempt]
    kinds = [one.data.failure_kind for one in ended if isinstance(one.data, AttemptFinished)]
    if not ended or kinds[-1] not in _NOTHING_TO_VERIFY or not set(_VERIFIED).intersection(kinds):
        return ""
    numbers: dict[str, list[str]] = {}
    for number, one in enumerate(ended, 1):
        reason = one.message.partition("\n")[0].partition(" failed: ")[2].removeprefix("verify: ")
        numbers.setdefault(truncate(visible(reason), _MAX_REASON), []).append(str(number))
    reasons = "; ".join(f"{', '.join(found)}: {reason}" for reason, found in numbers.items())
    return f"{pluralize(len(ended), 'attempt')} failed: {reasons}"
