"""Follow the journal of a run while it is written."""

from collections.abc import Callable
from pathlib import Path

from orch23.features.pages.html.run_facts import JournalFold
from orch23.model.event import Event
from orch23.model.run_facts import RunFacts
from orch23.store.run_list import run_ids
from orch23.store.run_logs import whole_line
from orch23.store.safe_files import open_stream


class FollowedRun:
    """The facts of a run, up to the last line that is written. Without a run, those of the newest.

    One thread uses it at a time.
    """

    def __init__(self, logs: Path, run: str | None, newest: str, redact: Callable[[Event], Event]) -> None:
        """Begin with the run, or with the newest, which `newest` is now. `redact` removes secrets from an event."""
        self._logs = logs
        self._redact = redact
        self._follows_newest = run is None
        self._version = 0
        self._begin(run or newest)

    @property
    def facts(self) -> RunFacts:
        """Return the facts so far."""
        return self._fold.facts

    def poll(self) -> int:
        """Read what was written since, and return a number that is higher if something was."""
        if self._follows_newest:
            known = run_ids(self._logs)
            if known and known[0] != self.facts.run_id:
                self._begin(known[0])
        try:
            with open_stream(self._path) as stream:
                stream.seek(self._read_bytes)
                data = stream.read()
        except OSError:
            return self._version
        # A line without its end is being written.
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines(keepends=True):
            found = whole_line(line)
            if found is not None:
                self._fold.add_line(found)
        self._read_bytes += len(whole)
        self._version += bool(whole)
        return self._version

    def _begin(self, run: str) -> None:
        self._path = self._logs / f"{run}.jsonl"
        self._fold = JournalFold(run, self._redact)
        self._read_bytes = 0
        self._version += 1
