"""What `watch` asks of each build."""

from collections.abc import Callable
from decimal import Decimal

from msgspec import Struct

from orch23.model.pipeline import Pipeline
from orch23.snapshot.stat_snapshot import StatSnapshot


class WatchedBuild(Struct, frozen=True, kw_only=True):
    """What `watch` asks of a build. With `holds`, stages wait that would call a model; `budget` replaces --budget.

    `on_end` gets the pipeline, the id of the run, and the states of the files that it used: None if the build wrote a
    snapshot, or if one of them changed since it was read. It is called while the build lock is held.
    `on_signal` gets the number of a signal that the build has received.
    """

    holds: bool
    budget: Decimal | None
    on_end: Callable[[Pipeline, str, StatSnapshot | None], None]
    on_signal: Callable[[int], None]
