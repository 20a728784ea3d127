"""Write compared metrics: a table as text, Markdown, JSON."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from orch23.features.metrics.values import MetricChange, MetricName, MetricValue, finite_number
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.text import visible
from orch23.report.diagnostics import markdown_text
from orch23.report.values import Style, json_document, pluralize, truncate

_HEAD = ("file", "metric", "before", "now", "change", "%")
# The columns of numbers, which are aligned to the right.
_NUMBERS = frozenset({2, 3, 4, 5})
_MAX_TEXT = 40
_ABSENT = "-"


def metric_text(name: MetricName) -> str:
    """Return a name as it is shown: `loss.train`."""
    return ".".join(name)


def value_text(value: MetricValue | None, *, exact: bool = False) -> str:
    """Return a value as it is shown: floats with six significant digits if not `exact`, long strings shortened."""
    match value:
        case None:
            return _ABSENT
        case bool():
            return str(value).lower()
        case float():
            return str(value) if exact else f"{value:.6g}"
        case int():
            return str(value)
        case _:
            return truncate(value, _MAX_TEXT)


def change_texts(change: MetricChange) -> tuple[str, str, str, str]:
    """Return value before, value now, difference, and difference in percent; empty where there is none."""
    before, now = value_text(change.before), value_text(change.now)
    if before == now and change.status == "changed":
        before, now = (value_text(one, exact=True) for one in (change.before, change.now))
    difference, percent = change.difference, change.percent
    if change.status == "same" or difference is None:
        return before, now, "", ""
    words = f"{difference:+d}" if isinstance(difference, int) else f"{difference:+.6g}"
    return before, now, words, "" if percent is None else f"{percent:+.1f}%"


class ComparedState(Struct, frozen=True, kw_only=True):
    """What is compared: the files of now, a commit or a run. `name` is what the user wrote, `id` the whole id."""

    kind: Literal["workspace", "revision", "run"]
    name: str = ""
    id: str = ""

    @property
    def text(self) -> str:
        """Return its name for a sentence."""
        if self.kind == "workspace":
            return "the workspace"
        return f"run {self.id}" if self.kind == "run" else f"{self.name} ({self.id[:12]})"


class MetricsComparison(Struct, frozen=True, kw_only=True):
    """The values of metrics files in two states of a project; `problems` are the files that could not be read."""

    pipeline: str
    file: str
    before: ComparedState
    now: ComparedState
    files: Mapping[str, tuple[MetricChange, ...]]
    problems: tuple[tuple[str, Diagnostic], ...] = ()


def comparison_text(compared: MetricsComparison, style: Style, *, show_all: bool) -> str:
    """Return the comparison as a table: the values that differ, or all of them."""
    rows = [tuple(map(visible, row)) for row in _rows(compared, show_all=show_all)]
    head = visible(_head(compared))
    return f"{style.paint(head, 'strong')}\n{_table(rows)}" if rows else f"{head}\n"


def comparison_markdown(compared: MetricsComparison, *, show_all: bool) -> str:
    """Return the same as Markdown."""
    rows = _rows(compared, show_all=show_all)
    head = f"{markdown_text(_head(compared))}\n"
    if not rows:
        return head
    lines = (f"| {' | '.join(map(markdown_text, row))} |\n" for row in rows)
    return f"{head}\n| {' | '.join(_HEAD)} |\n|---|---|--:|--:|--:|--:|\n{''.join(lines)}"


def _head(compared: MetricsComparison) -> str:
    changes = [one for changes in compared.files.values() for one in changes]
    differing = sum(one.status != "same" for one in changes)
    if not compared.files:
        return f"{compared.pipeline}: no stage declares `metrics`"
    found = f"{differing} of {pluralize(len(changes), 'metric')} changed" if differing else "no metric changed"
    return f"{compared.pipeline}: {found} between {compared.before.text} and {compared.now.text}"


def _rows(compared: MetricsComparison, *, show_all: bool) -> list[tuple[str, ...]]:
    return [
        (file, metric_text(one.name), *change_texts(one))
        for file, changes in compared.files.items()
        for one in changes
        if show_all or one.status != "same"
    ]


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    rows = [_HEAD, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]

    def cell(text: str, column: int) -> str:
        return f"{text:>{widths[column]}}" if column in _NUMBERS else f"{text:<{widths[column]}}"

    lines = ("  ".join(cell(text, column) for column, text in enumerate(row)).rstrip() for row in rows)
    return "".join(f"  {line}\n" for line in lines)


def comparison_json(compared: MetricsComparison) -> str:
    """Return all values of the comparison as one JSON document."""
    metrics: list[Json] = [
        {
            "file": file,
            "metric": metric_text(one.name),
            "status": one.status,
            "before": _plain(one.before),
            "now": _plain(one.now),
            "change": one.difference,
            "percent": one.percent,
        }
        for file, changes in compared.files.items()
        for one in changes
    ]
    problems: list[Json] = [
        {"code": one.code, "file": file, "message": one.message, "hint": one.hint} for file, one in compared.problems
    ]
    return json_document(
        {
            "orch23_diff": 1,
            "name": compared.pipeline,
            "pipeline": compared.file,
            "before": asdict(compared.before),
            "now": asdict(compared.now),
            "metrics": metrics,
            "problems": problems,
        }
    )


def _plain(value: MetricValue | None) -> Json:
    """Return a value for JSON, which has no NaN and no infinities: they are strings."""
    is_number = isinstance(value, float) and finite_number(value) is None
    return str(value) if is_number else value
