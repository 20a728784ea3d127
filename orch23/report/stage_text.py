"""Describe how a stage ended: one line, and a block with the failure and the next step."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from msgspec import Struct

from orch23.model.event import CostText, StageFinished
from orch23.model.pipeline import Pipeline
from orch23.model.stage_status import StageStatus
from orch23.report.diagnostics import visible
from orch23.report.marks import Marks, Style, Tone
from orch23.report.plan_view import pipeline_arguments
from orch23.report.values import format_duration, format_money, pluralize
from orch23.resolve.commands import shorten_command

_KIND_WIDTH = 8
_MOST_PATHS = 3
_MOST_TEXT = 100
_OF_A_RUN = (StageStatus.BUILT, StageStatus.FAILED)
_TIMED = (*_OF_A_RUN, StageStatus.VERIFIED)


class FinishedStage(Struct, frozen=True):
    """How a stage ended: its name, the message, the facts."""

    name: str
    message: str
    data: StageFinished

    @property
    def status(self) -> StageStatus:
        """Give how it ended."""
        return self.data.status


def stage_line(
    ended: FinishedStage,
    kind: str,
    width: int,
    style: Style,
    *,
    again: Sequence[str] = (),
    restored: tuple[str, ...] = (),
) -> str:
    """Return the line of a `stage_finished`.

    `again` says for each request that the transport repeated why it did, `restored` are files that were put back.
    """
    status = ended.status
    mark, tone = status_sign(status, style.marks)
    word = kind if status in _OF_A_RUN else status.value
    spent = ended.data.duration_s or 0.0
    time = f"{format_duration(spent):>7}" if spent or status in _TIMED else " " * 7
    facts = _facts(ended, again, restored)
    head = f" {style.paint(mark, tone)} {visible(ended.name):<{width}}  {word:<{_KIND_WIDTH}} {time}"
    return f"{head}   {'   '.join(facts)}".rstrip()


def status_sign(status: StageStatus, marks: Marks) -> tuple[str, Tone]:
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


def parse_amount(amount: CostText) -> Decimal | None:
    """Return an amount as a number; None where it is unknown."""
    try:
        number = Decimal(amount or "")
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def has_unknown_price(ended: StageFinished) -> bool:
    """Say whether a stage asked a provider whose price nobody knows."""
    return ended.calls > 0 and parse_amount(ended.cost) is None


def retries_text(again: Sequence[str]) -> str:
    """Return the requests that were made again, and why: `2 retries: 429`; an empty text where none was."""
    if not again:
        return ""
    causes = ", ".join(dict.fromkeys(cause for cause in again if cause))
    number = "1 retry" if len(again) == 1 else f"{len(again)} retries"
    return f"{number}: {causes}" if causes else number


def _facts(ended: FinishedStage, again: Sequence[str], restored: tuple[str, ...]) -> list[str]:
    data = ended.data
    facts = [*_spent(data), retries_text(again)]
    if ended.status.has_result:
        facts += [_paths(data.outputs or restored)]
        facts += [f"passed at attempt {data.attempts}"] if data.attempts > 1 else []
        facts += ["same bytes as before"] if data.unchanged else []
    else:
        facts += [ended.message]
    return [_one_line(fact) for fact in facts if fact]


def _spent(data: StageFinished) -> list[str]:
    facts = [pluralize(data.calls, "call")] if data.calls else []
    facts += [pluralize(data.recorded, "recorded answer")] if data.recorded else []
    facts += ["written by hand"] if data.by_hand else []
    tokens = f"{data.input_tokens:,}+{data.output_tokens:,} tok"
    facts += [tokens] if data.input_tokens or data.output_tokens else []
    cost = parse_amount(data.cost)
    facts += [format_money(cost)] if cost else []
    facts += ["price unknown"] if has_unknown_price(data) else []
    return facts


def _paths(paths: tuple[str, ...]) -> str:
    more = f" +{len(paths) - _MOST_PATHS}" if len(paths) > _MOST_PATHS else ""
    return " ".join(paths[:_MOST_PATHS]) + more


def _one_line(text: str) -> str:
    flat = visible(text.strip().split("\n", 1)[0])
    return flat if len(flat) <= _MOST_TEXT else f"{flat[: _MOST_TEXT - 3]}..."


_HEAD_LINES = 6
_TAIL_LINES = 18
_MOST_NAMES = 8
_MOST_STAGES = 20


def failure_text(pipeline: Pipeline, ends: Sequence[FinishedStage], kinds: dict[str, str], style: Style) -> str:
    """Return a block for each stage that failed or waits for a person, and one for each foreach that is held back.

    Of more than 20 stages the first 20 are shown; the others have the same cause more often than not.
    """
    blocks = []
    shown = [end for end in ends if end.status in (StageStatus.FAILED, StageStatus.EDITED)]
    for end in shown[:_MOST_STAGES]:
        if end.status is StageStatus.FAILED:
            blocks.append(_failed(pipeline, end, kinds.get(end.name.partition("@")[0], ""), style))
        else:
            blocks.append(_edited(pipeline, end, style))
    if len(shown) > _MOST_STAGES:
        others = pluralize(len(shown) - _MOST_STAGES, "more stage")
        blocks.append(f"{others} that failed or wait for you are not shown; `orch23 log` lists all\n")
    blocks += _held(pipeline, ends, style)
    return "".join(f"\n{block}" for block in blocks)


def _heading(pipeline: Pipeline, end: FinishedStage, style: Style) -> str:
    mark, tone = status_sign(end.status, style.marks)
    place = pipeline.locate("stages", end.name)
    where = f"  {visible(str(place))}" if place else ""
    return f"{style.paint(mark, tone)} {style.paint(visible(end.name), 'strong')}{where}\n"


def _failed(pipeline: Pipeline, end: FinishedStage, kind: str, style: Style) -> str:
    lines = []
    command, attempts = end.data.command, end.data.attempts
    tried = f" (attempt {attempts})" if attempts > 1 else ""
    lines += [f"  $ {visible(shorten_command(command))}{tried}"] if command else []
    excerpt = end.data.failure.strip("\n")
    lines += [f"  | {line}" for line in _cut(visible(excerpt).split("\n"))] if excerpt else []
    why = end.message.partition("\n")[0]
    lines += [] if why in excerpt else [f"  {visible(why)}"]
    lines += _ways_out(end, excerpt)
    name = _named(pipeline, end)
    lines += _pinned(pipeline, end)
    if kind == "llm" and attempts:
        lines.append(f"  next: `orch23 show {name} --response`, `orch23 show {name} --prompt`")
    elif attempts:
        lines.append(f"  next: `orch23 show {name}` has all of its output")
    return _heading(pipeline, end, style) + "\n".join(lines) + "\n"


def _pinned(pipeline: Pipeline, end: FinishedStage) -> list[str]:
    """Return that a failure rests on recorded answers alone, so that building again changes nothing, and what does."""
    recorded = end.data.recorded
    if not recorded or end.data.calls:
        return []
    answers = f"{pluralize(recorded, 'answer')} {'is' if recorded == 1 else 'are'}"
    again = " ".join(["orch23 build", *pipeline_arguments(pipeline.file), "--resample", visible(end.name)])
    return [f"  nobody was asked: its {answers} recorded; `{again}` asks anew"]


def _ways_out(end: FinishedStage, excerpt: str) -> list[str]:
    """Return the code and the hint of what is wrong, where it has a hint that the excerpt does not say already."""
    found: dict[str, str] = {}
    for one in end.data.problems:
        if one.hint and f"[{one.code}]" not in excerpt:
            found.setdefault(one.code, one.hint)
    return [f"  = {visible(f'{code}: {hint}')}" for code, hint in found.items()]


def _edited(pipeline: Pipeline, end: FinishedStage, style: Style) -> str:
    name = _named(pipeline, end)
    give_up = " ".join(["orch23 build", *pipeline_arguments(pipeline.file), "--overwrite-edited"])
    lines = [
        f"  {visible(end.message)}",
        f"  next: `orch23 accept {name}` verifies the edit and keeps it; `{give_up}` gives it up",
    ]
    return _heading(pipeline, end, style) + "\n".join(lines) + "\n"


def _held(pipeline: Pipeline, ends: Sequence[FinishedStage], style: Style) -> list[str]:
    """Return, for each promotion group that was held back, which of its stages wait, for which, and what to do."""
    named = {stage.name: stage.promote for stage in pipeline.stages if stage.promote is not None}
    groups: dict[str, list[FinishedStage]] = {}
    for end in ends:
        if end.status is StageStatus.WITHHELD:
            family = end.name.partition("@")[0]
            groups.setdefault(named.get(family) or family, []).append(end)
    mark, tone = status_sign(StageStatus.WITHHELD, style.marks)
    build = " ".join(["orch23 build", *pipeline_arguments(pipeline.file)])
    blocks = []
    for family, members in groups.items():
        red = dict.fromkeys(name for end in members for name in end.data.by)
        name = style.paint(visible(family), "strong")
        lines = [
            f"{style.paint(mark, tone)} {name}  held back, since it is promoted together",
            f"  in the store, and not in the workspace: {_names([end.name for end in members])}",
            f"  next: mend {_names(list(red))}, then `{build}` promotes all of it; what waits is not made again",
        ]
        blocks.append("\n".join(lines) + "\n")
    return blocks


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return visible(" ".join(names[:_MOST_NAMES])) + more


def _named(pipeline: Pipeline, end: FinishedStage) -> str:
    """Return a stage as a command line names it: after its pipeline, unless that is the one that needs no naming."""
    return " ".join([*pipeline_arguments(pipeline.file), visible(end.name)])


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= _HEAD_LINES + _TAIL_LINES + 1:
        return lines
    left_out = len(lines) - _HEAD_LINES - _TAIL_LINES
    return [*lines[:_HEAD_LINES], f"... {left_out} lines ...", *lines[-_TAIL_LINES:]]
