"""Report what the attempts of a stage do: events, artifacts for people, and lines of output as they come."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from orch23.engine.live import Live
from orch23.model.event import Event, EventData, Level, Observer


class ArtifactStore(Protocol):
    """What keeps the artifacts of a run for people."""

    def keep(self, stage: str, attempt: int, name: str, text: str) -> None:
        """Write one artifact of an attempt, in place of an earlier one of that name."""


class Reporter(Struct, frozen=True, kw_only=True):
    """Where all stages of a build report. What is kept is redacted first; `observer` redacts by itself.

    With `live`, lines that steps print and models write are events too.
    """

    observer: Observer
    artifacts: ArtifactStore
    redact: Callable[[str], str] = str
    live: bool = False

    def of_stage(self, name: str) -> "StageReporter":
        """Return where one stage reports."""
        return StageReporter(name, self, Live(self.observer.notice, name, self.redact, self.live))


class StageReporter(Struct, frozen=True):
    """Where one stage reports."""

    stage: str
    reporter: Reporter
    live: Live

    def tell(self, data: EventData, message: str, level: Level = "info") -> None:
        """Report an event of the stage."""
        self.reporter.observer.notice(Event(data, message, self.stage, level))

    def keep(self, attempt: int, name: str, text: str) -> None:
        """Keep an artifact of an attempt."""
        self.reporter.artifacts.keep(self.stage, attempt, name, self.reporter.redact(text))
