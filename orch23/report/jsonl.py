"""The output format `jsonl`: copy the journal of a run to stdout."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from orch23.model.event import Event, RunStarted
from orch23.model.sink import Sink
from orch23.report.formats import Format
from orch23.store.safe_files import open_stream


class JournalCopy(Struct, Sink):
    """A sink that comes after the journal: at each event it writes the lines that the file has gained.

    The lines are copied from the file, and not written a second time, so that their checksums are the same.
    """

    logs: Path
    write: Callable[[str], None]
    _path: Path | None = None
    _offset: int = 0

    def notice(self, event: Event) -> None:
        """Write the new lines that are complete."""
        if isinstance(event.data, RunStarted):
            self._path = self.logs / f"{event.data.run_id}.jsonl"
        if self._path is None:
            return
        with open_stream(self._path) as stream:
            stream.seek(self._offset)
            data = stream.read()
        # An incomplete line is written with the next event.
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        if whole:
            self.write(whole.decode("utf-8", "replace"))


JSONL = Format(make=lambda view: JournalCopy(view.logs, view.answer), is_alone=True)
