"""One line of a build's screen: how a stage ended, in a fixed order of facts."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from msgspec import Struct

from orch23.model.event import Amount, StageFinished
from orch23.model.stage_status import StageStatus
from orch23.report.diagnostics import visible
from orch23.report.figures import count, duration
from orch23.report.marks import Marks, Style, Tone
from orch23.report.money import money

_KIND_WIDTH = 8
_MOST_PATHS = 3
_MOST_TEXT = 100
_OF_A_RUN = (StageStatus.BUILT, StageStatus.FAILED)
_TIMED = (*_OF_A_RUN, StageStatus.VERIFIED)


class Ended(Struct, frozen=True):
    """How a stage ended: its name, the message, the facts."""

    name: str
    message: str
    data: StageFinished

    @property
    def status(self) -> StageStatus:
        """Give how it ended."""
        return self.data.status


def stage_line(
    ended: Ended, kind: str, width: int, style: Style, *, again: Sequence[str] = (), restored: tuple[str, ...] = ()
) -> str:
    """Return the line of a `stage_finished`.

    `again` says for each request that the transport repeated why it did, `restored` are files that were put back.
    """
    status = ended.status
    mark, tone = sign(status, style.marks)
    word = kind if status in _OF_A_RUN else status.value
    spent = ended.data.duration_s or 0.0
    time = f"{duration(spent):>7}" if spent or status in _TIMED else " " * 7
    facts = _facts(ended, again, restored)
    head = f" {style.paint(mark, tone)} {visible(ended.name):<{width}}  {word:<{_KIND_WIDTH}} {time}"
    return f"{head}   {'   '.join(facts)}".rstrip()


def sign(status: StageStatus, marks: Marks) -> tuple[str, Tone]:
    """Return the sign and the tone of how a stage ended."""
    match status:
        case StageStatus.FRESH:
            return marks.fresh, "quiet"
        case StageStatus.FAILED:
            return marks.failed, "bad"
        case StageStatus.EDITED:
            return marks.edited, "bad"
        case _:
            return (marks.done, "good") if status.has_result else (marks.idle, "quiet")


def money_of(amount: Amount) -> Decimal | None:
    """Return an amount as a number; None where it is unknown."""
    try:
        number = Decimal(amount or "")
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def is_unpriced(ended: StageFinished) -> bool:
    """Say whether a stage asked a provider whose price nobody knows."""
    return ended.calls > 0 and money_of(ended.cost) is None


def retries(again: Sequence[str]) -> str:
    """Return the requests that were made again, and why: `2 retries: 429`; an empty text where none was."""
    if not again:
        return ""
    causes = ", ".join(dict.fromkeys(cause for cause in again if cause))
    number = "1 retry" if len(again) == 1 else f"{len(again)} retries"
    return f"{number}: {causes}" if causes else number


def _facts(ended: Ended, again: Sequence[str], restored: tuple[str, ...]) -> list[str]:
    data = ended.data
    facts = [*_spent(data), retries(again)]
    if ended.status.has_result:
        facts += [_paths(data.outputs or restored)]
        facts += [f"passed at attempt {data.attempts}"] if data.attempts > 1 else []
        facts += ["same bytes as before"] if data.unchanged else []
    else:
        facts += [ended.message]
    return [_one_line(fact) for fact in facts if fact]


def _spent(data: StageFinished) -> list[str]:
    facts = [count(data.calls, "call")] if data.calls else []
    facts += [count(data.recorded, "recorded answer")] if data.recorded else []
    facts += ["written by hand"] if data.by_hand else []
    tokens = f"{data.input_tokens:,}+{data.output_tokens:,} tok"
    facts += [tokens] if data.input_tokens or data.output_tokens else []
    cost = money_of(data.cost)
    facts += [money(cost)] if cost else []
    facts += ["price unknown"] if is_unpriced(data) else []
    return facts


def _paths(paths: tuple[str, ...]) -> str:
    more = f" +{len(paths) - _MOST_PATHS}" if len(paths) > _MOST_PATHS else ""
    return " ".join(paths[:_MOST_PATHS]) + more


def _one_line(text: str) -> str:
    flat = visible(text.strip().split("\n", 1)[0])
    return flat if len(flat) <= _MOST_TEXT else f"{flat[: _MOST_TEXT - 3]}..."
