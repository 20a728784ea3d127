"""The metrics of a run: their values beside those of the run before it, and small plots."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET, Struct

from orch23.features.metrics.states import RunMetrics, StageFile, files_of
from orch23.features.metrics.values import (
    MetricChange,
    MetricName,
    MetricsError,
    MetricValues,
    change_texts,
    compare_metrics,
    finite_number,
    metric_text,
    value_text,
)
from orch23.features.pages.html.page import MetricRow, MetricsView, PlotView
from orch23.model.run_facts import RunFacts
from orch23.report.values import pluralize, truncate

PLOT_WIDTH, PLOT_HEIGHT = 120, 28
MAX_VERSIONS = 20
"""The most versions of a file that a plot shows."""
_MARGIN = 4.0
_MAX_ROWS = 100
_MAX_NOTES = 5
_MAX_NAME = 120


class MetricsHistory(Struct, frozen=True):
    """The metrics files of earlier runs, newest first, and how the values of a file are read.

    `values` gets the path and the SHA-256 of a file. It returns None if its bytes are no longer in the store, and
    raises MetricsError if they cannot be read.
    """

    earlier: Sequence[RunMetrics]
    values: Callable[[str, str], MetricValues | None]


NO_METRICS = MetricsHistory((), lambda _path, _sha256: None)
"""The history of a project whose store cannot be read."""


def describe_metrics(run: RunFacts, history: MetricsHistory, redact: Callable[[str], str]) -> MetricsView | None:
    """Return the metrics of a run; None if its stages have none."""
    files = _files(run, history.earlier)
    if not files:
        return None
    notes = _first_notes(history.earlier)
    changes: dict[str, tuple[MetricChange, ...]] = {}
    for path, now in files.items():
        former = next((one.files[path].sha256 for one in history.earlier if path in one.files), None)
        try:
            values = history.values(path, now.sha256)
        except MetricsError as error:
            notes.append(f"{path} {error}.")
            continue
        if values is None:
            notes.append(f"{path} is no longer in the store.")
            continue
        changes[path] = compare_metrics(_values(path, former, history) or {} if former else {}, values)
    shown, more = _shown(changes)
    notes = [*notes[:_MAX_NOTES], *([f"{pluralize(more, 'more value')}: `orch23 diff --all`."] if more else [])]
    tables = []
    for path, some in shown.items():
        versions = _versions(path, files[path].sha256, history)
        tables.append((redact(path), tuple(_row(change, versions, redact) for change in some)))
    return MetricsView(files=tuple(tables), note=redact(" ".join(notes)))


def _first_notes(earlier: Sequence[RunMetrics]) -> list[str]:
    if not earlier:
        return ["No run before it has metrics."]
    return [
        f"Compared with run {earlier[0].run_id}.",
        f"Each plot shows the last {MAX_VERSIONS} versions of its file that are in the store.",
    ]


def _files(run: RunFacts, earlier: Sequence[RunMetrics]) -> dict[str, StageFile]:
    """Return the metrics files at the end of a run: those that it names, and earlier ones that it did not affect."""
    ended = {name: stage.ended for name, stage in run.stages.items() if stage.ended is not None}
    own = {path: one for name, end in ended.items() for path, one in files_of(name, end).items()}
    # A stage that failed or was blocked left the files of its last result. One that is not named is gone, unless the
    # run names only the stages that an edit affects.
    names_all = bool(run.stages) and run.began.at_rest is UNSET and not run.added_at_rest
    newest = {path: one for before in reversed(earlier) for path, one in before.files.items()}
    for path, one in newest.items():
        is_left = not ended[one.stage].status.is_green if one.stage in ended else not names_all
        if is_left:
            own.setdefault(path, one)
    return own


def _versions(path: str, now: str, history: MetricsHistory) -> list[MetricValues]:
    digests = [now]
    for run in history.earlier:
        # A run that did not change the file has the version of the run before it.
        if path in run.files and run.files[path].sha256 != digests[-1]:
            digests.append(run.files[path].sha256)
        if len(digests) == MAX_VERSIONS:
            break
    found = (_values(path, sha256, history) for sha256 in reversed(digests))
    return [one for one in found if one is not None]


def _values(path: str, sha256: str, history: MetricsHistory) -> MetricValues | None:
    try:
        return history.values(path, sha256)
    except MetricsError:
        return None


def _shown(changes: Mapping[str, tuple[MetricChange, ...]]) -> tuple[dict[str, list[MetricChange]], int]:
    """Return at most 100 values by file, those that differ first if there are more; and the number of the others."""
    every = [(path, one) for path, some in changes.items() for one in some]
    more = len(every) - _MAX_ROWS
    if more > 0:
        every.sort(key=lambda one: one[1].status == "same")
    rows: dict[str, list[MetricChange]] = {}
    for path, one in every[:_MAX_ROWS]:
        rows.setdefault(path, []).append(one)
    return rows, max(more, 0)


def _row(change: MetricChange, versions: Sequence[MetricValues], redact: Callable[[str], str]) -> MetricRow:
    before, now, difference, percent = map(redact, change_texts(change))
    name = truncate(redact(metric_text(change.name)), _MAX_NAME)
    return MetricRow(
        name=name,
        before=before,
        now=now,
        change=difference,
        percent=percent,
        plot=draw_plot(change.name, name, versions),
    )


def draw_plot(name: MetricName, title: str, versions: Sequence[MetricValues]) -> PlotView | None:
    """Return the plot of a value over the versions of its file, oldest first; None without two numbers."""
    found = [(at, finite_number(one.get(name))) for at, one in enumerate(versions)]
    points = [(at, float(number)) for at, number in found if number is not None]
    if len(points) < 2:  # noqa: PLR2004 - a line has two points
        return None
    # Halves: the distance of two numbers may be too large for a float.
    least, most = (pick(number for _, number in points) / 2 for pick in (min, max))
    span = most - least
    step = (PLOT_WIDTH - 2 * _MARGIN) / (points[-1][0] - points[0][0])

    def place(at: int, number: float) -> tuple[float, float]:
        share = (number / 2 - least) / span if span else 0.5
        return _MARGIN + (at - points[0][0]) * step, PLOT_HEIGHT - _MARGIN - share * (PLOT_HEIGHT - 2 * _MARGIN)

    placed = [place(*point) for point in points]
    path = "".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(placed))
    words = ", ".join(value_text(number) for _, number in points)
    return PlotView(path, *placed[-1], f"{title}: {words}")
