"""Pictures of a run: the graph of its stages, colored by result, and the timeline, a lane for each worker.

The layout of the graph has columns from left to right: longest paths give the columns; the means of the neighbors give
the order, and with isotonic regression the coordinates. The same graph has the same picture.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, count, pairwise
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

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

ROW = 38.0
"""The least distance of two nodes of a column, from center to center."""
_GAP = 56.0
_PASSING_ROW = 12.0
_SWEEPS = 12


class Point(NamedTuple):
    """A position, in pixels."""

    x: float
    y: float


class GraphLayout(Struct, frozen=True, kw_only=True):
    """The center of each node, the points of each edge, and the size of the whole.

    The points of an edge come in pairs: between the two of a pair it is a straight line, else a curve.
    """

    centers: Mapping[str, Point]
    routes: Mapping[tuple[str, str], tuple[Point, ...]]
    width: float
    height: float


# A cell of a column: a node of the graph, or the place where the edges of one node pass through a column.
_Cell = tuple[str, int]


def layered_layout(widths: Mapping[str, float], edges: Iterable[tuple[str, str]]) -> GraphLayout:
    """Return the layout of nodes with these widths. Edges that would close a cycle are left out.

    Nodes without edges are put below the others, several in a row.
    """
    ranks, kept = _ranks(widths, edges)
    links = _links(ranks, kept)
    columns: list[list[_Cell]] = [[] for _ in range(1 + max((rank for _, (_, rank) in links), default=-1))]
    for cell in dict.fromkeys(cell for link in links for cell in link):
        columns[cell[1]].append(cell)
    heights = _heights(columns, links, ranks)
    spans, x = [], 0.0
    for rank, column in enumerate(columns):
        width = max(widths[name] for name, _ in column if ranks[name] == rank)
        spans.append((x, x + width))
        x += width + _GAP
    centers = {
        name: Point(spans[rank][0] + widths[name] / 2, heights[name, rank])
        for rank, column in enumerate(columns)
        for name, _ in column
        if ranks[name] == rank
    }
    routes = {}
    for a, b in kept:
        start, end = centers[a], centers[b]
        points = [Point(start.x + widths[a] / 2, start.y), Point(spans[ranks[a]][1], start.y)]
        points += [Point(side, heights[a, rank]) for rank in range(ranks[a] + 1, ranks[b]) for side in spans[rank]]
        routes[a, b] = (*points, Point(spans[ranks[b]][0], end.y), Point(end.x - widths[b] / 2, end.y))
    height = max((y + _size(cell, ranks) / 2 for cell, y in heights.items()), default=0.0)
    below, width, height = _grid([name for name in widths if name not in centers], widths, max(0.0, x - _GAP), height)
    return GraphLayout(centers={**centers, **below}, routes=routes, width=width, height=height)


def _ranks(names: Iterable[str], edges: Iterable[tuple[str, str]]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the column of each node, and the edges that lead to the right."""
    before: dict[str, list[str]] = {name: [] for name in names}
    after: dict[str, list[str]] = {name: [] for name in names}
    for a, b in dict.fromkeys(edges):
        if a != b:
            before[b].append(a)
            after[a].append(b)
    sorter = TopologicalSorter(before)
    # Two foreach whose items need each other in turn are a cycle if they are drawn as one node each.
    with suppress(CycleError):
        sorter.prepare()
    ranks: dict[str, int] = {}
    for rank in count():
        ready = sorter.get_ready()
        if not ready:
            break
        ranks.update(dict.fromkeys(ready, rank))
        sorter.done(*ready)
    kept = [(a, b) for b in before for a in before[b] if b in ranks]
    # A node moves to the right, next to what reads it, if nothing is to its left.
    for name in ranks:
        if not before[name]:
            ranks[name] = min((ranks[one] for one in after[name] if one in ranks), default=1) - 1
    return ranks, kept


def _links(ranks: Mapping[str, int], edges: Iterable[tuple[str, str]]) -> list[tuple[_Cell, _Cell]]:
    # All edges of one node that pass through a column share one cell there: they are drawn as a bundle.
    ends: dict[str, int] = {}
    links = []
    for a, b in edges:
        links.append(((a, ranks[b] - 1), (b, ranks[b])))
        ends[a] = max(ends.get(a, 0), ranks[b] - 1)
    return [*links, *(((a, rank), (a, rank + 1)) for a, end in ends.items() for rank in range(ranks[a], end))]


def _heights(
    columns: Sequence[list[_Cell]], links: Iterable[tuple[_Cell, _Cell]], ranks: Mapping[str, int]
) -> dict[_Cell, float]:
    """Return the y of each cell, and sort the columns: as near to its neighbors as the distances in a column allow."""
    left: dict[_Cell, list[_Cell]] = {}
    right: dict[_Cell, list[_Cell]] = {}
    for one, other in links:
        right.setdefault(one, []).append(other)
        left.setdefault(other, []).append(one)
    heights = {cell: at * ROW for column in columns for at, cell in enumerate(column)}
    for number in range(_SWEEPS):
        forward = number % 2 == 0
        for column in columns if forward else reversed(columns):
            wanted = {}
            for cell in column:
                sides = (left.get(cell, []), right.get(cell, []))
                # The first rounds look at one side, which moves whole chains; the last ones at both.
                beside = (sides[0] or sides[1]) if forward else (sides[1] or sides[0])
                beside = [*sides[0], *sides[1]] if number >= _SWEEPS - 2 else beside
                wanted[cell] = sum([heights[one] for one in beside]) / len(beside)
            column.sort(key=wanted.__getitem__)
            sizes = [_size(cell, ranks) for cell in column]
            offsets = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
            heights.update(zip(column, _spread([wanted[cell] for cell in column], offsets), strict=True))
    top = min((y - _size(cell, ranks) / 2 for cell, y in heights.items()), default=0.0)
    return {cell: y - top for cell, y in heights.items()}


def _size(cell: _Cell, ranks: Mapping[str, int]) -> float:
    return ROW if ranks[cell[0]] == cell[1] else _PASSING_ROW


def _spread(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return positions near the wanted ones, at least as far apart as `offsets`: isotonic regression."""
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, number = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            former, members = blocks.pop()
            mean, number = (mean * number + former * members) / (number + members), number + members
        blocks.append((mean, number))
    means = [mean for mean, number in blocks for _ in range(number)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _grid(
    names: Sequence[str], widths: Mapping[str, float], width: float, height: float
) -> tuple[dict[str, Point], float, float]:
    """Put nodes without edges below the others, as many in a row as the picture is wide."""
    if not names:
        return {}, width, height
    cell = max(widths[name] for name in names) + _GAP / 2
    # About twice as wide as high, if there is nothing above.
    across = max(1, round((width + _GAP / 2) / cell), round((2 * len(names) * ROW / cell) ** 0.5))
    across = min(across, len(names))
    top = height + (ROW / 2 if height else 0.0)
    found = {
        name: Point(at % across * cell + widths[name] / 2, top + at // across * ROW + ROW / 2)
        for at, name in enumerate(names)
    }
    rows = -(-len(names) // across)
    return found, max(width, across * cell - _GAP / 2), top + rows * ROW


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
