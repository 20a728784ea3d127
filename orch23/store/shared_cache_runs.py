"""Find out from the journals what runs did with a shared cache."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from orch23.model.event import SharedCacheUsed
from orch23.store.run_logs import journal_paths, run_pipeline, whole_line
from orch23.store.safe_files import read_regular

_MARK = b'"type":"%s"' % SharedCacheUsed.kind.encode()


class SharedCacheRun(Struct, frozen=True):
    """What one run did with a shared cache. `started` is the time of its first event."""

    run_id: str
    pipeline: str
    started: str
    used: SharedCacheUsed


def shared_cache_run(path: Path) -> SharedCacheRun | None:
    """Return what the run of a journal did with a shared cache; None if it used none, or if that line is damaged."""
    data = read_regular(path) or b""
    if _MARK not in data:
        return None
    lines = data.splitlines(keepends=True)
    # It is one of the last lines: uploads end after all stages.
    found = (whole_line(line) for line in reversed(lines) if _MARK in line)
    used = next((one.event.data for one in found if one and isinstance(one.event.data, SharedCacheUsed)), None)
    if used is None:
        return None
    first = whole_line(lines[0])
    pipeline, started = (run_pipeline(first), first.ts) if first is not None else ("", "")
    return SharedCacheRun(path.stem, pipeline, started, used)


def shared_cache_runs(logs: Path) -> Iterator[SharedCacheRun]:
    """Give the runs that used a shared cache, newest first."""
    for path in journal_paths(logs):
        if (found := shared_cache_run(path)) is not None:
            yield found
