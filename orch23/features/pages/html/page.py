"""What the page of a run shows: texts that are ready to be read, and pictures that are ready to be drawn."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from orch23.features.pages.html.texts import LongText

Tone: TypeAlias = Literal["good", "kept", "bad", "stopped", "idle", "active"]
"""The color of a result: built; up to date or restored; failed; stopped; nothing to do; running."""


class Badge(Struct, frozen=True):
    """A status: its word, a symbol for readers who do not see the color, and its tone."""

    word: str
    sign: str
    tone: Tone


class Fact(Struct, frozen=True):
    """A value with its name, and what explains it."""

    label: str
    value: str
    note: str = ""


class Row(Struct, frozen=True):
    """A name with a text; a `link` is the id of an element of the page."""

    name: str
    text: str
    link: str = ""


class AttemptView(Struct, frozen=True, kw_only=True):
    """One attempt of a stage: how it ended, its failed tests, and its texts."""

    number: int
    badge: Badge
    summary: str
    facts: tuple[Row, ...] = ()
    failing: tuple[str, ...] = ()
    texts: tuple[LongText, ...] = ()


class StageView(Struct, frozen=True, kw_only=True):
    """One stage: a row of the table, and what can be opened below it. `share` is its part of the longest time."""

    anchor: str
    name: str
    kind: str
    badge: Badge
    reason: str
    attempts: str = ""
    calls: str = ""
    tokens: str = ""
    cost: str = ""
    time: str = ""
    share: float = 0.0
    message: str = ""
    hints: tuple[str, ...] = ()
    facts: tuple[Row, ...] = ()
    tries: tuple[AttemptView, ...] = ()
    changes: tuple[LongText, ...] = ()

    @property
    def has_details(self) -> bool:
        """Return whether there is something to open."""
        return bool(self.tries or self.changes or self.message or self.facts)


class StageGroup(Struct, frozen=True, kw_only=True):
    """Stages that share one row which can be opened: items of a foreach, or stages with nothing to do.

    `more` says how many others there are.
    """

    anchor: str
    title: str
    summary: str
    badge: Badge
    stages: tuple[StageView, ...]
    more: str = ""


class FailureView(Struct, frozen=True, kw_only=True):
    """A stage that failed or needs a decision."""

    anchor: str
    name: str
    message: str
    command: str
    excerpt: str
    hints: tuple[str, ...]
    failing: tuple[str, ...] = ()


class NodeView(Struct, frozen=True, kw_only=True):
    """A box of the graph. `anchor` is empty if the node has no row. `parts` are the shares of the items by tone."""

    x: float
    y: float
    width: float
    label: str
    title: str
    badge: Badge
    anchor: str = ""
    note: str = ""
    parts: tuple[tuple[Tone, float, float], ...] = ()


class GraphView(Struct, frozen=True, kw_only=True):
    """The picture of the graph. `paths` are the edges, as data of SVG paths; without `nodes` there is only a note."""

    width: float = 0.0
    height: float = 0.0
    nodes: tuple[NodeView, ...] = ()
    paths: tuple[str, ...] = ()
    legend: tuple[Badge, ...] = ()
    note: str = ""


class BarView(Struct, frozen=True, kw_only=True):
    """A stage on the timeline. `marks` are its attempts: x, width, and tone."""

    x: float
    y: float
    width: float
    anchor: str
    label: str
    title: str
    tone: Tone
    marks: tuple[tuple[float, float, Tone], ...] = ()


class TimelineView(Struct, frozen=True, kw_only=True):
    """The picture of what ran when: one lane for each worker, and ticks with their times."""

    width: float
    height: float
    lanes: tuple[tuple[float, str], ...]
    ticks: tuple[tuple[float, str], ...]
    bars: tuple[BarView, ...]
    note: str = ""


class ImpactView(Struct, frozen=True, kw_only=True):
    """What led to the work of a run: a change and the stages that it made run, each with its link."""

    causes: tuple[tuple[str, tuple[Row, ...]], ...] = ()
    followers: tuple[Row, ...] = ()
    cutoffs: tuple[Row, ...] = ()
    note: str = ""


class ComparisonRow(Struct, frozen=True):
    """A value then and now, and the difference in words."""

    name: str
    then: str
    now: str
    change: str = ""
    link: str = ""


class ComparisonView(Struct, frozen=True, kw_only=True):
    """The run beside the run of the same pipeline before it."""

    run_id: str
    totals: tuple[ComparisonRow, ...]
    stages: tuple[ComparisonRow, ...]
    note: str = ""


class PlotView(Struct, frozen=True):
    """A small plot of a value: the line as data of an SVG path, its last point, and its values in words."""

    path: str
    x: float
    y: float
    title: str


class MetricRow(Struct, frozen=True, kw_only=True):
    """A value of a metrics file before and now; `plot` is None without at least two numbers."""

    name: str
    before: str
    now: str
    change: str
    percent: str
    plot: PlotView | None = None


class MetricsView(Struct, frozen=True, kw_only=True):
    """The values of metrics files, by file, and what the reader should know about them."""

    files: tuple[tuple[str, tuple[MetricRow, ...]], ...]
    note: str


class SentRow(Struct, frozen=True):
    """A file, or a part of one, that was sent to a provider: in how many requests, and by which stages."""

    place: str
    bytes: str
    requests: int
    stages: str


class SentView(Struct, frozen=True):
    """What was sent to one provider: the files, and a text about those that are not listed."""

    receiver: str
    rows: tuple[SentRow, ...]
    more: str = ""


class RunPage(Struct, frozen=True, kw_only=True):
    """Everything that the page of a run shows, in the order of the page."""

    title: str
    badge: Badge
    verdict: str
    subtitle: str
    totals: tuple[Fact, ...]
    failures: tuple[FailureView, ...]
    notes: tuple[str, ...]
    graph: GraphView
    timeline: TimelineView | None
    impact: ImpactView
    blocks: tuple[StageView | StageGroup, ...]
    comparison: ComparisonView | None
    metrics: MetricsView | None
    sent: tuple[SentView, ...]
    provenance: tuple[Row, ...]
    versions: tuple[Row, ...]
    generated: str


_BADGES: Final[Mapping[str, Badge]] = {
    "built": Badge("built", "✔", "good"),
    "verified": Badge("verified", "✔", "good"),
    "restored": Badge("restored", "↺", "kept"),
    "fresh": Badge("fresh", "=", "kept"),
    "done": Badge("done", "=", "kept"),
    "skipped": Badge("skipped", "-", "idle"),
    "edited": Badge("edited", "!", "bad"),
    "failed": Badge("failed", "✘", "bad"),
    "blocked": Badge("blocked", "■", "stopped"),
    "cancelled": Badge("cancelled", "■", "stopped"),
    "held": Badge("withheld", "■", "stopped"),
    "awaiting": Badge("awaiting", "…", "stopped"),
    "running": Badge("running", "▸", "active"),
    "unfinished": Badge("not finished", "■", "stopped"),
    "waiting": Badge("waiting", "·", "idle"),
}
_RUNS: Final[Mapping[str, Badge]] = {
    "ok": Badge("passed", "✔", "good"),
    "failed": Badge("failed", "✘", "bad"),
    "limit": Badge("limit reached", "■", "bad"),
    "decision": Badge("your decision is needed", "!", "bad"),
    "interrupted": Badge("interrupted", "■", "stopped"),
    "waiting": Badge("waiting for batches", "…", "stopped"),
    "approval": Badge("waiting for approval", "!", "stopped"),
    "running": Badge("running", "▸", "active"),
    "unfinished": Badge("not finished", "■", "stopped"),
}
# The worst first: a group is shown like the worst of its stages.
_ORDER: Final[tuple[Tone, ...]] = ("bad", "stopped", "active", "good", "kept", "idle")


def stage_badge(status: str) -> Badge:
    """Return the badge of a stage."""
    return _BADGES.get(status, Badge(status, "·", "idle"))


def run_badge(status: str) -> Badge:
    """Return the badge of a run."""
    return _RUNS.get(status, Badge(status, "·", "idle"))


def worst_badge(badges: Iterable[Badge]) -> Badge:
    """Return the badge of several stages: the badge of the worst."""
    return min(badges, key=lambda one: _ORDER.index(one.tone))


def tone_shares(badges: Iterable[Badge]) -> list[tuple[Tone, int]]:
    """Return how many badges have each tone, the worst first."""
    tones = [one.tone for one in badges]
    return [(tone, number) for tone in _ORDER if (number := tones.count(tone))]


def count_words(badges: Iterable[Badge]) -> str:
    """Return how many badges have each word: `3 built, 1 failed`."""
    return ", ".join(f"{number:,} {word}" for word, number in Counter(one.word for one in badges).items())
