"""The facts of a run from the lines of its journal."""

from collections.abc import Callable, Iterable
from datetime import datetime

from orch23.model.event import Event
from orch23.model.run_facts import RunFacts, RunFold
from orch23.store.run_logs import JournalLine


class JournalFold(RunFold):
    """Computes the facts of a run, line by line of its journal."""

    def __init__(self, run_id: str, redact: Callable[[Event], Event]) -> None:
        """Begin before the first line. `redact` removes secrets from an event."""
        super().__init__(run_id)
        self._redact = redact
        self._began: datetime | None = None

    def add_line(self, line: JournalLine) -> None:
        """Add the next line."""
        self.facts.started_at = self.facts.started_at or line.ts
        self.add(self._redact(line.event), self._seconds(line.ts))

    def _seconds(self, timestamp: str) -> float:
        try:
            moment = datetime.fromisoformat(timestamp)
            self._began = self._began or moment
            return max(0.0, (moment - self._began).total_seconds())
        except (ValueError, TypeError):  # a forged time, or one without a zone beside one with a zone
            return self.facts.last_s


def read_run(run_id: str, lines: Iterable[JournalLine], redact: Callable[[Event], Event]) -> RunFacts:
    """Return what the journal of a run says, without secrets. A run that was killed has no `ended`."""
    fold = JournalFold(run_id, redact)
    for line in lines:
        fold.add_line(line)
    facts = fold.facts
    facts.is_over = True
    for stage in facts.stages.values():
        stage.is_over = True
    return facts
