"""The file that remembers, from one process to the next, which bytes were seen under which stamp: one JSON, by columns.

It is a cache: a file that is damaged, of another version, or not as it was written counts as none.
"""

import gc
import stat
from collections.abc import Mapping
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

from orch23.model.digest import Digest, FileEntry, Json
from orch23.store.beneath import read_regular
from orch23.store.durable import PRIVATE_FILE, seal, unseal, write_atomic
from orch23.store.strict_json import fields, text, texts

CACHE_VERSION = 2
_SHA256_DIGITS = 64


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


def load_seen(path: Path) -> dict[str, Seen]:
    """Return what the file remembers.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or of another version.

    """
    collecting = gc.isenabled()
    gc.disable()  # a few objects a file, and not one of them is garbage: to look for some doubles the time
    try:
        return _parsed(read_regular(path) or b"")
    finally:
        if collecting:
            gc.enable()


def _parsed(data: bytes) -> dict[str, Seen]:
    body = fields(unseal(data), ("version", "paths", "sha256", "numbers"))
    if body["version"] != CACHE_VERSION:
        message = "is of another version"
        raise ValueError(message)
    paths, digests, columns = texts(body["paths"]), text(body["sha256"]), _columns(body["numbers"])
    if len(digests) != len(paths) * _SHA256_DIGITS or any(len(column) != len(paths) for column in columns):
        message = "has columns of different lengths"
        raise ValueError(message)
    starts = range(0, len(digests), _SHA256_DIGITS)
    *stamps, hashed = columns
    return {
        name: Seen(stamp, entry_of(stamp, digests[at : at + _SHA256_DIGITS]), hashed_at_ns)
        for name, stamp, at, hashed_at_ns in zip(
            paths, starmap(Stamp, zip(*stamps, strict=True)), starts, hashed, strict=True
        )
    }


def save_seen(path: Path, files: Mapping[str, Seen]) -> None:
    """Write the file anew."""
    stamps = [seen.stamp for seen in files.values()]
    columns: list[Json] = [list(column) for column in zip(*stamps, strict=True)] or [[] for _ in Stamp._fields]
    columns.append([seen.hashed_at_ns for seen in files.values()])
    body: Json = {
        "version": CACHE_VERSION,
        "paths": list(files),
        "sha256": "".join([seen.entry.digest.sha256 for seen in files.values()]),
        "numbers": columns,
    }
    write_atomic(path, seal(body), mode=PRIVATE_FILE)


def _columns(value: Json) -> list[list[int]]:
    if not isinstance(value, list) or len(value) != len(Stamp._fields) + 1:
        message = "has other columns"
        raise ValueError(message)
    for column in value:
        if not isinstance(column, list) or set(map(type, column)) - {int}:
            message = "holds what is no number"
            raise ValueError(message)
    return value
