"""Metrics on the page of a run: which files a run left, what they are compared with, and plots."""

import math
import re
from collections.abc import Mapping

import pytest
from msgspec import UNSET

from orch23.features.metrics.states import RunMetrics, StageFile
from orch23.features.metrics.values import MetricsError, MetricValues
from orch23.features.pages.html.metrics import (
    MAX_VERSIONS,
    PLOT_HEIGHT,
    PLOT_WIDTH,
    MetricsHistory,
    describe_metrics,
    draw_plot,
)
from orch23.features.pages.html.page import MetricRow, MetricsView
from orch23.model.event import RunStarted, StageFinished
from orch23.model.event_data import StageStatus
from orch23.model.run_facts import RunFacts, StageFacts


def _stage(name: str, status: StageStatus, files: Mapping[str, str] | None = None) -> StageFacts:
    metrics = UNSET if files is None else dict(files)
    return StageFacts(name=name, ended=StageFinished(status=status, metrics=metrics))


def _run(*stages: StageFacts, at_rest: dict[str, int] | None = None) -> RunFacts:
    began = RunStarted() if at_rest is None else RunStarted(at_rest=at_rest)
    return RunFacts(run_id="now", began=began, stages={one.name: one for one in stages})


def _earlier(*runs: Mapping[str, tuple[str, str]]) -> tuple[RunMetrics, ...]:
    return tuple(
        RunMetrics(f"run{number}", {path: StageFile(*one) for path, one in files.items()})
        for number, files in enumerate(runs)
    )


def _number(path: str, sha256: str) -> MetricValues | None:
    """Return the number that a digest of a test is."""
    del path
    if sha256 == "bad":
        message = "is not valid JSON"
        raise MetricsError(message)
    return None if sha256 == "lost" else {("n",): float(sha256)}


def _view(run: RunFacts, *earlier: RunMetrics) -> MetricsView:
    view = describe_metrics(run, MetricsHistory(earlier, _number), str)
    assert view is not None
    return view


def _rows(view: MetricsView) -> dict[str, MetricRow]:
    return {file: rows[0] for file, rows in view.files}


def test_a_run_is_compared_with_the_newest_that_had_the_file() -> None:
    earlier = _earlier({"b": ("t", "7")}, {"a": ("s", "2")}, {"a": ("s", "1")})
    run = _run(_stage("s", StageStatus.BUILT, {"a": "3"}), _stage("t", StageStatus.BUILT, {"b": "7"}))
    rows = _rows(_view(run, *earlier))
    assert [(rows["a"].before, rows["a"].now, rows["a"].change, rows["a"].percent)] == [("2", "3", "+1", "+50.0%")]
    assert (rows["b"].before, rows["b"].now, rows["b"].change) == ("7", "7", "")
    assert rows["a"].plot is not None
    assert rows["a"].plot.title == "n: 1, 2, 3"
    assert rows["b"].plot is None


@pytest.mark.parametrize(
    ("run", "has_file"),
    [
        (_run(_stage("s", StageStatus.FAILED)), True),
        (_run(_stage("s", StageStatus.BUILT)), False),  # its metrics were removed from the pipeline
        (_run(_stage("t", StageStatus.BUILT)), False),  # its stage was removed
        (_run(_stage("t", StageStatus.BUILT), at_rest={"fresh": 1}), True),
        (_run(), True),  # nothing had changed
    ],
)
def test_files_that_a_run_did_not_write(run: RunFacts, has_file: bool) -> None:
    view = describe_metrics(run, MetricsHistory(_earlier({"a": ("s", "2")}), _number), str)
    assert (view is not None) == has_file
    if view is not None:
        assert [(one.before, one.now) for one in _rows(view).values()] == [("2", "2")]


def test_lost_and_broken_files_are_notes() -> None:
    run = _run(_stage("s", StageStatus.BUILT, {"a": "bad", "b": "lost", "c": "1"}))
    view = _view(run, *_earlier({"c": ("s", "bad")}, {"c": ("s", "lost")}, {"c": ("s", "5")}))
    assert [*_rows(view)] == ["c"]
    assert "a is not valid JSON." in view.note
    assert "b is no longer in the store." in view.note
    plot = _rows(view)["c"].plot
    assert plot is not None
    assert plot.title == "n: 5, 1"


def test_a_plot_shows_versions_and_not_runs() -> None:
    runs = [{"a": ("s", str(number // 3))} for number in reversed(range(90))]
    view = _view(_run(_stage("s", StageStatus.FRESH, {"a": "29"})), *_earlier(*runs))
    plot = _rows(view)["a"].plot
    assert plot is not None
    assert plot.title == f"n: {', '.join(map(str, range(30 - MAX_VERSIONS, 30)))}"


def test_at_most_a_hundred_values_are_shown_those_that_differ_first() -> None:
    def values(path: str, sha256: str) -> MetricValues:
        del path
        return {(f"v{at:03}",): at if at != 140 else int(sha256) for at in range(150)}

    run = _run(_stage("s", StageStatus.BUILT, {"a": "2"}))
    view = describe_metrics(run, MetricsHistory(_earlier({"a": ("s", "1")}), values), str)
    assert view is not None
    rows = view.files[0][1]
    assert (len(rows), rows[0].name, rows[1].name) == (100, "v140", "v000")
    assert "50 more values: `orch23 diff --all`." in view.note


def test_texts_are_redacted() -> None:
    def values(path: str, sha256: str) -> MetricValues:
        del path, sha256
        return {("token-secret",): "secret"}

    run = _run(_stage("s", StageStatus.BUILT, {"secret.json": "1"}))
    view = describe_metrics(run, MetricsHistory((), values), lambda text: text.replace("secret", "***"))
    assert "secret" not in repr(view)
    assert "***" in repr(view)


# ---- plots --------------------------------------------------------------------------------------


def _places(*numbers: object) -> list[tuple[float, float]]:
    plot = draw_plot(("n",), "n", [{("n",): one} for one in numbers])  # type: ignore[dict-item]
    assert plot is not None
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", plot.path)]


def test_the_highest_value_is_at_the_top_and_the_last_at_the_right() -> None:
    assert _places(1, 3, 2) == [(4, 24), (60, 4), (116, 14)]


def test_equal_values_are_a_line_in_the_middle() -> None:
    assert [y for _, y in _places(5, 5)] == [PLOT_HEIGHT / 2] * 2


@pytest.mark.parametrize(
    "numbers",
    [(-1.7e308, 1.7e308), (10**300, -(10**300), 0), (2e-323, 1e-323), (1, math.nan, 2, True, "x", 3, math.inf)],
)
def test_every_point_is_within_the_plot(numbers: tuple[object, ...]) -> None:
    places = _places(*numbers)
    assert all(0 <= x <= PLOT_WIDTH and 0 <= y <= PLOT_HEIGHT for x, y in places)
    assert len({y for _, y in places}) > 1


def test_one_number_is_no_line() -> None:
    assert draw_plot(("n",), "n", [{("n",): 1}, {("n",): "x"}, {}]) is None
