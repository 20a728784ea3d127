"""The layout of the graph: columns follow the edges, nothing overlaps, and it is the same each time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.features.pages.html.graph import ROW, GraphLayout, layered_layout

HEIGHT = 28.0


def overlaps(layout: GraphLayout, widths: dict[str, float]) -> list[tuple[str, str]]:
    boxes = [(name, at.x - widths[name] / 2, at.x + widths[name] / 2, at.y) for name, at in layout.centers.items()]
    return [
        (one[0], other[0])
        for at, one in enumerate(boxes)
        for other in boxes[at + 1 :]
        if one[1] < other[2] and other[1] < one[2] and abs(one[3] - other[3]) < HEIGHT
    ]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, float], list[tuple[str, str]]]:
    number = draw(st.integers(0, 14))
    widths = {f"n{at}": draw(st.floats(40, 300)) for at in range(number)}
    pairs = st.tuples(st.integers(0, max(0, number - 1)), st.integers(0, max(0, number - 1)))
    edges = draw(st.lists(pairs, max_size=30)) if number else []
    return widths, [(f"n{min(pair)}", f"n{max(pair)}") for pair in edges]


@given(graphs())
def test_no_node_covers_another_and_edges_lead_to_the_right(
    graph: tuple[dict[str, float], list[tuple[str, str]]],
) -> None:
    widths, edges = graph
    layout = layered_layout(widths, edges)
    assert set(layout.centers) == set(widths)
    assert overlaps(layout, widths) == []
    assert set(layout.routes) == {(a, b) for a, b in edges if a != b}
    for (a, b), points in layout.routes.items():
        assert points[0] == (layout.centers[a].x + widths[a] / 2, layout.centers[a].y)
        assert points[-1] == (layout.centers[b].x - widths[b] / 2, layout.centers[b].y)
        assert all(one.x <= other.x + 1e-6 for one, other in pairwise(points))
    for name, at in layout.centers.items():
        assert widths[name] / 2 - 1e-6 <= at.x <= layout.width - widths[name] / 2 + 1e-6
        assert HEIGHT / 2 <= at.y <= layout.height - HEIGHT / 2
    assert layered_layout(widths, edges) == layout


def test_a_cycle_of_a_forged_journal_is_left_out() -> None:
    layout = layered_layout(dict.fromkeys("abc", 50.0), [("a", "b"), ("b", "a"), ("c", "c")])
    assert set(layout.centers) == set("abc")
    assert layout.routes == {}


def test_parallel_chains_are_straight_and_do_not_cross() -> None:
    edges = [(f"{row}{at}", f"{row}{at + 1}") for row in "xyz" for at in range(4)]
    names = {name: 60.0 for edge in reversed(edges) for name in edge}
    layout = layered_layout(names, edges)
    for row in "xyz":
        assert len({layout.centers[f"{row}{at}"].y for at in range(5)}) == 1


def test_crossings_are_removed() -> None:
    # As declared, each edge would cross the others.
    edges = [pair for at in range(6) for pair in ((f"a{at}", f"b{5 - at}"), (f"b{at}", f"c{at * 5 % 6}"))]
    layout = layered_layout(dict.fromkeys([f"{one}{at}" for one in "abc" for at in range(6)], 60.0), edges)
    for a, b in edges:
        assert layout.centers[a].y == pytest.approx(layout.centers[b].y)


def test_nodes_without_edges_fill_rows_below() -> None:
    names = {f"n{at}": 80.0 for at in range(40)}
    layout = layered_layout({"a": 80.0, "b": 80.0, **names}, [("a", "b")])
    assert min(layout.centers[name].y for name in names) > layout.centers["a"].y
    rows = {layout.centers[name].y for name in names}
    assert 2 <= len(rows) <= 12
    assert layout.height < 14 * ROW


def test_a_long_edge_passes_beside_the_nodes_between() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
    layout = layered_layout(dict.fromkeys("abcd", 60.0), edges)
    points = layout.routes["a", "d"]
    for name in "bc":
        center = layout.centers[name]
        beside = [one.y for one in points if center.x - 30 <= one.x <= center.x + 30]
        assert beside
        assert all(abs(y - center.y) > HEIGHT / 2 for y in beside)
