"""Rows and tables of the index: file hashes by path, compiled pipelines and plans."""

import stat
import struct
from _blake2 import blake2b
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from orch23.model.digest import Digest, FileEntry
from orch23.snapshot.signatures import sha256
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.index import IndexFaultError, StoreIndex
from orch23.store.safe_files import FileStamp, walk_tree

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

    def unchanged(self, stamps: Mapping[str, tuple[int, ...]]) -> dict[str, FileEntry]:
        """Return those of some files, each with its `SHORT_STAMP`, that the snapshot has as they are."""
        if not self._numbers:
            self._numbers.update(zip(self._snapshot.paths, range(len(self._snapshot.paths)), strict=True))
        numbers, ctimes = self._numbers, self._snapshot.ctimes
        named = [(path, one[1], one[2]) for path, one in stamps.items() if path in numbers]
        known = [(path, size) for path, size, ctime_ns in named if ctimes[numbers[path]] == ctime_ns]
        contents = self._snapshot.contents([numbers[path] for path, _ in known])
        # Git may convert files of another size otherwise by now. A digest of zeros: it was not hashed.
        return {
            path: FileEntry(Digest(digest, size), executable)
            for (path, size), (digest, content_size, executable) in zip(known, contents, strict=True)
            if size == content_size and digest != _NOT_HASHED
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
