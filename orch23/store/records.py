"""Keep the records of stages: one file a key, sealed lines, the newest last."""

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct, field

from orch23.model.digest import FileEntry, canonical_json
from orch23.model.manifest import core_of, identity_of
from orch23.model.record import Record
from orch23.store.beneath import open_regular, read_all
from orch23.store.durable import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    make_folder,
    seal,
    seal_canonical,
    sweep_temps,
    sync_folder,
    unseal,
    write_all,
    write_atomic,
)
from orch23.store.record_format import record_from_json, record_to_json
from orch23.store.strict_json import fields, parse, text, whole

_SPARE_LINES = 16
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class _Kept(Struct, frozen=True):
    """A record with the sha256 of its canonical JSON and its place in time."""

    record: Record
    digest: str
    number: int


class Held(Struct, frozen=True):
    """A record as it lies in the store: by what it is dropped, when it was last used, how many bytes it takes."""

    record: Record
    digest: str
    used: tuple[int, int]
    size_bytes: int


class _Shelf(Struct):
    """One file of records: what it holds (oldest first), its size and lines, and whether it wants to be rewritten."""

    kept: dict[str, _Kept] = field(default_factory=dict)
    size_bytes: int = 0
    lines: int = 0
    damaged: bool = False


class RecordsPart(Struct, frozen=True):
    """Some of the records: their keys, and the number of the newest of all."""

    keys: set[str]
    newest: int


class Records:
    """All records of a project, indexed in memory at first use. Safe for calls from several threads.

    A line holds a record, or says that a record above it is the newest again. Each line is sealed by itself, so a
    torn append costs nothing that was there before. What is damaged is dropped, told in `healed`, and gone from the
    disk with the next put.
    """

    def __init__(self, folder: Path, part: "RecordsPart | None" = None) -> None:
        """Take the folder; nothing is read before the first question, nothing written before the first put.

        With a part, only that is read, and each key that is asked for.
        """
        self._folder = folder
        self._base = str(folder)
        self._part = part
        self._lock = threading.RLock()
        self._shelves: dict[str, _Shelf] | None = None
        self._index: dict[str, dict[str, tuple[_Kept, ...]]] = {}
        self._number = 0
        self._damaged: list[str] = []
        self.healed: list[str] = []

    @property
    def folder(self) -> Path:
        """Give the folder of all records."""
        return self._folder

    @property
    def newest(self) -> int:
        """Give the number of the newest record."""
        with self._lock:
            self._load()
            return self._number

    def shelves(self) -> dict[str, int]:
        """Return when the folders that the records lie in last changed, in ns, by name."""
        try:
            return {group.name: group.stat(follow_symlinks=False).st_mtime_ns for group in os.scandir(self._folder)}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def by_key(self, key: str) -> tuple[Record, ...]:
        """Return the records of a stage key, newest first, without kept failures."""
        if self._part is not None:
            self._read_besides(key, self._part)
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
            self._notice_strangers(record.key)
            shelves = self._load()
            self._mend(shelves)
            shelf = shelves.setdefault(record.key, _Shelf())
            read = record_from_json(parse(body))
            same = record if read == record else read  # one that is kept elsewhere takes no memory twice
            kept = _Kept(same, hashlib.sha256(body).hexdigest(), self._number + 1)
            known = shelf.kept.get(kept.digest)
            if known is not None and self._is_newest(known):
                return
            line = b'{"n":%d,"record":%s}' % (kept.number, body)
            if known is not None:
                line = canonical_json({"n": kept.number, "again": kept.digest})
            try:
                self._write(record.key, shelf, kept, seal_canonical(line), durable=durable and known is None)
            except BaseException:
                self._forget_index()  # what the disk holds now is unknown: read it again
                raise
            self._enter(kept)

    def use(self, record: Record) -> None:
        """Note that a record was used; nothing is written but the time of its file, and a failure does not matter."""
        with contextlib.suppress(OSError):
            os.utime(self._path(record.key), follow_symlinks=False)

    def survey(self) -> tuple[Held, ...]:
        """Return all records, the least recently used first."""
        with self._lock:
            held = []
            for key, shelf in self._load().items():
                try:
                    used_ns = self._path(key).stat().st_mtime_ns
                except FileNotFoundError:
                    used_ns = 0
                each = shelf.size_bytes // max(1, len(shelf.kept))
                held += [Held(kept.record, kept.digest, (used_ns, kept.number), each) for kept in shelf.kept.values()]
            return tuple(sorted(held, key=lambda one: (one.used, one.digest)))

    def drop(self, digests: Collection[str]) -> None:
        """Forget some records, durably: those that stay in a file are written anew beside it and renamed."""
        with self._lock:
            shelves = self._load()
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

    def delete_all(self) -> None:
        """Forget all records."""
        with self._lock:
            self._forget_index()
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._folder)

    def sweep(self) -> None:
        """Remove what killed processes left. Only for the holder of the build lock."""
        sweep_temps(self._folder)

    def _newest(self, kind: str, value: str) -> tuple[Record, ...]:
        with self._lock:
            self._load()
            return tuple(kept.record for kept in reversed(self._index.get(kind, {}).get(value, ())))

    def _is_newest(self, kept: _Kept) -> bool:
        """Say whether no question would be answered differently if the record were moved to the front."""
        return all(self._index[kind][value][-1].digest == kept.digest for kind, value in _places(kept.record))

    # ---- the index -------------------------------------------------------------------------------

    def _forget_index(self) -> None:
        self._shelves = None
        self._index.clear()
        self._number = 0
        self._damaged = []

    def _load(self) -> dict[str, _Shelf]:
        if self._shelves is None:
            self._shelves = {}
            for key, data in self._files():
                self._shelves[key] = self._read_shelf(key, data)
                self._damaged += [key] if self._shelves[key].damaged else []
            everything = [kept for shelf in self._shelves.values() for kept in shelf.kept.values()]
            for kept in sorted(everything, key=lambda one: (one.number, one.digest)):
                self._enter(kept)
            self._number = max(self._number, self._part.newest if self._part is not None else 0)
        return self._shelves

    def _read_besides(self, key: str, part: RecordsPart) -> None:
        """Add a key to the part that is read, each of its records where its number puts it."""
        with self._lock:
            shelves = self._load()
            if key in part.keys:
                return
            part.keys.add(key)
            source = open_regular(self._path(key))
            if source is None:
                return
            shelf = shelves[key] = self._read_shelf(key, read_all(source))
            self._damaged += [key] if shelf.damaged else []
            for kept in shelf.kept.values():
                self._enter(kept)
                for kind, value in _places(kept.record):
                    there = sorted(self._index[kind][value], key=lambda one: (one.number, one.digest))
                    self._index[kind][value] = tuple(there)

    def _enter(self, kept: _Kept) -> None:
        """Put a record at the newest end of every place at which it is looked for."""
        self._number = max(self._number, kept.number)
        for kind, value in _places(kept.record):
            there = self._index.setdefault(kind, {})
            others = (one for one in there.get(value, ()) if one.digest != kept.digest)
            there[value] = (*others, kept)

    # ---- the disk --------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key

    def _files(self) -> Iterator[tuple[str, bytes]]:
        if self._part is not None:
            for key in sorted(self._part.keys):
                source = open_regular(self._path(key))
                if source is not None:
                    yield key, read_all(source)
            return
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for group in sorted(self._folder.iterdir()):
                if group.is_symlink() or not group.is_dir():
                    continue
                for path in sorted(group.iterdir()):
                    source = open_regular(path)
                    if source is not None:
                        yield path.name, read_all(source)

    def _read_shelf(self, key: str, data: bytes) -> _Shelf:
        shelf = _Shelf(size_bytes=len(data))
        for line in data.splitlines(keepends=True):
            shelf.lines += 1
            try:
                kept = _read_line(line, shelf)
                if kept.record.key != key:
                    message = "is a record of another key"
                    raise ValueError(message)  # noqa: TRY301 - one place tells of every kind of damage
            except ValueError as error:
                shelf.damaged = True
                self.healed.append(f"records/{key[:12]}: line {shelf.lines} {error}")
            else:
                shelf.kept.pop(kept.digest, None)
                shelf.kept[kept.digest] = kept
        shelf.damaged = shelf.damaged or not shelf.kept
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
            return os.open(f"{folder}/{key}", _APPEND, PRIVATE_FILE)
        except FileNotFoundError:
            make_folder(self._folder, PRIVATE_FOLDER)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, PRIVATE_FOLDER)
            return os.open(f"{folder}/{key}", _APPEND, PRIVATE_FILE)

    def _rewrite(self, key: str, shelf: _Shelf) -> None:
        data = b"".join(seal({"n": k.number, "record": record_to_json(k.record)}) for k in shelf.kept.values())
        make_folder(self._folder, PRIVATE_FOLDER)
        write_atomic(self._path(key), data, mode=PRIVATE_FILE, scratch=self._folder)
        shelf.size_bytes, shelf.lines, shelf.damaged = len(data), len(shelf.kept), False


def _places(record: Record) -> Iterator[tuple[str, str]]:
    """Give everything by which a record is looked for."""
    yield "key", record.key
    yield "core", core_of(record.manifest)
    yield "identity", identity_of(record.manifest)
    yield "stage", record.stage
    for path in record.outputs:
        yield "path", path


def _read_line(line: bytes, shelf: _Shelf) -> _Kept:
    body = unseal(line)
    if isinstance(body, dict) and "again" in body:
        found = fields(body, ("n", "again"))
        known = shelf.kept.get(text(found["again"]))
        if known is None:
            message = "moves a record that is not there"
            raise ValueError(message)
        return _Kept(known.record, known.digest, whole(found["n"]))
    found = fields(body, ("n", "record"))
    digest = hashlib.sha256(canonical_json(found["record"])).hexdigest()
    return _Kept(record_from_json(found["record"]), digest, whole(found["n"]))
