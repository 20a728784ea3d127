"""A layered layout of a graph, from left to right: columns, an order within each, and coordinates.

Longest paths give the columns; the means of the neighbors give the order, and with isotonic regression the coordinates.
Everything is deterministic: the same graph has the same picture.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, count
from typing import NamedTuple

from msgspec import Struct

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
