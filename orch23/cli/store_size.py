"""Warn at the end of a build when the store exceeds its size limit."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from orch23.engine.build import Build
from orch23.model.parsing import NaturalNumber
from orch23.store.json_text import TRUSTED
from orch23.store.project_store import DEFAULT_CAP_BYTES, KEEP_VARIABLE, ProjectStore
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, walk_tree, write_atomic

_FILE = "size.json"
_DAY_S = 86_400
# The size is written again only after it grew by this fraction of the limit: an idle build writes nothing.
_WRITE_SHARE = 1000


class _Measured(Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a store, and when it was measured, in seconds since 1970."""

    size_bytes: NaturalNumber
    measured_s: NaturalNumber


def warn_about_size(store: ProjectStore, build: Build, environ: Mapping[str, str], now_s: int) -> None:
    """Warn if the store is larger than its limit. Only under the build lock."""
    if not environ.get(KEEP_VARIABLE) and current_size(store, DEFAULT_CAP_BYTES, now_s) <= DEFAULT_CAP_BYTES:
        return
    from orch23.model.features import FULL_STORE, is_installed, load_feature  # noqa: PLC0415 - for a full store

    if is_installed(FULL_STORE):
        load_feature(FULL_STORE)(store, build, environ, now_s)


def record_size(folder: Path, now_s: int) -> int:
    """Measure a store, and write its size for later builds."""
    size_bytes = count_files(folder)[1]
    _write(folder, size_bytes, now_s)
    return size_bytes


def count_files(folder: Path) -> tuple[int, int]:
    """Return the number and the total size of the files below a folder. A file that is deleted meanwhile is skipped."""
    files = size_bytes = 0
    for _, entry in walk_tree(folder, ignored=(FileNotFoundError, NotADirectoryError)):
        if not entry.is_dir(follow_symlinks=False):
            try:
                size_bytes += entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
            files += 1
    return files, size_bytes


def current_size(store: ProjectStore, limit: int, now_s: int) -> int:
    """Return the last measured size plus what was added since. Measure again once a day: it lists all files."""
    folder, added = store.folder, store.local.contents.added_bytes
    try:
        measured = TRUSTED.decode(read_regular(folder / _FILE) or b"", _Measured)
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
    data = TRUSTED.encode(_Measured(size_bytes, measured_s))
    write_atomic(folder / _FILE, data, mode=PRIVATE_FILE_MODE)
