"""A layered layout of a graph, from left to right: columns, an order within each, and coordinates.

It is Sugiyama's method: longest paths give the columns, barycenters the order, and isotonic regression the
coordinates. Everything is deterministic: the same graph has the same picture.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from msgspec import Struct, field

ROW = 38.0
"""The least distance of two nodes of a column, from center to center."""
_GAP = 56.0
_DUMMY_ROW = 12.0
_SWEEPS = 10
_ALIGNMENTS = 8
# Beyond it, counting crossings of every sweep would take longer than it is worth.
_MAX_LINKS = 20_000


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


# A node of a column: a node of the graph, or the place where the edges of one node pass through a column.
_Cell = tuple[str, int]


class _Columns(Struct):
    """The cells of each column in order, with the neighbors of each cell to the left and to the right."""

    cells: list[list[_Cell]]
    left: dict[_Cell, list[_Cell]] = field(default_factory=dict)
    right: dict[_Cell, list[_Cell]] = field(default_factory=dict)


def layered_layout(widths: Mapping[str, float], edges: Iterable[tuple[str, str]]) -> GraphLayout:
    """Return the layout of nodes with these widths. Edges that would close a cycle are left out.

    Nodes without edges are put below the others, several in a row.
    """
    ranks, kept = _ranks(tuple(widths), dict.fromkeys(edges))
    linked = dict.fromkeys(name for edge in kept for name in edge)
    columns = _columns(ranks, kept, [name for name in widths if name in linked])
    _order(columns)
    heights = _heights(columns, frozenset(linked))
    spans = _column_spans(columns, widths)
    centers = {
        name: Point(spans[rank][0] + widths[name] / 2, heights[name, rank])
        for rank, cells in enumerate(columns.cells)
        for name, at in cells
        if at == rank and ranks[name] == rank
    }
    routes = {edge: _route(edge, ranks, spans, heights, widths, centers) for edge in kept}
    height = max((one.y for one in centers.values()), default=-ROW / 2) + ROW / 2
    height = max([height, *(y + _DUMMY_ROW / 2 for y in heights.values())])
    width = spans[-1][1] if spans else 0.0
    alone = [name for name in widths if name not in linked]
    below, width, height = _grid(alone, widths, width, height)
    return GraphLayout(centers={**centers, **below}, routes=routes, width=width, height=height)


def _ranks(
    names: Sequence[str], edges: Iterable[tuple[str, str]]
) -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """Return the column of each node, and the edges that lead to the right."""
    known = frozenset(names)
    pairs = [(a, b) for a, b in edges if a != b and a in known and b in known]
    after: dict[str, list[str]] = {name: [] for name in names}
    waiting = dict.fromkeys(names, 0)
    for a, b in pairs:
        after[a].append(b)
        waiting[b] += 1
    ranks: dict[str, int] = dict.fromkeys(names, 0)
    ready = [name for name in names if not waiting[name]]
    order = []
    while ready:
        name = ready.pop()
        order.append(name)
        for reader in after[name]:
            ranks[reader] = max(ranks[reader], ranks[name] + 1)
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    sorted_names = frozenset(order)
    kept = tuple((a, b) for a, b in pairs if a in sorted_names and b in sorted_names)
    # A node moves to the right, next to what reads it, if nothing is to its left.
    with_left = {b for _, b in kept}
    for name in reversed(order):
        if name not in with_left and after[name]:
            ranks[name] = min((ranks[reader] for reader in after[name] if reader in sorted_names), default=1) - 1
    return ranks, kept


def _columns(ranks: Mapping[str, int], edges: Iterable[tuple[str, str]], names: Sequence[str]) -> _Columns:
    cells: list[dict[_Cell, None]] = [{} for _ in range(1 + max((ranks[name] for name in names), default=-1))]
    columns = _Columns([])
    for name in names:
        cells[ranks[name]][name, ranks[name]] = None
    links: dict[tuple[_Cell, _Cell], None] = {}
    # All edges of one node that pass through a column share one cell there: they are drawn as a bundle.
    for a, b in edges:
        path: list[_Cell] = [(a, rank) for rank in range(ranks[a], ranks[b])] + [(b, ranks[b])]
        for cell in path[1:-1]:
            cells[cell[1]][cell] = None
        links.update(dict.fromkeys(pairwise(path)))
    columns.cells = [list(column) for column in cells]
    for one, other in links:
        columns.right.setdefault(one, []).append(other)
        columns.left.setdefault(other, []).append(one)
    return columns


def _order(columns: _Columns) -> None:
    """Sort each column by the mean position of the neighbors, to and fro; keep the order with the fewest crossings."""
    is_big = sum(map(len, columns.right.values())) > _MAX_LINKS
    best = [list(column) for column in columns.cells]
    fewest = 0 if is_big else _crossings(columns, best)
    current = [list(column) for column in best]
    for sweep in range(2 if is_big else _SWEEPS):
        forward = sweep % 2 == 0
        order = range(1, len(current)) if forward else range(len(current) - 2, -1, -1)
        neighbors = columns.left if forward else columns.right
        for at in order:
            beside = {cell: index for index, cell in enumerate(current[at - 1 if forward else at + 1])}
            means = {
                cell: _mean([beside[one] for one in neighbors.get(cell, ())], default=index)
                for index, cell in enumerate(current[at])
            }
            current[at].sort(key=means.__getitem__)
        number = 0 if is_big else _crossings(columns, current)
        if is_big or number < fewest:
            best, fewest = [list(column) for column in current], number
        if not fewest and not is_big:
            break
    columns.cells = best


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def _crossings(columns: _Columns, cells: Sequence[Sequence[_Cell]]) -> int:
    """Count the pairs of links between neighboring columns that cross."""
    total = 0
    for left, right in pairwise(cells):
        places = {cell: index for index, cell in enumerate(right)}
        seen: list[int] = []  # the ends of the links before, sorted
        for cell in left:
            targets = [places[one] for one in columns.right.get(cell, ())]
            total += sum(len(seen) - bisect_right(seen, place) for place in targets)
            for place in targets:
                insort(seen, place)
    return total


def _heights(columns: _Columns, names: frozenset[str]) -> dict[_Cell, float]:
    """Return the y of each cell: as near to its neighbors as the distances within the columns allow."""
    sizes = [[_size(cell, columns) for cell in column] for column in columns.cells]
    offsets = [[end - size / 2 for end, size in zip(accumulate(one), one, strict=True)] for one in sizes]
    heights = {
        cell: offset
        for column, column_offsets in zip(columns.cells, offsets, strict=True)
        for cell, offset in zip(column, column_offsets, strict=True)
    }
    for number in range(_ALIGNMENTS if names else 0):
        forward = number % 2 == 0
        order = range(len(columns.cells)) if forward else range(len(columns.cells) - 1, -1, -1)
        for at in order:
            wanted = []
            for cell in columns.cells[at]:
                sides = (columns.left.get(cell, []), columns.right.get(cell, []))
                # The first rounds look at one side, which moves whole chains; the last ones at both.
                beside = (sides[0] or sides[1]) if forward else (sides[1] or sides[0])
                beside = [*sides[0], *sides[1]] if number >= _ALIGNMENTS - 2 else beside
                wanted.append(_mean([heights[one] for one in beside], default=heights[cell]))
            heights.update(zip(columns.cells[at], _spread(wanted, offsets[at]), strict=True))
    top = min((y - _size(cell, columns) / 2 for cell, y in heights.items()), default=0.0)
    return {cell: y - top for cell, y in heights.items()}


def _is_dummy(cell: _Cell, columns: _Columns) -> bool:
    return (cell[0], cell[1] - 1) in columns.left.get(cell, ())


def _size(cell: _Cell, columns: _Columns) -> float:
    return _DUMMY_ROW if _is_dummy(cell, columns) else ROW


def _spread(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return positions near the wanted ones, at least as far apart as `offsets`: isotonic regression."""
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, number = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            former, count = blocks.pop()
            mean, number = (mean * number + former * count) / (number + count), number + count
        blocks.append((mean, number))
    means = [mean for mean, number in blocks for _ in range(number)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _column_spans(columns: _Columns, widths: Mapping[str, float]) -> list[tuple[float, float]]:
    spans, x = [], 0.0
    for column in columns.cells:
        width = max((widths[cell[0]] for cell in column if not _is_dummy(cell, columns)), default=0.0)
        spans.append((x, x + width))
        x += width + _GAP
    return spans


def _route(
    edge: tuple[str, str],
    ranks: Mapping[str, int],
    spans: Sequence[tuple[float, float]],
    heights: Mapping[_Cell, float],
    widths: Mapping[str, float],
    centers: Mapping[str, Point],
) -> tuple[Point, ...]:
    a, b = edge
    start, end = centers[a], centers[b]
    points = [Point(start.x + widths[a] / 2, start.y), Point(spans[ranks[a]][1], start.y)]
    for rank in range(ranks[a] + 1, ranks[b]):
        points += [Point(spans[rank][0], heights[a, rank]), Point(spans[rank][1], heights[a, rank])]
    return (*points, Point(spans[ranks[b]][0], end.y), Point(end.x - widths[b] / 2, end.y))


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
