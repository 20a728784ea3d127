"""Store the records of results: one file per stage key, checksummed lines, newest last."""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from msgspec import Struct

from orch23.model.digest import FileEntry, canonical_json
from orch23.model.record import Record
from orch23.snapshot.signatures import sha256_hex
from orch23.store.index import IndexFaultError, StoreIndex
from orch23.store.json_text import TRUSTED, StoreKey
from orch23.store.record_format import (
    RecordEntry,
    RecordFile,
    file_lookup,
    index_row,
    lookup_keys,
    move_body,
    record_body,
    record_to_json,
)
from orch23.store.safe_files import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    check_no_link,
    closing,
    list_folder,
    make_folder,
    make_subfolder,
    open_own,
    read_regular,
    sync_folder,
    write_all,
    write_atomic,
)

# It pairs the index with the records: an index that is older after a power cut is noticed (ADR 31).
GENERATION_FILE = "generation"
"""The file beside the records with a random text, replaced by each process that changes records."""
RECORDS_TABLE = "records"
"""The table of the index for records: from a digest of kind and value to the keys of their files, one a line."""
_STATE = b"state 2"
_SPARE_LINES = 16
_TOKEN_BYTES = 16
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class SurveyedRecord(Struct, frozen=True):
    """A stored record: the digest to delete it by, a value to sort it by its last use, and its size."""

    record: Record
    digest: str
    last_used: tuple[int, int]
    size_bytes: int


class Records:
    """All records of a project. Safe for calls from several threads.

    A line holds a record, or marks a record above it as the newest again. Each line has its own checksum, so a torn
    append does not damage earlier lines. Damaged lines are dropped, reported in `damaged`, and deleted from the disk by
    the next put.

    With an index that matches the records, a lookup reads only the files that it needs; without one, the first lookup
    reads all files.
    """

    def __init__(self, folder: Path, index: StoreIndex | None = None, store_key: StoreKey = TRUSTED) -> None:
        """Read nothing before the first lookup, and write nothing before the first put."""
        self.folder = folder
        self._store_key = store_key
        self._base = str(folder)
        self._source = index
        self._lock = threading.RLock()
        self._read_files: dict[str, RecordFile] | None = None
        self._index: dict[str, dict[str, tuple[RecordEntry, ...]]] = {}
        self._found: set[tuple[str, str]] | None = None
        self._number = 0
        self._damaged: list[str] = []
        self._has_changed = False
        self._is_indexed = False
        self._changed: dict[tuple[str, str], list[str]] = {}
        self.damaged: list[str] = []

    def generation(self) -> str:
        """Return a text that differs whenever the records were changed.

        The times of folders are part of it: they show changes by an earlier version, which did not write the file.
        """
        text = (read_regular(self.folder.parent / GENERATION_FILE, 2 * _TOKEN_BYTES) or b"").decode("ascii", "replace")
        try:
            with os.scandir(self.folder) as groups:
                files = sorted([(one.name, one.stat(follow_symlinks=False).st_mtime_ns) for one in groups])
        except (FileNotFoundError, NotADirectoryError):
            files = []
        return f"{text} {sha256_hex(repr(files).encode('utf-8', 'surrogateescape'))}"

    def is_indexed(self) -> bool:
        """Return whether the index matches the records on the disk."""
        with self._lock:
            return self._has_index()

    def by_key(self, key: str) -> tuple[Record, ...]:
        """Return the records of a stage key, newest first, without retained failures."""
        return self._results("key", key)

    def proven(self, key: str) -> tuple[Record, ...]:
        """Return the records of a key that builds of this user wrote, newest first, with retained failures."""
        return tuple(entry.record for entry in self._entries("key", key) if entry.is_proven)

    def by_core(self, core: str) -> tuple[Record, ...]:
        """Return the records that differ only in verification, newest first, without retained failures."""
        return self._results("core", core)

    def by_identity(self, identity: str) -> tuple[Record, ...]:
        """Return the records of a stage under any name, newest first, with retained failures."""
        return self._newest("identity", identity)

    def labelled(self, stage: str) -> tuple[Record, ...]:
        """Return the records of a stage, newest first, with retained failures."""
        return self._newest("stage", stage)

    def owners(self, path: str) -> tuple[Record, ...]:
        """Return the records with an output of this path, newest first, with retained failures."""
        return self._newest("path", path)

    def having(self, path: str, entry: FileEntry) -> tuple[Record, ...]:
        """Return the records whose output of this path has this entry, newest first, with retained failures."""
        return self._newest("file", file_lookup(path, entry))

    def put(self, record: Record, *, durable: bool = True) -> None:
        """Store a record as the newest; unless `durable`, it is so after the next sync of the file system.

        A record that is stored already is moved, which need not be durable.
        """
        body = canonical_json(record_to_json(record))
        with self._lock:
            self._load()
            self._find("key", record.key)
            self._reload_if_changed(record.key)
            files = self._load()
            self._repair(files)
            file = files.setdefault(record.key, RecordFile())
            entry = RecordEntry(record, sha256_hex(body), self._number + 1)
            known = file.entries.get(entry.digest)
            if known is not None and not known.is_proven:  # a claim that was verified
                known = None
            if known is not None and self._is_newest(known):
                return
            line = self._store_key.line(record_body(entry.number, body) if known is None else move_body(entry))
            try:
                self._begin_change()
                # A line that only moves a record need not be durable: without it the order is another, no result is
                # lost.
                self._write(record.key, file, entry, line, durable=durable and known is None)
            except BaseException:
                # A part of the line may be on the disk: read it again.
                self._forget_index()
                raise
            lookups = tuple(lookup_keys(entry.record))
            if self._found is not None:
                # The other records of a lookup are not read for its row: there may be many of a stage.
                self._changed.update((one, self._keys(*one)) for one in lookups if one not in self._changed)
            self._enter(entry, lookups)

    def use(self, record: Record) -> None:
        """Note that a record was used, in the time of its file. A failure is ignored: only `gc` reads the time."""
        with contextlib.suppress(OSError):
            os.utime(self._path(record.key), follow_symlinks=False)

    def everything(self) -> tuple[Record, ...]:
        """Return all records, the least recently used first."""
        return tuple(one.record for one in self.survey())

    def survey(self) -> tuple[SurveyedRecord, ...]:
        """Return all records, the least recently used first."""
        with self._lock:
            surveyed = []
            for key, file in self._load_all().items():
                try:
                    used_ns = self._path(key).stat().st_mtime_ns
                except FileNotFoundError:
                    used_ns = 0
                each = file.size_bytes // max(1, len(file.entries))
                surveyed += [
                    SurveyedRecord(entry.record, entry.digest, (used_ns, entry.number), each)
                    for entry in file.entries.values()
                ]
            return tuple(sorted(surveyed, key=lambda one: (one.last_used, one.digest)))

    def delete(self, digests: AbstractSet[str]) -> None:
        """Delete some records, durably. A file with other records is replaced by a new one, which keeps its times."""
        with self._lock:
            files = self._load_all()
            found = [(key, file, digests & file.entries.keys()) for key, file in files.items()]
            changed = [(key, file, gone) for key, file, gone in found if gone or file.must_be_rewritten]
            if not changed:  # the index stays valid
                return
            self._begin_change()
            folders = set()
            for key, file, gone in changed:
                for digest in gone:
                    del file.entries[digest]
                path = self._path(key)
                if file.entries:
                    used = path.stat()
                    self._rewrite(key, file)
                    os.utime(path, ns=(used.st_atime_ns, used.st_mtime_ns))
                else:
                    path.unlink(missing_ok=True)
                    folders.add(path.parent)
            for folder in sorted(folders):
                sync_folder(folder)
            self._forget_index()

    def pending_index_rows(self) -> tuple[Mapping[bytes, bytes] | None, Mapping[bytes, bytes | None]]:
        """Return all rows of the index, or None and those that changed since it was read, with the row of the state.

        The caller holds the build lock.
        """
        with self._lock:
            self._load()
            is_partial = self._found is not None
            if not self._has_changed and (self._is_indexed or is_partial):
                return None, {}
            rows = {_STATE: f"{self.generation()} {self._number}".encode()}
            # Later changes are not in the index that these rows are for.
            self._has_changed = False
            self._is_indexed = True
            names = [(kind, value) for kind, there in self._index.items() for value in there]
            # Without an index, all rows are written.
            before, self._changed = self._changed, {}
            for kind, value in [one for one in before if one[0] != "key"] if is_partial else names:
                keys = [entry.record.key for entry in self._index[kind][value]]
                # The stage keys of what the lookup finds, one a line.
                rows[index_row(kind, value)] = "\n".join(
                    dict.fromkeys((*before.get((kind, value), ()), *keys))
                ).encode()
            if is_partial:
                return None, rows
            if self._source is not None and not self._damaged:
                # From here on, records are looked up in the index that these rows are for.
                self._read_files = None
                self._index.clear()
            return rows, {}

    def _results(self, kind: str, value: str) -> tuple[Record, ...]:
        return tuple(record for record in self._newest(kind, value) if not record.failed)

    def _newest(self, kind: str, value: str) -> tuple[Record, ...]:
        return tuple(entry.record for entry in self._entries(kind, value))

    def _entries(self, kind: str, value: str) -> tuple[RecordEntry, ...]:
        with self._lock:
            if self._read_files is None:
                self._load()
            if self._found is not None:
                self._find(kind, value)
            return self._index.get(kind, {}).get(value, ())[::-1]

    def _is_newest(self, entry: RecordEntry) -> bool:
        """Return whether a record is the newest for each of its lookups, so that moving it would change nothing."""
        for kind, value in lookup_keys(entry.record):
            self._find(kind, value)
        return all(self._index[kind][value][-1].digest == entry.digest for kind, value in lookup_keys(entry.record))

    def _forget_index(self) -> None:
        self._read_files = None
        self._index.clear()
        self._found, self._changed = None, {}
        # The disk may hold records that are not in the index.
        self._source = None
        self._number = 0
        self._damaged = []

    def _load(self) -> dict[str, RecordFile]:
        """Return the files that were read so far. Without an index these are all files."""
        if self._read_files is None and self._has_index():
            self._read_files, self._found = {}, set()
        return self._load_all() if self._read_files is None else self._read_files

    def _load_all(self) -> dict[str, RecordFile]:
        if self._found is not None:
            self._forget_index()
        if self._read_files is None:
            self._read_files = {}
            for key, data in self._files():
                self._read_file(key, data, self._read_files)
            everything = [entry for file in self._read_files.values() for entry in file.entries.values()]
            for entry in sorted(everything, key=lambda one: one.order):
                self._enter(entry, lookup_keys(entry.record))
        return self._read_files

    def _has_index(self) -> bool:
        """Return whether the index matches the records, and take over its number."""
        if self._source is None:
            return False
        try:
            state = (self._source.get(RECORDS_TABLE, _STATE) or b"").decode("ascii", "replace")
        except IndexFaultError:
            return False
        generation, _, number = state.rpartition(" ")
        if not number.isdigit() or generation != self.generation():
            return False
        self._number = int(number)
        return True

    def _find(self, kind: str, value: str) -> None:
        """Read the files with the records of a lookup, if there is an index."""
        if self._found is None or (kind, value) in self._found:
            return
        keys = self._keys(kind, value)
        files = self._load()
        if self._found is None:
            return
        self._found.add((kind, value))
        for key in (key for key in keys if key not in files):
            data = read_regular(self._path(key))
            if data is not None:
                for entry in self._read_file(key, data, files).entries.values():
                    self._enter(entry, lookup_keys(entry.record), in_order=True)

    def _keys(self, kind: str, value: str) -> list[str]:
        """Return the stage keys of a lookup in the index. Without an index, or if it is damaged, there are none."""
        if self._found is None or self._source is None:
            return []
        if kind == "key":
            return [value]
        try:
            return (self._source.get(RECORDS_TABLE, index_row(kind, value)) or b"").decode().split()
        except IndexFaultError:
            self._forget_index()
            self._load()
            return []

    def _enter(self, entry: RecordEntry, lookups: Iterable[tuple[str, str]], *, in_order: bool = False) -> None:
        """Add a record to its lookups: as the newest, or by its number."""
        self._number = max(self._number, entry.number)
        for kind, value in lookups:
            there = self._index.setdefault(kind, {})
            both = (*(one for one in there[value] if one.digest != entry.digest), entry) if value in there else (entry,)
            there[value] = tuple(sorted(both, key=lambda one: one.order)) if in_order else both

    def _begin_change(self) -> None:
        """Change the generation before the first record is changed, so that no index matches after a crash."""
        if not self._has_changed:
            make_folder(self.folder, PRIVATE_FOLDER_MODE)
            token = os.urandom(_TOKEN_BYTES).hex().encode()
            write_atomic(self.folder.parent / GENERATION_FILE, token, mode=PRIVATE_FILE_MODE)
            self._has_changed = True

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _files(self) -> Iterator[tuple[str, bytes]]:
        for group in list_folder(self.folder):
            for path in () if group.is_symlink() else list_folder(group):
                if (data := read_regular(path)) is not None:
                    yield path.name, data

    def _read_file(self, key: str, data: bytes, files: dict[str, RecordFile]) -> RecordFile:
        file = files[key] = RecordFile.parse(key, data, self._store_key)
        self.damaged += [f"records/{key[:12]}: {error}" for error in file.errors]
        self._damaged += [key] if file.must_be_rewritten else []
        return file

    def _reload_if_changed(self, key: str) -> None:
        """Read all files again if another process changed this one: an append could follow a torn line."""
        known = (self._read_files or {}).get(key)
        try:
            size = os.stat(f"{self._base}/{key[:2]}/{key}").st_size
        except FileNotFoundError:
            size = None
        if size != (None if known is None else known.size_bytes):
            self._forget_index()

    def _repair(self, files: dict[str, RecordFile]) -> None:
        while self._damaged:
            key = self._damaged[-1]
            if files[key].entries:
                self._rewrite(key, files[key])
            else:
                self._path(key).unlink(missing_ok=True)
                del files[key]
            self._damaged.pop()

    def _write(self, key: str, file: RecordFile, entry: RecordEntry, line: bytes, *, durable: bool) -> None:
        file.put(entry)
        if file.lines > 2 * len(file.entries) + _SPARE_LINES:
            self._rewrite(key, file)
            return
        with closing(self._open(f"{self._base}/{key[:2]}", key)) as descriptor:
            write_all(descriptor, line)
            if durable:
                os.fsync(descriptor)
        if durable and not file.lines:
            # In the same commit of the filesystem's own journal: nearly free.
            sync_folder(self._path(key).parent)
            sync_folder(self.folder)
        file.size_bytes += len(line)
        file.lines += 1

    def _open(self, folder: str, key: str) -> int:
        """Open the file of a key to append to it, and create its folder if there is none."""
        try:
            check_no_link(folder)
        except FileNotFoundError:
            make_folder(self.folder, PRIVATE_FOLDER_MODE)
            make_subfolder(folder, PRIVATE_FOLDER_MODE)
        return open_own(f"{folder}/{key}", _APPEND)

    def _rewrite(self, key: str, file: RecordFile) -> None:
        data = file.encode(self._store_key)
        make_folder(self.folder, PRIVATE_FOLDER_MODE)
        write_atomic(self._path(key), data, mode=PRIVATE_FILE_MODE, scratch=self.folder)
        file.size_bytes, file.lines, file.errors = len(data), len(file.entries), []
