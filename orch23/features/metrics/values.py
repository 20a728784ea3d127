"""Read the values of metrics files, and compare two versions of a file: as a table (text, Markdown) or JSON."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from textwrap import indent
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.parsing import YamlReader
from orch23.model.text import visible
from orch23.report.diagnostics import markdown_text
from orch23.report.values import Style, aligned, json_document, pluralize, truncate

MAX_METRICS_BYTES = 1_048_576
"""The size above which a metrics file is not read."""

MetricName: TypeAlias = tuple[str, ...]
"""The keys that lead to a value. A key may contain a dot, so names are joined only to be shown."""
MetricValue: TypeAlias = bool | int | float | str
MetricValues: TypeAlias = Mapping[MetricName, MetricValue]

# A longer integer is read as a float: Python refuses to write an integer of over 4,300 digits as text.
_MAX_DIGITS = 300
# The floats that YAML 1.2 has, but that files of orch23 may not have.
_YAML_FLOATS = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}
_PERCENT = 100


class MetricsError(ValueError):
    """A metrics file cannot be read: the text follows its path. `is_lost`: its bytes are no longer in the store."""

    def __init__(self, message: str, *, is_lost: bool = False) -> None:
        """Set the message."""
        super().__init__(message)
        self.is_lost = is_lost


def read_metrics(data: bytes, path: str, read_yaml: YamlReader) -> MetricValues:
    """Return the values of a metrics file, JSON or YAML by its name, in the order of the file.

    Mappings are flattened. Lists and nulls are left out, as DVC does.

    Raises:
        MetricsError: the file is too large, not valid, or has no names.
    """
    if len(data) > MAX_METRICS_BYTES:
        raise MetricsError(over_size())
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        message = "is not UTF-8"
        raise MetricsError(message) from None
    is_yaml = not path.endswith(".json")
    # Not `parse_json`: programs write NaN and Infinity into metrics, and no stage reads these values.
    read_json = partial(json.loads, parse_int=lambda digits: (int if len(digits) <= _MAX_DIGITS else float)(digits))
    tree = _parsed(read_yaml, text, "YAML") if is_yaml else _parsed(read_json, text, "JSON")
    if not isinstance(tree, Mapping):
        message = "has no names: it must be a mapping of names to numbers"
        raise MetricsError(message)
    floats = _YAML_FLOATS if is_yaml else {}
    return {
        name: floats.get(value.lower(), value) if isinstance(value, str) else value for name, value in flatten(tree)
    }


def over_size() -> str:
    """Return the error of a metrics file that is too large."""
    return f"is larger than {MAX_METRICS_BYTES:,} bytes"


def _parsed(parse: Callable[[str], Json], text: str, form: str) -> Json:
    try:
        return parse(text)
    except RecursionError:
        message = "is nested too deeply"
    except ValueError as error:
        message = f"is not valid {form}: {error}"
    raise MetricsError(message)


def flatten(tree: Mapping[str, Json]) -> Iterator[tuple[MetricName, MetricValue]]:
    """Yield the numbers, booleans and strings of nested mappings with their names, in order."""
    # Not recursive: a file may be nested as deeply as its parser allows.
    waiting: list[tuple[MetricName, Json]] = [((), tree)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [((*name, str(key)), below) for key, below in reversed([*value.items()])]
        elif isinstance(value, bool | int | float | str):
            yield name, value


class MetricChange(Struct, frozen=True):
    """A value in two versions of a metrics file; None if a version does not have it."""

    name: MetricName
    before: MetricValue | None
    now: MetricValue | None

    @property
    def status(self) -> Literal["added", "removed", "changed", "same"]:
        """Return what happened to the value."""
        if self.before is None:
            return "added"
        if self.now is None:
            return "removed"
        return "same" if _is_equal(self.before, self.now) else "changed"

    @property
    def difference(self) -> int | float | None:
        """Return the value now minus the value before; None if one of the two is not a finite number."""
        before, now = finite_number(self.before), finite_number(self.now)
        if before is None or now is None:
            return None
        if isinstance(before, int) and isinstance(now, int):
            return now - before
        # The shortest decimals, as the file has them: 0.3 - 0.1 is 0.2, and not 0.19999999999999998.
        found = float(Decimal(str(now)) - Decimal(str(before)))
        return found if math.isfinite(found) else None

    @property
    def percent(self) -> float | None:
        """Return the difference in percent of the value before; None if there is none."""
        before, difference = finite_number(self.before), self.difference
        if not before or difference is None:
            return None
        found = _PERCENT * float(difference) / abs(float(before))
        return found if math.isfinite(found) else None


def compare_metrics(before: MetricValues, now: MetricValues) -> tuple[MetricChange, ...]:
    """Return every value of two versions of a file: those of now in their order, then those that are gone."""
    return tuple(MetricChange(name, before.get(name), now.get(name)) for name in dict.fromkeys((*now, *before)))


def finite_number(value: MetricValue | None) -> int | float | None:
    """Return a value if it is a number that can be calculated with: not a boolean, NaN or an infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _is_equal(before: MetricValue, now: MetricValue) -> bool:
    if isinstance(before, float) and isinstance(now, float) and math.isnan(before) and math.isnan(now):
        return True
    return before == now and isinstance(before, bool) == isinstance(now, bool)


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
    return f"{style.paint(head, 'strong')}\n{indent(aligned([_HEAD, *rows], _NUMBERS), '  ')}" if rows else f"{head}\n"


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
