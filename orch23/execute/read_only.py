"""A tree that its process may not write: what is made writable in it, and what was written all the same."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from orch23.execute.rooms import ROOM_EPOCH, Room

Stamps: TypeAlias = Mapping[str, tuple[int, int]]
"""Inode and time of the last change of each path of a tree; no process can set the latter."""


_CACHE = ".pytest_cache"


def writable_parts(room: Room, writable: Iterable[str]) -> Iterator[Path]:
    """Give the places of a room that its process may write."""
    yield from (room.home, room.tmp)
    if (cache := room.root / _CACHE).is_dir():
        yield cache
    yield from (room.work / path for path in writable)


def folders_of(writable: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that have to be there: those that are writable, and those of writable files."""
    return tuple(dict.fromkeys(path.rpartition("/")[0] for path in writable if "/" in path))


def make_cache(room: Room) -> None:
    """Make the folder of pytest's cache, which stands beside the settings that it finds above the tree."""
    (room.root / _CACHE).mkdir()


def make_files(room: Room, writable: Iterable[str]) -> tuple[str, ...]:
    """Make the writable files that are not there, empty, and return their paths."""
    made = []
    for path in writable:
        target = room.work / path
        if not path.endswith("/") and not target.exists():
            target.touch(0o644, exist_ok=False)
            os.utime(target, (ROOM_EPOCH, ROOM_EPOCH))
            made.append(path)
    return tuple(made)


def stamps_of(room: Room, writable: Iterable[str]) -> Stamps:
    """Return the stamps of everything in a room's tree that may not be written."""
    left_out = frozenset(path.rstrip("/") for path in writable)
    found: dict[str, tuple[int, int]] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        status = os.stat(room.work / folder, follow_symlinks=False)
        found[folder or "."] = (status.st_ino, status.st_ctime_ns)
        with os.scandir(room.work / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path in left_out:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    found[path] = (status.st_ino, status.st_ctime_ns)
    return found


class LeftReadOnly(Struct, frozen=True):
    """What is left of a read-only tree: files that were made for the process and not used, and what was changed."""

    unused: tuple[str, ...]
    touched: tuple[str, ...]


def left_by(room: Room, writable: Iterable[str], made: Iterable[str], before: Stamps | None) -> LeftReadOnly:
    """Compare a tree with what it was. Without stamps of it nothing else than `writable` could be written."""
    unused = tuple(path for path in made if _is_unused(room.work / path))
    return LeftReadOnly(unused, () if before is None else _touched(room, before, writable))


def _is_unused(path: Path) -> bool:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return status.st_size == 0 and int(status.st_mtime) == ROOM_EPOCH


def _touched(room: Room, before: Stamps, writable: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that were changed, made or removed; of a folder and what is in it, only the latter.

    A tree that cannot be read any more counts as changed as a whole.
    """
    try:
        after = stamps_of(room, writable)
    except OSError:
        return (".",)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return tuple(
        p for p in changed if not any(p == "." or other.startswith(f"{p}/") for other in changed if other != p)
    )
