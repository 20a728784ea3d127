"""Pictures of a run: the graph of its stages, colored by result, and the timeline, a lane for each worker."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from orch23.features.pages.html.layout import Point, layered_layout
from orch23.features.pages.html.page import (
    BarView,
    GraphView,
    NodeView,
    TimelineView,
    Tone,
    count_words,
    stage_badge,
    tone_shares,
    worst_badge,
)
from orch23.features.pages.html.texts import Anchors, large_families
from orch23.model.run_facts import RunFacts, StageFacts, StageSpan
from orch23.model.text import format_duration
from orch23.report.values import truncate

MAX_NODES = 2_000
"""Beyond so many nodes the graph is not drawn: it would be neither readable nor quick."""
NODE_HEIGHT = 28.0
_MAX_LABEL = 30
# Width of a character of the labels (a monospaced font), in pixels.
_CHARACTER = 7.3
_PADDING = 38.0
_MARGIN = 6.0
_LEAST_WIDTH = 72.0


def draw_graph(run: RunFacts, anchors: Anchors) -> GraphView:
    """Return the picture of the stages that the journal names. A foreach with more than 12 items is one node."""
    stages = run.stages.values()
    large = large_families((one.name, one.family) for one in stages)
    members: dict[str, list[StageFacts]] = {}
    for one in stages:
        members.setdefault(one.family if one.family in large else one.name, []).append(one)
    node_of = {one.name: name for name, group in members.items() for one in group}
    families: dict[str, list[str]] = {}
    for name in members:
        families.setdefault(name.partition("@")[0], []).append(name)
    edges: dict[tuple[str, str], None] = {}
    outside: dict[str, None] = {}
    for one in stages:
        for need in one.needs:
            found = [node_of[need]] if need in node_of else families.get(need, [])
            if not found:
                outside[need] = None
                found = [need]
            edges.update(dict.fromkeys((name, node_of[one.name]) for name in found))
    if not members:
        return GraphView(note="The journal names no stages: nothing had changed.")
    if len(members) + len(outside) > MAX_NODES:
        return GraphView(note=f"{len(members):,} stages are too many for a picture.")
    return _picture(members, tuple(outside), tuple(edges), anchors)


def _picture(
    members: dict[str, list[StageFacts]],
    outside: Sequence[str],
    edges: Iterable[tuple[str, str]],
    anchors: Anchors,
) -> GraphView:
    notes = {name: f" x{len(group)}" if _is_folded(name, group) else "" for name, group in members.items()}
    labels = {name: truncate(name, _MAX_LABEL) for name in (*members, *outside)}
    widths = {
        name: max(_LEAST_WIDTH, _CHARACTER * len(label + notes.get(name, "")) + _PADDING)
        for name, label in labels.items()
    }
    layout = layered_layout(widths, edges)
    nodes = []
    for name, center in layout.centers.items():
        width = widths[name]
        node = NodeView(
            x=center.x - width / 2 + _MARGIN,
            y=center.y - NODE_HEIGHT / 2 + _MARGIN,
            width=width,
            label=labels[name],
            title=f"{name}: not part of this run",
            badge=stage_badge("waiting"),
        )
        nodes.append(_of_stages(node, name, members[name], notes[name], anchors) if name in members else node)
    return GraphView(
        width=layout.width + 2 * _MARGIN,
        height=layout.height + 2 * _MARGIN,
        nodes=tuple(nodes),
        paths=tuple(map(_path, layout.routes.values())),
        legend=tuple(dict.fromkeys(stage_badge(one.status) for group in members.values() for one in group)),
        note="Dashed stages are not part of this run." if outside else "",
    )


def _is_folded(name: str, group: Sequence[StageFacts]) -> bool:
    return len(group) > 1 or group[0].name != name


def _of_stages(node: NodeView, name: str, group: Sequence[StageFacts], note: str, anchors: Anchors) -> NodeView:
    badges = [stage_badge(one.status) for one in group]
    is_folded = _is_folded(name, group)
    parts: list[tuple[Tone, float, float]] = []
    at = 0.0
    for tone, number in tone_shares(badges) if is_folded else ():
        width = node.width * number / len(group)
        parts.append((tone, at, width))
        at += width
    first = group[0]
    kind = f"{first.kind}, " if first.kind else ""
    return replace(
        node,
        title=f"{name}: {kind}{count_words(badges) if is_folded else badges[0].word}",
        badge=worst_badge(badges),
        anchor=anchors.of_group(name) if is_folded else anchors.of_stage(first.name),
        note=note,
        parts=tuple(parts),
    )


def _path(points: Sequence[Point]) -> str:
    moved = [Point(one.x + _MARGIN, one.y + _MARGIN) for one in points]
    out = [f"M{moved[0].x:.0f} {moved[0].y:.1f}"]
    for index, (start, end) in enumerate(pairwise(moved)):
        if index % 2 == 0:
            out.append(f"H{end.x:.0f}" if end.x - start.x >= 1 else "")
        else:
            middle = (start.x + end.x) / 2
            out.append(f"C{middle:.0f} {start.y:.1f} {middle:.0f} {end.y:.1f} {end.x:.0f} {end.y:.1f}")
    return "".join(out)


_LEFT = 74.0
_WIDTH = 960.0
_LANE = 30.0
_TOP = 24.0
_BAR = 22.0
_BAR_CHARACTER = 6.6
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
    space = int((width - 10) / _BAR_CHARACTER)
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
