"""Rows and tables of the index: file hashes by path, compiled pipelines and plans."""

import hashlib
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from orch23.model.digest import Digest, FileEntry
from orch23.store.index import IndexFaultError, StoreIndex

_ROW = struct.Struct("<QQqqqIq32s")


class FileStamp(NamedTuple):
    """What a file's inode says: equal stamps mean equal bytes, unless the times are racy."""

    dev: int
    ino: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    mode: int


class HashedFile(NamedTuple):
    """A file as it was hashed: its stamp, what it is, and when the hashing began."""

    stamp: FileStamp
    entry: FileEntry
    hashed_at_ns: int


def stamped_entry(stamp: FileStamp, sha256: str) -> FileEntry:
    """Return what a file with this stamp and these bytes is."""
    return FileEntry(Digest(sha256, stamp.size_bytes), executable=bool(stamp.mode & stat.S_IXUSR))


def pack_hashed_file(seen: HashedFile) -> bytes:
    """Return the row of a file."""
    return _ROW.pack(*seen.stamp, seen.hashed_at_ns, bytes.fromhex(seen.entry.digest.sha256))


def unpack_hashed_file(data: bytes) -> HashedFile | None:
    """Return what a row says; None for what is no row."""
    if len(data) != _ROW.size:
        return None
    *numbers, hashed_at_ns, sha256 = _ROW.unpack(data)
    stamp = FileStamp(*numbers)
    return HashedFile(stamp, stamped_entry(stamp, sha256.hex()), hashed_at_ns)


_DIGEST = hashlib.sha256().digest_size
_MOST = 64
_PROGRAM = Path(__file__).parent.parent


class CompiledTable:
    """One table of the index: under each name the value that was made last, with the digest of what it is made of.

    What is put is in the index once `changes` are written.
    """

    def __init__(self, index: StoreIndex, table: str, folders: Iterable[str]) -> None:
        """Take the index, the name of the table, and the folders of the program whose code makes the values."""
        self._index = index
        self.table = table
        self._folders = tuple(folders)
        self._new: dict[bytes, bytes] = {}

    def get(self, name: str, made_of: bytes) -> bytes | None:
        """Return the value under a name if it is made of these bytes, or None."""
        key = name.encode("utf-8", "surrogateescape")
        try:
            found = self._new.get(key) or self._index.get(self.table, key)
        except IndexFaultError:
            return None
        return found[_DIGEST:] if found is not None and found[:_DIGEST] == self._digest(made_of) else None

    def put(self, name: str, made_of: bytes, value: bytes) -> None:
        """Keep a value in the place of the one under its name."""
        self._new[name.encode("utf-8", "surrogateescape")] = self._digest(made_of) + value

    def pending_rows(self) -> tuple[Mapping[bytes, bytes] | None, Mapping[bytes, bytes | None]]:
        """Return the whole table where it has to be written anew, or None and the rows that are new; each row once."""
        new, self._new = self._new, {}
        if not new:
            return None, {}
        try:
            known = dict(self._index.rows(self.table))
        except IndexFaultError:
            return new, {}
        return (new, {}) if len(known.keys() | new.keys()) > _MOST else (None, dict(new))

    @cached_property
    def _version(self) -> bytes:
        return _version(self._folders)

    def _digest(self, made_of: bytes) -> bytes:
        return hashlib.sha256(self._version + made_of).digest()


def _version(folders: Iterable[str]) -> bytes:
    """Return what is another one if the code in some folders is: another code may make other values."""
    stamps = []
    left = [str(_PROGRAM / folder) for folder in folders]
    while left:
        with os.scandir(left.pop()) as entries:
            for one in entries:
                if not one.is_dir():
                    found = one.stat()
                    stamps.append((one.path, found.st_mtime_ns, found.st_size))
                elif one.name != "__pycache__":
                    left.append(one.path)
    return hashlib.sha256(repr(sorted(stamps)).encode("utf-8", "surrogateescape")).digest()
