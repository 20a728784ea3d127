"""The graph of a run's stages, as a picture: colored by result, each node with a link to its row."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from orch23.features.pages.html.layout import Point, layered_layout
from orch23.features.pages.html.page import GraphView, NodeView, Tone
from orch23.features.pages.html.statuses import count_words, stage_badge, tone_shares, worst_badge
from orch23.features.pages.html.texts import Anchors, large_families
from orch23.model.run_facts import RunFacts, StageFacts
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
