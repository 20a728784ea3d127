"""The SQLite index of a store, which can be rebuilt at any time: file hashes by path, compiled pipelines and plans.

Its tables have rows with a key and a value, both bytes. Rows are in buckets by the hash of their key. A bucket has a
checksum of its position and its rows, made with the key of the store (ADR 60). All buckets of a table exist: a missing
bucket is damage, and a key that is not in its bucket has no row.

Only the holder of the build lock writes, with a rollback journal. A reader that finds a journal, a damaged bucket, or
any error of SQLite gets an IndexFaultError, and reads the files that the index was built from instead.
"""

import contextlib
import os
import stat
import struct
import threading
import zlib
from _blake2 import blake2b
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from orch23.model.digest import Digest, FileEntry
from orch23.snapshot.signatures import sha256, sha256_hex
from orch23.snapshot.stat_snapshot import SnapshotDifference, StatSnapshot
from orch23.store.json_text import TRUSTED, StoreKey
from orch23.store.safe_files import PRIVATE_FOLDER_MODE, FileStamp, make_folder, open_own, try_unlink, walk_tree

if TYPE_CHECKING:
    import sqlite3


NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs"),
        *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
    )
)
"""Types of file systems on which locks are slow, or do not work between machines."""
_MOUNTS = "/proc/self/mountinfo"


def index_folder(store: Path) -> Path:
    """Return the folder for the index: the store, or on a network file system a folder in the user's cache."""
    if file_system_type(store) not in NETWORK_FILE_SYSTEMS:
        return store
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):
        base = os.path.expanduser("~/.cache")
    # In some containers there is no HOME, and the user is not in the passwd file.
    if not base.startswith("/"):
        return store
    return Path(base) / "orch23" / "indexes" / sha256_hex(os.fsencode(store.resolve()))[:32]


def file_system_type(path: Path, mounts: str = _MOUNTS) -> str:
    """Return the kernel's name for the type of file system that a path is on; empty if it is unknown."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        device = os.stat(there).st_dev
        lines = Path(mounts).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        words = line.split(" ")
        if len(words) > 2 and words[2] == wanted and "-" in words:  # noqa: PLR2004 - the third is the device
            return words[words.index("-") + 1]
    return ""


INDEX_FILE = "index.sqlite"
INDEX_FORMAT = 3
_ROWS_PER_BUCKET = 8
_LENGTHS = struct.Struct("<II")
_SUM_BYTES = 16
_BUSY_S = 2.0
_MAX_SINGLE_READS = 200
"""After more reads than this, and than half of its buckets, a table is read as a whole."""
_SCHEMA = """
CREATE TABLE tables (number INTEGER PRIMARY KEY, name TEXT UNIQUE, buckets INTEGER NOT NULL, sum BLOB NOT NULL);
CREATE TABLE rows (place INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""
_MOST_BUCKETS = 1 << 32
"""The place of a bucket is its number, plus this times the number of its table.

Only places are in the inner pages of SQLite's tree, and no data: so it is flat, and a search reads three pages.
"""


class IndexFaultError(Exception):
    """The index cannot be read, or is damaged."""


def _refuse(why: str) -> NoReturn:
    raise IndexFaultError(why)


class StoreIndex:
    """One index file. Safe for calls from several threads; a forked child gets an IndexFaultError."""

    def __init__(self, path: Path, store_key: StoreKey = TRUSTED) -> None:
        """Open nothing yet: the file is opened by the first read."""
        self.path = path
        self._store_key = store_key
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._writes = False
        self._process = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._reads: dict[str, int] = {}
        self._whole: dict[str, dict[bytes, bytes]] = {}

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value of a row, or None if the table has no such row.

        Raises:
            IndexFaultError: the table is missing, or the index cannot be read.
        """
        with self._lock, _faults():
            whole = self._whole.get(table)
            if whole is not None:
                return whole.get(key)
            (_, count), reads = self._place(table), self._reads.get(table, 0) + 1
            self._reads[table] = reads
            if reads > max(_MAX_SINGLE_READS, count // 2):
                self._whole[table] = dict(self.rows(table))
            return self._bucket(table, _number(key, count)).get(key)

    def rows(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """Return all rows of a table, in no order.

        Raises:
            IndexFaultError: the table is missing, or the index cannot be read.
        """
        with self._lock, _faults():
            first, count = self._place(table)
            query = "SELECT place, data FROM rows WHERE place >= ? AND place < ?"
            found = self._open().execute(query, (first, first + _MOST_BUCKETS)).fetchall()
            if len(found) != count:
                _refuse(f"table {table} has {len(found)} of {count} buckets")
            buckets = (self._unpack(table, count, place - first, data) for place, data in found)
            pairs = [pair for bucket in buckets for pair in bucket.items()]
        return iter(pairs)

    def has_table(self, table: str) -> bool:
        """Return whether the table exists and can be read."""
        with self._lock, contextlib.suppress(IndexFaultError), _faults():
            return bool(self._place(table))
        return False

    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables; none if the index cannot be read. A name that is not a text is damage."""
        with self._lock, contextlib.suppress(IndexFaultError), _faults():
            found = self._open().execute("SELECT name FROM tables ORDER BY name").fetchall()
            return tuple(name for (name,) in found if isinstance(name, str))
        return ()

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._forget()
            if connection is not None and self._process == os.getpid():
                connection.close()

    def _forget(self) -> None:
        self._places.clear()
        self._reads.clear()
        self._whole.clear()

    # ---- writing: only for the holder of the build lock -------------------------------------------

    def write(
        self,
        fresh: Mapping[str, Mapping[bytes, bytes]],
        changed: Mapping[str, Mapping[bytes, bytes | None]] | None = None,
        dropped: tuple[str, ...] = (),
    ) -> None:
        """Replace tables by `fresh` ones, change rows (None deletes a row) and drop tables, in one transaction.

        An unreadable file is replaced by a new one. Writes are not durable: an index can be rebuilt.
        """
        with self._lock:
            try:
                with _faults():
                    self._write(fresh, changed or {}, dropped)
            except IndexFaultError:
                self.remove()
                if not changed:
                    with contextlib.suppress(IndexFaultError), _faults():
                        self._write(fresh, {}, ())

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        for suffix in ("", "-journal", "-wal", "-shm"):
            try_unlink(f"{self.path}{suffix}")

    def _write(
        self,
        fresh: Mapping[str, Mapping[bytes, bytes]],
        changed: Mapping[str, Mapping[bytes, bytes | None]],
        dropped: tuple[str, ...],
    ) -> None:
        connection = self._open(writing=True)
        self._forget()
        try:
            connection.execute("BEGIN IMMEDIATE")
            # The name of a table is always a text: another type is damage.
            connection.execute("DELETE FROM tables WHERE typeof(name) != 'text'")
            for table in (*dropped, *fresh):
                for (number,) in connection.execute("SELECT number FROM tables WHERE name = ?", (table,)).fetchall():
                    first = number * _MOST_BUCKETS
                    connection.execute(
                        "DELETE FROM rows WHERE place >= ? AND place < ?", (first, first + _MOST_BUCKETS)
                    )
                    connection.execute("DELETE FROM tables WHERE number = ?", (number,))
            for table, rows in fresh.items():
                count = max(1, -(-len(rows) // _ROWS_PER_BUCKET))
                buckets: list[list[bytes]] = [[] for _ in range(count)]
                for key in rows:
                    buckets[_number(key, count)].append(key)
                entry = (table, count, self._sum_of(table, count))
                connection.execute("INSERT INTO tables (name, buckets, sum) VALUES (?, ?, ?)", entry)
                first, _ = self._place(table)
                packed = (
                    (first + number, self._pack(table, count, number, {key: rows[key] for key in keys}))
                    for number, keys in enumerate(buckets)
                )
                connection.executemany("INSERT INTO rows VALUES (?, ?)", packed)
            for table, edits in changed.items():
                self._change(connection, table, edits)
            connection.execute("COMMIT")
        except BaseException:
            self.close()  # this rolls the transaction back
            raise

    def _change(self, connection: "sqlite3.Connection", table: str, edits: Mapping[bytes, bytes | None]) -> None:
        first, count = self._place(table)
        by_bucket: dict[int, dict[bytes, bytes | None]] = {}
        for key, value in edits.items():
            by_bucket.setdefault(_number(key, count), {})[key] = value
        for number, some in by_bucket.items():
            both: dict[bytes, bytes | None] = {**self._bucket(table, number), **some}
            kept = {key: value for key, value in both.items() if value is not None}
            data = self._pack(table, count, number, kept)
            connection.execute("UPDATE rows SET data = ? WHERE place = ?", (data, first + number))

    def _open(self, *, writing: bool = False) -> "sqlite3.Connection":
        if self._connection is not None and self._process != os.getpid():
            # A child must not even close it: that would release the POSIX locks of its parent.
            _refuse("the index was opened by another process")
        if self._connection is None:
            self._connection = _connect(self.path, writing=writing)
            self._process = os.getpid()
            self._writes = writing
        elif writing and not self._writes:
            self.close()
            return self._open(writing=True)
        return self._connection

    def _place(self, table: str) -> tuple[int, int]:
        """Return the place of the first bucket of a table, and the number of its buckets."""
        known = self._places.get(table)
        if known is None:
            query = "SELECT number, buckets, sum FROM tables WHERE name = ?"
            row = self._open().execute(query, (table,)).fetchone()
            if row is None:
                raise KeyError(table)
            number, count, checksum = row
            if not isinstance(count, int) or count < 1 or checksum != self._sum_of(table, count):
                _refuse(f"table {table} is damaged")
            self._places[table] = known = number * _MOST_BUCKETS, count
        return known

    def _bucket(self, table: str, number: int) -> dict[bytes, bytes]:
        first, count = self._place(table)
        row = self._open().execute("SELECT data FROM rows WHERE place = ?", (first + number,)).fetchone()
        # `PRAGMA quick_check` would read the whole file at each start; checksums are checked for what is read (ADR 31).
        # A lost row must not be taken for a key without a row (ADR 31).
        if row is None:
            _refuse(f"bucket {number} of table {table} is missing")
        return self._unpack(table, count, number, row[0])

    def _sum_of(self, table: str, count: int, number: int = -1, body: Iterable[bytes | memoryview] = ()) -> bytes:
        """Return the checksum of a bucket, whose body may be in several parts, or of the entry of its table.

        It covers the number of buckets: a reader that read this number before a write must not search a bucket that was
        written after it.
        """
        place = f"{table} {count} {number}\n".encode()
        value = blake2b(place, digest_size=_SUM_BYTES, key=self._store_key.sealing)
        for part in body:
            value.update(part)
        return value.digest()

    def _pack(self, table: str, count: int, number: int, rows: Mapping[bytes, bytes]) -> bytes:
        # Joined once: the row of a compiled pipeline has several MB.
        parts = [part for key, value in rows.items() for part in (_LENGTHS.pack(len(key), len(value)), key, value)]
        return b"".join((self._sum_of(table, count, number, parts), *parts))

    def _unpack(self, table: str, count: int, number: int, data: object) -> dict[bytes, bytes]:
        body = memoryview(data)[_SUM_BYTES:] if isinstance(data, bytes) else memoryview(b"")
        if not isinstance(data, bytes) or data[:_SUM_BYTES] != self._sum_of(table, count, number, [body]):
            _refuse(f"bucket {number} of table {table} is damaged")
        rows: dict[bytes, bytes] = {}
        at = _SUM_BYTES
        while at < len(data):
            key_bytes, value_bytes = _LENGTHS.unpack_from(data, at)
            at += _LENGTHS.size
            rows[data[at : at + key_bytes]] = data[at + key_bytes : at + key_bytes + value_bytes]
            at += key_bytes + value_bytes
        return rows


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except IndexFaultError:
        raise
    except Exception as error:
        # A damaged file can make SQLite raise errors of any type.
        message = f"the index cannot be read: {error}"
        raise IndexFaultError(message) from error


def _connect(path: Path, *, writing: bool) -> "sqlite3.Connection":
    """Open the file. A reader does not write, so it cannot do the recovery that a journal asks for."""
    import sqlite3  # noqa: PLC0415 - some Pythons lack it: then there is no index

    if os.path.lexists(f"{path}-journal"):
        if not writing:
            _refuse("a write was interrupted")
        # The index is built again, which is simpler than a recovery.
        try_unlink(path)
        try_unlink(f"{path}-journal")
    if writing:
        make_folder(path.parent, PRIVATE_FOLDER_MODE)
        if not os.path.lexists(path):
            os.close(open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    # It is not opened for this: closing it would release SQLite's locks.
    if not stat.S_ISREG(os.lstat(path).st_mode):
        _refuse(f"{path.name} is not a regular file")
    place = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    url, wait_s = (f"file:{place}?mode=rw", _BUSY_S) if writing else (f"file:{place}?mode=ro", 0)
    connection = sqlite3.connect(url, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=False)
    if writing:
        _set_up(connection)
    return connection


def _set_up(connection: "sqlite3.Connection") -> None:
    try:
        # Not WAL mode, which needs shared memory and fails on network file systems (ADR 31).
        connection.execute("PRAGMA journal_mode = DELETE")
        # A power cut may damage the file: the checksums of buckets show it, and the index is built again.
        connection.execute("PRAGMA synchronous = OFF")
        if connection.execute("PRAGMA user_version").fetchone()[0] != INDEX_FORMAT:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {INDEX_FORMAT}; COMMIT;")
    except BaseException:
        connection.close()
        raise


def _number(key: bytes, count: int) -> int:
    return zlib.crc32(key) % count


FILES_TABLE = "files"
"""The table of the index with the hashed files, by a digest of their path."""
_ROW = struct.Struct("<QQqqqIq32s")
_ROW_BYTES = 16
_NOT_HASHED = "0" * 64


class HashedFile(Struct, frozen=True):
    """A file that was hashed: its stamp, its entry, and the time in nanoseconds when hashing began."""

    stamp: FileStamp
    entry: FileEntry
    hashed_at_ns: int


def stamped_entry(stamp: FileStamp, sha256: str) -> FileEntry:
    """Return the entry of a file with this stamp and SHA-256."""
    return FileEntry(Digest(sha256, stamp.size_bytes), executable=bool(stamp.mode & stat.S_IXUSR))


def pack_hashed_file(seen: HashedFile) -> bytes:
    """Return the row of a file for the index."""
    return _ROW.pack(*seen.stamp, seen.hashed_at_ns, bytes.fromhex(seen.entry.digest.sha256))


def unpack_hashed_file(data: bytes) -> HashedFile | None:
    """Return the file of a row, or None if the row is damaged."""
    if len(data) != _ROW.size:
        return None
    *numbers, hashed_at_ns, sha256 = _ROW.unpack(data)
    stamp = FileStamp(*numbers)
    return HashedFile(stamp, stamped_entry(stamp, sha256.hex()), hashed_at_ns)


class EarlierHashes:
    """The files that earlier processes hashed: of the last snapshot, and of the index. After a read error of it, none.

    A file that still has its change time in the snapshot has the same content, as in the fast path.
    """

    def __init__(self, index: StoreIndex | None) -> None:
        """Use an index, or none."""
        self._index, self._is_readable = index, True
        self.use_snapshot(StatSnapshot(0))

    def use_snapshot(self, snapshot: StatSnapshot) -> None:
        """Use what a snapshot has now, not what is merged into it later."""
        self._snapshot, self._numbers = snapshot.copy_of_files(), dict[str, int]()
        self.compared: dict[str, int] = {}

    def use_comparison(self, difference: SnapshotDifference) -> None:
        """Note in `compared` the change times in ns of the files that a comparison has just found as they were."""
        self.compared = dict(zip(self._snapshot.paths, self._snapshot.ctimes, strict=True))
        for path in (*difference.changed, *map(self._snapshot.paths.__getitem__, difference.touched)):
            self.compared.pop(path, None)

    def unchanged(self, ctimes: Mapping[str, int]) -> dict[str, FileEntry]:
        """Return the entries of the files whose change time, in ns, is as in the snapshot."""
        if not self._numbers:
            self._numbers.update(zip(self._snapshot.paths, range(len(self._snapshot.paths)), strict=True))
        numbers, then = self._numbers, self._snapshot.ctimes
        known = [path for path, ctime_ns in ctimes.items() if path in numbers and then[numbers[path]] == ctime_ns]
        contents = self._snapshot.contents([numbers[path] for path in known])
        return {
            path: FileEntry(Digest(digest, size), executable)
            for path, (digest, size, executable) in zip(known, contents, strict=True)
            if digest != _NOT_HASHED
        }

    def get(self, path: str) -> HashedFile | None:
        """Return the file at a path as it was hashed last, or None."""
        if self._index is None or not self._is_readable:
            return None
        try:
            data = self._index.get(FILES_TABLE, file_row(path))
        except IndexFaultError:
            self._is_readable = False
            return None
        return None if data is None else unpack_hashed_file(data)


def file_row(path: str) -> bytes:
    """Return the key of a file's row: a digest, since a path may be a secret."""
    return blake2b(path.encode("utf-8", "surrogateescape"), digest_size=_ROW_BYTES).digest()


_DIGEST_BYTES = 32
_MAX_ROWS = 64
_PROGRAM = Path(__file__).parent.parent


# A stored plan needs no networkx, which takes 0.14 s to import, and a stored pipeline no PyYAML (ADR 31).
class CompiledTable:
    """A table of the index with one value for each name, and the digest of what the value was compiled from.

    A put is in the index once `pending_rows` are written.
    """

    def __init__(self, index: StoreIndex, table: str, folders: Iterable[str]) -> None:
        """Use a table of the index. `folders` are those of orch23 whose code compiles the values."""
        self._index = index
        self.table = table
        self._folders = tuple(folders)
        self._new: dict[bytes, bytes] = {}

    def get(self, name: str, made_of: bytes) -> bytes | None:
        """Return the value of a name if it was compiled from these bytes, or None."""
        key = name.encode("utf-8", "surrogateescape")
        try:
            found = self._new.get(key) or self._index.get(self.table, key)
        except IndexFaultError:
            return None
        return found[_DIGEST_BYTES:] if found is not None and found[:_DIGEST_BYTES] == self._digest(made_of) else None

    def put(self, name: str, made_of: bytes, value: bytes) -> None:
        """Replace the value of a name."""
        self._new[name.encode("utf-8", "surrogateescape")] = self._digest(made_of) + value

    def pending_rows(self) -> tuple[Mapping[bytes, bytes] | None, Mapping[bytes, bytes | None]]:
        """Return the whole table if it must be replaced, else None and the new rows. Each row is returned once.

        A table of more than 64 rows is replaced, which drops the values of pipelines that no longer exist.
        """
        new, self._new = self._new, {}
        if not new:
            return None, {}
        try:
            known = dict(self._index.rows(self.table))
        except IndexFaultError:
            return new, {}
        return (new, {}) if len(known.keys() | new.keys()) > _MAX_ROWS else (None, dict(new))

    @cached_property
    def _version(self) -> bytes:
        """Return a digest of the code that compiles, by sizes and times: changed code may compile other values."""
        is_skipped, ignored = (lambda path: path.endswith("__pycache__")), (FileNotFoundError,)
        walked = (walk_tree(_PROGRAM / one, is_skipped=is_skipped, ignored=ignored) for one in self._folders)
        statuses = ((entry.path, entry.stat()) for entries in walked for _, entry in entries if not entry.is_dir())
        stamps = [(path, status.st_mtime_ns, status.st_size) for path, status in statuses]
        return sha256(repr(sorted(stamps)).encode("utf-8", "surrogateescape")).digest()

    def _digest(self, made_of: bytes) -> bytes:
        return sha256(self._version + made_of).digest()
