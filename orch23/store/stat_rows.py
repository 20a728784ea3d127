"""What a file was when it was hashed, as a row of the index."""

import stat
import struct
from typing import NamedTuple

from orch23.model.digest import Digest, FileEntry

_ROW = struct.Struct("<QQqqqIq32s")


class Stamp(NamedTuple):
    """What a file's inode says: equal stamps mean equal bytes, unless the times are racy."""

    dev: int
    ino: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    mode: int


class Seen(NamedTuple):
    """A file as it was hashed: its stamp, what it is, and when the hashing began."""

    stamp: Stamp
    entry: FileEntry
    hashed_at_ns: int


def entry_of(stamp: Stamp, sha256: str) -> FileEntry:
    """Return what a file with this stamp and these bytes is."""
    return FileEntry(Digest(sha256, stamp.size_bytes), executable=bool(stamp.mode & stat.S_IXUSR))


def to_bytes(seen: Seen) -> bytes:
    """Return the row of a file."""
    return _ROW.pack(*seen.stamp, seen.hashed_at_ns, bytes.fromhex(seen.entry.digest.sha256))


def seen_from(data: bytes) -> Seen | None:
    """Return what a row says; None for what is no row."""
    if len(data) != _ROW.size:
        return None
    *numbers, hashed_at_ns, sha256 = _ROW.unpack(data)
    stamp = Stamp(*numbers)
    return Seen(stamp, entry_of(stamp, sha256.hex()), hashed_at_ns)
