"""What ran when, as a picture: a lane for each worker, a bar for each stage, and its attempts within it."""

from orch23.features.pages.html.page import BarView, TimelineView, Tone
from orch23.features.pages.html.statuses import stage_badge
from orch23.features.pages.html.texts import Anchors
from orch23.model.run_facts import RunFacts, StageFacts, StageSpan
from orch23.model.text import format_duration

_LEFT = 74.0
_WIDTH = 960.0
_LANE = 30.0
_TOP = 24.0
_BAR = 22.0
_CHARACTER = 6.6
_LEAST = 1.5
_MAX_TICKS = 8
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
_MAX_LANES = 64
_MAX_BARS = 1_500
# The journal has times in milliseconds.
_SLACK_S = 0.0005


def draw_timeline(run: RunFacts, anchors: Anchors) -> TimelineView | None:
    """Return the picture of all stages that ran; None if none did."""
    lanes = run.lanes(_SLACK_S)
    if not lanes:
        return None
    whole = max(run.last_s, 0.001)
    scale = _WIDTH / whole
    placed = [(span, stage, lane) for lane, span, stage in lanes if lane < _MAX_LANES]
    number_of_lanes = 1 + max(lane for lane, _, _ in lanes)
    shown = min(number_of_lanes, _MAX_LANES)
    notes = [f"{number_of_lanes - shown:,} more lanes are not shown."] if number_of_lanes > shown else []
    if len(placed) > _MAX_BARS:
        notes.append(f"Only the {_MAX_BARS:,} longest of {len(placed):,} bars are shown.")
        placed.sort(key=lambda one: one[0].start_s - (whole if one[0].end_s is None else one[0].end_s))
        placed = sorted(placed[:_MAX_BARS], key=lambda one: one[0].start_s)
    step = next((one for one in _STEPS if whole / one <= _MAX_TICKS), whole / _MAX_TICKS)
    ticks = tuple(
        (_LEFT + at * step * scale, format_duration(at * step)) for at in range(int(whole / step + 0.001) + 1)
    )
    return TimelineView(
        width=_LEFT + _WIDTH + 34,
        height=_TOP + shown * _LANE + 4,
        lanes=tuple((_TOP + at * _LANE, f"worker {at + 1}") for at in range(shown)),
        ticks=ticks,
        bars=tuple(_bar(span, stage, lane, scale, whole, anchors) for span, stage, lane in placed),
        note=" ".join(notes),
    )


def _bar(span: StageSpan, stage: StageFacts, lane: int, scale: float, whole: float, anchors: Anchors) -> BarView:
    end = whole if span.end_s is None else span.end_s
    width = max(_LEAST, (end - span.start_s) * scale)
    space = int((width - 10) / _CHARACTER)
    name = stage.name
    label = name if len(name) <= space else f"{name[: space - 1]}…" if space >= 4 else ""  # noqa: PLR2004 - "abc…"
    badge = stage_badge(stage.status)
    return BarView(
        x=_LEFT + span.start_s * scale,
        y=_TOP + lane * _LANE + (_LANE - _BAR) / 2,
        width=width,
        anchor=anchors.of_stage(name),
        label=label,
        title=f"{name}: {badge.word}, {format_duration(end - span.start_s)} from {format_duration(span.start_s)}",
        tone=badge.tone,
        marks=_marks(stage, span, end, scale),
    )


def _marks(stage: StageFacts, span: StageSpan, end: float, scale: float) -> tuple[tuple[float, float, Tone], ...]:
    marks: list[tuple[float, float, Tone]] = []
    for attempt in stage.attempts.values():
        start = attempt.start_s
        stop = end if attempt.end_s is None else attempt.end_s
        if start < span.start_s or stop > end + 0.001:
            continue
        tone: Tone = "good" if attempt.ended and attempt.ended.passed else "bad" if attempt.ended else "active"
        marks.append((_LEFT + start * scale, max(1.0, (stop - start) * scale - 1), tone))
    return tuple(marks)
