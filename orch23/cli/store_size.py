"""Warn at the end of a build when the store exceeds its size limit."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from orch23.engine.build import Build
from orch23.model.errors import Orch23Error
from orch23.model.event import Event, Warned
from orch23.model.parsing import NaturalNumber, from_struct, to_struct
from orch23.report.values import format_size
from orch23.store.project_store import DEFAULT_CAP_BYTES, KEEP_VARIABLE, ProjectStore
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, write_atomic
from orch23.store.store_key import TRUSTED

_FILE = "size.json"
_DAY_S = 86_400
# The size is written again only after it grew by this fraction of the limit: an idle build writes nothing.
_WRITE_SHARE = 1000
# The user is warned only if `gc` would free more than this fraction of the limit.
_WARN_SHARE = 100


class _Measured(Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a store, and when it was measured, in seconds since 1970."""

    size_bytes: NaturalNumber
    measured_s: NaturalNumber


def warn_about_size(store: ProjectStore, build: Build, environ: Mapping[str, str], now_s: int) -> None:
    """Warn if the store is larger than its limit, with what `orch23 gc` would free. Only under the build lock."""
    limit: int | None = DEFAULT_CAP_BYTES
    if environ.get(KEEP_VARIABLE):
        from orch23.cli.retention import size_limit  # noqa: PLC0415 - only if the user sets a limit

        limit = size_limit(environ)
    if limit is None or _current_size(store, limit, now_s) <= limit:
        return
    from orch23.cli.retention import lock_file_needs  # noqa: PLC0415 - only for a store over its limit

    # Only the plan of this pipeline is known: a full plan of each pipeline, as in `gc`, would slow down every build.
    keys = frozenset(record.key for record in build.session.state.results.values())
    try:
        from orch23.store.garbage_collection import GarbageCollector, GcLimits  # noqa: PLC0415 - for a full store

        chosen = GarbageCollector(store).select(lock_file_needs(store.root, keys), GcLimits(max_bytes=limit))
    except Orch23Error:  # another pipeline's lock file is damaged: `orch23 gc` reports it
        return
    if chosen.freed_bytes > limit // _WARN_SHARE:
        message = (
            f"the store holds {format_size(chosen.size_bytes)}, over {format_size(limit)}: "
            f"`orch23 gc` would free up to {format_size(chosen.freed_bytes)}"
        )
        build.observer.notice(Event(Warned(), message, level="warning"))


def record_size(folder: Path, now_s: int) -> int:
    """Measure a store, and write its size for later builds."""
    from orch23.store.garbage_collection import count_files  # noqa: PLC0415 - once a day

    size_bytes = count_files(folder)[1]
    _write(folder, size_bytes, now_s)
    return size_bytes


def _current_size(store: ProjectStore, limit: int, now_s: int) -> int:
    """Return the last measured size plus what was added since. Measure again once a day: it lists all files."""
    folder, added = store.folder, store.local.contents.added_bytes
    try:
        measured = to_struct(TRUSTED.decode(read_regular(folder / _FILE) or b""), _Measured)
    except (OSError, ValueError):
        return record_size(folder, now_s)
    known, measured_s = measured.size_bytes + added, measured.measured_s
    # The sum does not know of removed files: measure again before a warning, and once a day.
    if added and (known > limit or not 0 <= now_s - measured_s < _DAY_S):
        return record_size(folder, now_s)
    if added >= limit // _WRITE_SHARE:
        _write(folder, known, measured_s)
    return known


def _write(folder: Path, size_bytes: int, measured_s: int) -> None:
    data = TRUSTED.encode(from_struct(_Measured(size_bytes, measured_s)))
    write_atomic(folder / _FILE, data, mode=PRIVATE_FILE_MODE)
