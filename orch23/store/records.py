"""Store the records of results: one file per stage key, checksummed lines, newest last."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from orch23.model.digest import FileEntry, canonical_json
from orch23.model.parsing import JsonObject, NaturalNumber, from_struct, parse_stored, to_struct
from orch23.model.record import Record, core_of, identity_of
from orch23.store.index import IndexFaultError, StoreIndex
from orch23.store.json_text import add_checksum, decode_with_checksum, encode_with_checksum
from orch23.store.record_format import record_from_json, record_to_json
from orch23.store.safe_files import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    make_folder,
    open_regular,
    read_and_close,
    sweep_temps,
    sync_folder,
    write_all,
    write_atomic,
)

GENERATION_FILE = "generation"
"""The file beside the records whose text is another one whenever a process has changed them."""
RECORDS_TABLE = "records"
"""The table of the index that leads to records: from a digest of kind and value to the keys of their files, by line."""
_STATE = b"state"
_SPARE_LINES = 16
_TOKEN_BYTES = 16
_ROW_BYTES = 16
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class _Line(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of a file of records: a record, or the digest of one above that is the newest again."""

    n: NaturalNumber
    again: str | None = None
    record: JsonObject | None = None


class _Kept(Struct, frozen=True):
    """A record with the sha256 of its canonical JSON and its place in time."""

    record: Record
    digest: str
    number: int


class SurveyedRecord(Struct, frozen=True):
    """A record as it lies in the store: by what it is dropped, when it was last used, how many bytes it takes."""

    record: Record
    digest: str
    last_used: tuple[int, int]
    size_bytes: int


class _Shelf(Struct):
    """One file of records: what it holds (oldest first), its size and lines, and whether it wants to be rewritten."""

    kept: dict[str, _Kept] = field(default_factory=dict)
    size_bytes: int = 0
    lines: int = 0
    damaged: bool = False


class Records:
    """All records of a project. Safe for calls from several threads.

    A line holds a record, or says that a record above it is the newest again. Each line is sealed by itself, so a
    torn append costs nothing that was there before. What is damaged is dropped, reported in `healed`, and gone from
    the disk with the next put.

    With an index that matches the records, only the files that a question leads to are read; without one, all of them
    are read at the first question.
    """

    def __init__(self, folder: Path, index: StoreIndex | None = None) -> None:
        """Take the folder; nothing is read before the first question, nothing written before the first put."""
        self._folder = folder
        self._base = str(folder)
        self._source = index
        self._lock = threading.RLock()
        self._shelves: dict[str, _Shelf] | None = None
        self._index: dict[str, dict[str, tuple[_Kept, ...]]] = {}
        self._found: set[tuple[str, str]] | None = None
        self._number = 0
        self._damaged: list[str] = []
        self._has_changed = False
        self._is_indexed = False
        self._changed: set[tuple[str, str]] = set()
        self.damaged: list[str] = []

    @property
    def folder(self) -> Path:
        """Give the folder of all records."""
        return self._folder

    def generation(self) -> str:
        """Return what tells whether the records were changed: by an orch23 that knows this, or as folders show it."""
        token = open_regular(self._folder.parent / GENERATION_FILE)
        text = "" if token is None else read_and_close(token, 2 * _TOKEN_BYTES).decode("ascii", "replace")
        try:
            with os.scandir(self._folder) as groups:
                shelves = sorted((one.name, one.stat(follow_symlinks=False).st_mtime_ns) for one in groups)
        except (FileNotFoundError, NotADirectoryError):
            shelves = []
        return f"{text} {hashlib.sha256(repr(shelves).encode('utf-8', 'surrogateescape')).hexdigest()}"

    def is_indexed(self) -> bool:
        """Return whether the index is of the records as they are on the disk."""
        with self._lock:
            return self._has_index()

    def by_key(self, key: str) -> tuple[Record, ...]:
        """Return the records of a stage key, newest first, without kept failures."""
        return tuple(record for record in self._newest("key", key) if not record.failed)

    def has(self, key: str) -> bool:
        """Return whether there is a record of a stage key, not counting retained failures."""
        return bool(self.by_key(key))

    def by_core(self, core: str) -> tuple[Record, ...]:
        """Return the records that differ in verification alone, newest first, without kept failures."""
        return tuple(record for record in self._newest("core", core) if not record.failed)

    def by_identity(self, identity: str) -> tuple[Record, ...]:
        """Return the records of what is the same stage under any name, newest first, kept failures too."""
        return self._newest("identity", identity)

    def last(self, stage: str) -> Record | None:
        """Return the newest record of that label that is no kept failure."""
        return next((record for record in self._newest("stage", stage) if not record.failed), None)

    def labelled(self, stage: str) -> tuple[Record, ...]:
        """Return the records of that label, newest first, kept failures too."""
        return self._newest("stage", stage)

    def owners(self, path: str) -> tuple[Record, ...]:
        """Return the records that have an output of that path, newest first, kept failures too."""
        return self._newest("path", path)

    def having(self, path: str, entry: FileEntry) -> tuple[Record, ...]:
        """Return the records whose output of that path is this very file, newest first, kept failures too."""
        return tuple(record for record in self._newest("path", path) if record.outputs[path] == entry)

    def put(self, record: Record) -> None:
        """Keep a record durably as the newest. One that is there already is moved, without waiting for the disk."""
        self._put(record, durable=True)

    def add(self, record: Record) -> None:
        """Keep a record as the newest; it is durable when the file system is synced next."""
        self._put(record, durable=False)

    def _put(self, record: Record, *, durable: bool) -> None:
        body = canonical_json(record_to_json(record))
        with self._lock:
            self._load()
            self._find("key", record.key)
            self._notice_strangers(record.key)
            shelves = self._load()
            self._mend(shelves)
            shelf = shelves.setdefault(record.key, _Shelf())
            read = record_from_json(parse_stored(body))
            same = record if read == record else read  # one that is kept elsewhere takes no memory twice
            kept = _Kept(same, hashlib.sha256(body).hexdigest(), self._number + 1)
            known = shelf.kept.get(kept.digest)
            if known is not None and self._is_newest(known):
                return
            line = b'{"n":%d,"record":%s}' % (kept.number, body)
            if known is not None:
                line = canonical_json(from_struct(_Line(kept.number, again=kept.digest)))
            try:
                self._begin_change()
                self._write(record.key, shelf, kept, add_checksum(line), durable=durable and known is None)
            except BaseException:
                self._forget_index()  # what the disk holds now is unknown: read it again
                raise
            places = tuple(_places(kept.record))
            for kind, value in places:
                self._find(kind, value)
            self._enter(kept)
            self._changed.update(places)

    def use(self, record: Record) -> None:
        """Note that a record was used; nothing is written but the time of its file, and a failure does not matter."""
        with contextlib.suppress(OSError):
            os.utime(self._path(record.key), follow_symlinks=False)

    def survey(self) -> tuple[SurveyedRecord, ...]:
        """Return all records, the least recently used first."""
        with self._lock:
            held = []
            for key, shelf in self._load(whole=True).items():
                try:
                    used_ns = self._path(key).stat().st_mtime_ns
                except FileNotFoundError:
                    used_ns = 0
                each = shelf.size_bytes // max(1, len(shelf.kept))
                held += [
                    SurveyedRecord(kept.record, kept.digest, (used_ns, kept.number), each)
                    for kept in shelf.kept.values()
                ]
            return tuple(sorted(held, key=lambda one: (one.last_used, one.digest)))

    def delete(self, digests: Collection[str]) -> None:
        """Forget some records, durably: those that stay in a file are written anew beside it and renamed."""
        with self._lock:
            self._begin_change()
            shelves = self._load(whole=True)
            folders = set()
            for key, shelf in list(shelves.items()):
                gone = [digest for digest in shelf.kept if digest in digests]
                if not gone and not shelf.damaged:
                    continue
                for digest in gone:
                    del shelf.kept[digest]
                if shelf.kept:
                    used = self._path(key).stat()
                    self._rewrite(key, shelf)
                    os.utime(self._path(key), ns=(used.st_atime_ns, used.st_mtime_ns))
                    continue
                self._path(key).unlink(missing_ok=True)
                folders.add(self._path(key).parent)
            for folder in sorted(folders):
                sync_folder(folder)
            self._forget_index()

    def sweep(self) -> None:
        """Remove what killed processes left. Only for the holder of the build lock."""
        sweep_temps(self._folder)

    def pending_index_rows(self) -> tuple[Mapping[bytes, bytes] | None, Mapping[bytes, bytes | None]]:
        """Return the rows of the index: all of them, or None and those that have changed since they were read.

        The last of either are those of the state that they are of. Only for the holder of the build lock.
        """
        with self._lock:
            self._load()
            if not self._has_changed and (self._is_indexed or self._found is not None):
                return None, {}
            state = {_STATE: f"{self.generation()} {self._number}".encode()}
            self._has_changed = False  # what is changed from now on, is not in the index that this is for
            self._is_indexed = True
            if self._found is None:
                rows = {
                    _row(kind, value): _keys(kept)
                    for kind, there in self._index.items()
                    for value, kept in there.items()
                }
                return {**rows, **state}, {}
            changed = {
                _row(kind, value): _keys(self._index[kind][value]) for kind, value in self._changed if kind != "key"
            }
            self._changed.clear()
            return None, {**changed, **state}

    def _newest(self, kind: str, value: str) -> tuple[Record, ...]:
        with self._lock:
            self._load()
            self._find(kind, value)
            return tuple(kept.record for kept in reversed(self._index.get(kind, {}).get(value, ())))

    def _is_newest(self, kept: _Kept) -> bool:
        """Return whether no question would be answered differently if the record were moved to the front."""
        for kind, value in _places(kept.record):
            self._find(kind, value)
        return all(self._index[kind][value][-1].digest == kept.digest for kind, value in _places(kept.record))

    # ---- the index -------------------------------------------------------------------------------

    def _forget_index(self) -> None:
        self._shelves = None
        self._index.clear()
        self._found = None
        self._source = None  # what the disk holds may be more than the index knows
        self._number = 0
        self._damaged = []

    def _load(self, *, whole: bool = False) -> dict[str, _Shelf]:
        """Return the files that are read so far: all of them, unless an index leads to each when it is needed."""
        if self._shelves is not None and self._found is not None and whole:
            self._forget_index()
        if self._shelves is None and not whole and self._has_index():
            self._shelves, self._found = {}, set()
        if self._shelves is None:
            self._shelves = {}
            for key, data in self._files():
                self._read_file(key, data, self._shelves)
            everything = [kept for shelf in self._shelves.values() for kept in shelf.kept.values()]
            for kept in sorted(everything, key=lambda one: (one.number, one.digest)):
                self._enter(kept)
        return self._shelves

    def _has_index(self) -> bool:
        """Return whether the index is of the records as they are."""
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
        """Read the files of the records that are looked for at a place, if an index leads to them."""
        if self._found is None or (kind, value) in self._found or self._source is None:
            return
        try:
            found = value if kind == "key" else (self._source.get(RECORDS_TABLE, _row(kind, value)) or b"").decode()
        except IndexFaultError:
            self._forget_index()
            self._load()
            return
        self._found.add((kind, value))
        shelves = self._load()
        for key in found.split("\n") if found else ():
            source = open_regular(self._path(key)) if key not in shelves else None
            if source is not None:
                for kept in self._read_file(key, read_and_close(source), shelves).kept.values():
                    self._enter(kept, in_order=True)

    def _enter(self, kept: _Kept, *, in_order: bool = False) -> None:
        """Put a record at every place at which it is looked for: at the newest end, or where its number puts it."""
        self._number = max(self._number, kept.number)
        for kind, value in _places(kept.record):
            there = self._index.setdefault(kind, {})
            both = (*(one for one in there.get(value, ()) if one.digest != kept.digest), kept)
            there[value] = tuple(sorted(both, key=lambda one: (one.number, one.digest))) if in_order else both

    def _begin_change(self) -> None:
        """Let an index be of other records from now on, before the first of them is changed."""
        if not self._has_changed:
            make_folder(self._folder, PRIVATE_FOLDER_MODE)
            token = os.urandom(_TOKEN_BYTES).hex().encode()
            write_atomic(self._folder.parent / GENERATION_FILE, token, mode=PRIVATE_FILE_MODE)
            self._has_changed = True

    # ---- the disk --------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key

    def _files(self) -> Iterator[tuple[str, bytes]]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for group in sorted(self._folder.iterdir()):
                if group.is_symlink() or not group.is_dir():
                    continue
                for path in sorted(group.iterdir()):
                    source = open_regular(path)
                    if source is not None:
                        yield path.name, read_and_close(source)

    def _read_file(self, key: str, data: bytes, shelves: dict[str, _Shelf]) -> _Shelf:
        shelf = shelves[key] = _Shelf(size_bytes=len(data))
        for line in data.splitlines(keepends=True):
            shelf.lines += 1
            try:
                kept = _read_line(line, shelf)
                if kept.record.key != key:
                    message = "is a record of another key"
                    raise ValueError(message)  # noqa: TRY301 - one place tells of every kind of damage
            except ValueError as error:
                shelf.damaged = True
                self.damaged.append(f"records/{key[:12]}: line {shelf.lines} {error}")
            else:
                shelf.kept.pop(kept.digest, None)
                shelf.kept[kept.digest] = kept
        shelf.damaged = shelf.damaged or not shelf.kept
        self._damaged += [key] if shelf.damaged else []
        return shelf

    def _notice_strangers(self, key: str) -> None:
        """Read everything again if the file is not as this process left it; to append would be a guess."""
        known = (self._shelves or {}).get(key)
        try:
            size = os.stat(f"{self._base}/{key[:2]}/{key}").st_size
        except FileNotFoundError:
            size = None
        if size != (None if known is None else known.size_bytes):
            self._forget_index()

    def _mend(self, shelves: dict[str, _Shelf]) -> None:
        while self._damaged:
            key = self._damaged[-1]
            if shelves[key].kept:
                self._rewrite(key, shelves[key])
            else:
                self._path(key).unlink(missing_ok=True)
                del shelves[key]
            self._damaged.pop()

    def _write(self, key: str, shelf: _Shelf, kept: _Kept, line: bytes, *, durable: bool) -> None:
        shelf.kept.pop(kept.digest, None)
        shelf.kept[kept.digest] = kept
        if shelf.lines > 2 * len(shelf.kept) + _SPARE_LINES:
            self._rewrite(key, shelf)
            return
        descriptor = self._open(f"{self._base}/{key[:2]}", key)
        try:
            write_all(descriptor, line)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if durable and not shelf.lines:  # in the same commit of the filesystem's own journal: nearly free
            sync_folder(self._path(key).parent)
            sync_folder(self._folder)
        shelf.size_bytes += len(line)
        shelf.lines += 1

    def _open(self, folder: str, key: str) -> int:
        """Open the file of a key to append to it; its folder is made where it is not there."""
        try:
            return os.open(f"{folder}/{key}", _APPEND, PRIVATE_FILE_MODE)
        except FileNotFoundError:
            make_folder(self._folder, PRIVATE_FOLDER_MODE)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, PRIVATE_FOLDER_MODE)
            return os.open(f"{folder}/{key}", _APPEND, PRIVATE_FILE_MODE)

    def _rewrite(self, key: str, shelf: _Shelf) -> None:
        data = b"".join(
            encode_with_checksum(from_struct(_Line(k.number, record=record_to_json(k.record))))
            for k in shelf.kept.values()
        )
        make_folder(self._folder, PRIVATE_FOLDER_MODE)
        write_atomic(self._path(key), data, mode=PRIVATE_FILE_MODE, scratch=self._folder)
        shelf.size_bytes, shelf.lines, shelf.damaged = len(data), len(shelf.kept), False


def _places(record: Record) -> Iterator[tuple[str, str]]:
    """Give everything by which a record is looked for."""
    yield "key", record.key
    yield "core", core_of(record.manifest)
    yield "identity", identity_of(record.manifest)
    yield "stage", record.stage
    for path in record.outputs:
        yield "path", path


def _row(kind: str, value: str) -> bytes:
    """Return the key of a row: a digest, since a name or a path may be a secret."""
    return hashlib.blake2b(f"{kind}\0{value}".encode("utf-8", "surrogatepass"), digest_size=_ROW_BYTES).digest()


def _keys(kept: Collection[_Kept]) -> bytes:
    return "\n".join(dict.fromkeys(one.record.key for one in kept)).encode()


def _read_line(line: bytes, shelf: _Shelf) -> _Kept:
    found = to_struct(decode_with_checksum(line), _Line)
    if found.again is not None:
        known = shelf.kept.get(found.again)
        if known is None or found.record is not None:
            message = "moves a record that is not there"
            raise ValueError(message)
        return _Kept(known.record, known.digest, found.n)
    digest = hashlib.sha256(canonical_json(found.record)).hexdigest()
    return _Kept(record_from_json(found.record), digest, found.n)
