"""Show the values of metrics and their differences."""

from orch23.report.values import truncate
from orch23.resolve.metrics import MetricChange, MetricName, MetricValue

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
