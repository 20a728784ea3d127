"""The interface of an output format of `build`."""

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from orch23.model.event import Observer
from orch23.model.pipeline import Pipeline
from orch23.model.ports import Sink
from orch23.report.marks import Style
from orch23.report.observers import sink_observer

if TYPE_CHECKING:
    from orch23.report.terminal import TerminalArea


ReadSource: TypeAlias = Callable[[str], str]
"""Return the text of a file of the project, by its path; an empty one if it cannot be read."""


class View(Struct, frozen=True, kw_only=True):
    """The input of a format. `tell` writes to stderr, `answer` to stdout; `clock` is monotonic, in seconds.

    `area` is the bottom of the terminal that stderr is; None if nothing may be painted there. `usual_s` reads the usual
    durations of stages in seconds, by name. `at_end` takes a function to call when the command ends. `redact` removes
    secrets: from `area` they are not removed again. `folder` is the place of the project in the repository.
    `read_source` returns the text of a file of the project, or an empty one.
    """

    pipeline: Pipeline
    tell: Callable[[str], None]
    answer: Callable[[str], None]
    logs: Path
    style: Style
    clock: Callable[[], float]
    verbose: bool = False
    area: "TerminalArea | None" = None
    usual_s: Callable[[], Mapping[str, float]] = dict
    at_end: Callable[[Callable[[], None]], object] = lambda _: None
    redact: Callable[[str], str] = str
    folder: PurePosixPath = PurePosixPath()
    read_source: ReadSource = str


Document: TypeAlias = Callable[[View], Sink]
"""Returns a sink that writes one text to `View.answer` when the run has ended."""


class Format(Struct, frozen=True, kw_only=True):
    """An output format. `make` returns the sink that shows a build.

    `in_a_line`: the format shows idle stages at most as a count. Then a build of what an edit reaches reports no other
    stage to the sink, and a build with nothing to do repeats the stderr text of the last one. Without it, each
    build reports each stage. `is_alone`: nothing else is shown beside the format, such as progress.
    """

    make: Callable[[View], Sink]
    in_a_line: bool = False
    is_alone: bool = False

    def observer(self, view: View) -> Observer:
        """Return the observer that shows a build."""
        return sink_observer(self.make(view), view.clock)
