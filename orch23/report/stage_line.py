"""One line of a build's screen: how a stage ended, in a fixed order of facts."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation

from orch23.model.digest import Json
from orch23.model.event import Event
from orch23.report.diagnostics import visible
from orch23.report.figures import count, duration
from orch23.report.marks import Marks, Style, Tone
from orch23.report.money import money

_KIND_WIDTH = 8
_MOST_PATHS = 3
_MOST_TEXT = 100
_GREEN = ("built", "restored", "verified")


def stage_line(
    event: Event, kind: str, width: int, style: Style, *, again: Sequence[str] = (), restored: tuple[str, ...] = ()
) -> str:
    """Return the line of a `stage_finished`.

    `again` says for each request that the transport repeated why it did, `restored` are files that were put back.
    """
    data = event.data
    status = text_of(data, "status")
    mark, tone = sign(status, style.marks)
    word = kind if status in ("built", "failed") else status
    spent = number_of(data, "duration_s")
    time = f"{duration(spent):>7}" if spent or status in ("built", "failed", "verified") else " " * 7
    facts = _facts(event, again, restored)
    head = f" {style.paint(mark, tone)} {visible(event.role):<{width}}  {word:<{_KIND_WIDTH}} {time}"
    return f"{head}   {'   '.join(facts)}".rstrip()


def sign(status: str, marks: Marks) -> tuple[str, Tone]:
    """Return the sign and the tone of how a stage ended."""
    if status in _GREEN:
        return marks.done, "good"
    if status == "fresh":
        return marks.fresh, "quiet"
    if status == "failed":
        return marks.failed, "bad"
    return (marks.edited, "bad") if status == "edited" else (marks.idle, "quiet")


def text_of(data: Mapping[str, Json], name: str) -> str:
    """Return a text of an event's data, or an empty one."""
    value = data.get(name)
    return value if isinstance(value, str) else ""


def number_of(data: Mapping[str, Json], name: str) -> float:
    """Return a number of an event's data, or 0."""
    value = data.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def money_of(data: Mapping[str, Json], name: str) -> Decimal | None:
    """Return an amount of an event's data; None where it is unknown."""
    try:
        amount = Decimal(text_of(data, name))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None


def is_unpriced(data: Mapping[str, Json]) -> bool:
    """Say whether a stage asked a provider whose price nobody knows."""
    return number_of(data, "calls") > 0 and "cost" in data and money_of(data, "cost") is None


def retries(again: Sequence[str]) -> str:
    """Return the requests that were made again, and why: `2 retries: 429`; an empty text where none was."""
    if not again:
        return ""
    causes = ", ".join(dict.fromkeys(cause for cause in again if cause))
    number = "1 retry" if len(again) == 1 else f"{len(again)} retries"
    return f"{number}: {causes}" if causes else number


def texts_of(data: Mapping[str, Json], name: str) -> tuple[str, ...]:
    """Return the texts of a list in an event's data."""
    value = data.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(str(one) for one in value)


def _facts(event: Event, again: Sequence[str], restored: tuple[str, ...]) -> list[str]:
    data = event.data
    status = text_of(data, "status")
    facts = [*_spent(data), retries(again)]
    if status in (*_GREEN, "fresh"):
        facts += [_paths(texts_of(data, "outputs") or restored)]
        attempts = int(number_of(data, "attempts"))
        facts += [f"passed at attempt {attempts}"] if attempts > 1 else []
        facts += ["same bytes as before"] if data.get("unchanged") is True else []
    else:
        facts += [event.message]
    return [_one_line(fact) for fact in facts if fact]


def _spent(data: Mapping[str, Json]) -> list[str]:
    calls, recorded = int(number_of(data, "calls")), int(number_of(data, "recorded"))
    tokens_in, tokens_out = int(number_of(data, "input_tokens")), int(number_of(data, "output_tokens"))
    facts = [count(calls, "call")] if calls else []
    facts += [count(recorded, "recorded answer")] if recorded else []
    facts += ["written by hand"] if number_of(data, "by_hand") else []
    facts += [f"{tokens_in:,}+{tokens_out:,} tok"] if tokens_in or tokens_out else []
    cost = money_of(data, "cost")
    facts += [money(cost)] if cost else []
    facts += ["price unknown"] if is_unpriced(data) else []
    return facts


def _paths(paths: tuple[str, ...]) -> str:
    more = f" +{len(paths) - _MOST_PATHS}" if len(paths) > _MOST_PATHS else ""
    return " ".join(paths[:_MOST_PATHS]) + more


def _one_line(text: str) -> str:
    flat = visible(text.strip().split("\n", 1)[0])
    return flat if len(flat) <= _MOST_TEXT else f"{flat[: _MOST_TEXT - 3]}..."
