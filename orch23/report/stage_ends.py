"""Collect how the stages of a run ended, for documents that are written at its end."""

from msgspec import Struct, field

from orch23.model.event import Event, StageFinished
from orch23.report.stage_text import FinishedStage


class StageEnds(Struct):
    """An observer that keeps how each stage ended.

    A stage can end twice, if its inputs change during the build: only the last time counts.
    """

    _ends: dict[str, FinishedStage] = field(default_factory=dict)

    def notice(self, event: Event) -> None:
        """Keep the end of a stage; other events are ignored."""
        if isinstance(event.data, StageFinished):
            self._ends[event.role] = FinishedStage(event.role, event.message, event.data)

    def all(self) -> list[FinishedStage]:
        """Return the ends in the order in which the stages ended first."""
        return [*self._ends.values()]

    def failures(self) -> list[FinishedStage]:
        """Return the ends of the stages that failed or were edited."""
        return [end for end in self.all() if end.status.is_failure]
