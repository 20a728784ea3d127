"""The interface of an output format of `build`."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from orch23.model.event import Observer
from orch23.model.pipeline import Pipeline
from orch23.report.marks import Style


class View(Struct, frozen=True, kw_only=True):
    """What a build is shown with: `tell` writes to stderr, `answer` to stdout. `clock` is monotonic, in seconds."""

    pipeline: Pipeline
    tell: Callable[[str], None]
    answer: Callable[[str], None]
    logs: Path
    style: Style
    clock: Callable[[], float]
    verbose: bool = False


class Format(Struct, frozen=True, kw_only=True):
    """One form. `make` returns the observer that shows a build.

    `in_a_line` says that it shows a stage with nothing to do at most by a count: then a build of what an edit reaches
    tells the observer of no other stage, and a build with nothing to do repeats what the last one told on stderr.
    Without it the observer hears of each stage in each build. With `is_alone` nothing else is shown: no progress.
    """

    make: Callable[[View], Observer]
    in_a_line: bool = False
    is_alone: bool = False
