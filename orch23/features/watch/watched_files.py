"""What `watch` compares with the files now: the snapshot of the last build or, if that failed, what it has read."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from msgspec import Struct

from orch23.model.paths import LOGS_FOLDER, with_above
from orch23.snapshot.fast_path import StaleSnapshot, last_snapshot
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.snapshot.store_registry import STORE_FOLDER

# Times of files come from a clock with steps of at most 10 ms, and an edit is built 20 ms after it at the earliest.
_CLOCK_NS = 12_000_000
_OWN = (STORE_FOLDER, LOGS_FOLDER)
_UNREAD = ".git"
_MAX_FILES = 50_000
_NEVER_NS = 1 << 63


class Change(Struct, frozen=True):
    """What has to be built: the paths that changed, none if there was no build, and the snapshot to start from."""

    paths: tuple[str, ...] = ()
    snapshot: StaleSnapshot | None = None


class WatchedTree(Struct, frozen=True):
    """All files of a project, for a pipeline that cannot be loaded: what would repair it is not known."""

    root: Path
    states: dict[str, tuple[int, int, int]]

    @classmethod
    def of(cls, root: Path, since_ns: int = _NEVER_NS) -> "WatchedTree":
        """Return the files at `root` now. One that changed since a time in ns counts as changed."""
        late = since_ns - _CLOCK_NS
        return cls(root, {path: (0, 0, 0) if state[0] >= late else state for path, state in _files(root)})

    def changed(self) -> tuple[str, ...]:
        """Return the paths that differ now."""
        return tuple(sorted({path for path, _ in self.states.items() ^ dict(_files(self.root)).items()}))


class WatchedFiles(Struct):
    """The files that the last build of a command line depends on.

    `read` is what it has read if it left no snapshot: the states of the files that it used, or the whole tree if it
    could not be loaded.
    """

    root: Path
    argv: tuple[str, ...]
    read: StatSnapshot | WatchedTree | None = None
    _is_confirmed: bool = False
    _last: StaleSnapshot | None = None

    def change(self) -> Change | None:
        """Return what has changed since the last build; None if that is nothing."""
        found = self._last = last_snapshot([*self.argv], self._last)
        read, paths = self.read, self._since_read()
        if found is not None and not found.difference.changed:
            # An edit was undone, or another build has succeeded: what the last build has shown is no longer true, so
            # one build shows what is.
            self.read = None
            if read is None or self._is_confirmed:
                return None
            self._is_confirmed = True
            return Change(paths or (), found)
        if read is not None and paths == ():
            return None
        self._is_confirmed = False
        if read is None and found is not None:
            paths = tuple(found.difference.changed)
        return Change(paths or (), found)

    def _since_read(self) -> tuple[str, ...] | None:
        """Return what has changed since the last build read it, if that left no snapshot; None if it is not known."""
        read = self.read
        if read is None or isinstance(read, WatchedTree):
            return None if read is None else read.changed()
        with contextlib.chdir(self.root):
            difference = read.compare()
        if difference is None:
            return None
        read.update_times(difference)
        return tuple(difference.changed)

    def forget(self) -> None:
        """Read the snapshot again: a build changes the one in memory."""
        self._last = None

    @property
    def _known(self) -> StatSnapshot | None:
        if isinstance(self.read, StatSnapshot):
            return self.read
        return None if self._last is None else self._last.snapshot

    @property
    def count(self) -> int | None:
        """How many files are watched that the build uses; None if it is not known which, so that all files are."""
        if isinstance(self.read, WatchedTree):
            return None
        known = self._known
        return 0 if known is None else sum(not (path.startswith("/") or _is_own(path)) for path in known.paths)

    def folders(self) -> frozenset[str]:
        """Return the folders to watch: of files that were read or missed, those that were listed, and all above."""
        if isinstance(self.read, WatchedTree):
            below = {path.rpartition("/")[0] for path in self.read.states}
        elif (known := self._known) is not None:
            below = {path.rpartition("/")[0] for path in (*known.paths, *known.absent)}
            below |= {path_in(self.root, path) for path in known.outside}
        else:
            below = set()
        named = {folder for path in below if not path.startswith("/") for folder in with_above(path)}
        return frozenset({str(self.root), *(str(self.root / one) for one in named if not _is_own(one))})


def path_in(root: Path, path: str) -> str:
    """Return a path relative to a root, or as it is if it is not below it."""
    return path.removeprefix(f"{root}/")


def _is_own(path: str) -> bool:
    return path.partition("/")[0] in _OWN


def _identity(stream: TextIO) -> tuple[int, int] | None:
    try:
        state = os.fstat(stream.fileno())
    except (AttributeError, OSError, ValueError):  # it is closed
        return None
    return state.st_dev, state.st_ino


def _files(root: Path) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Yield the files below a folder with change time in ns, size and inode, without those of orch23 and git."""
    # `orch23 watch 2> watch.log` would be an edit by each message.
    count, written = 0, {_identity(one) for one in (sys.stdout, sys.stderr)}
    for folder, below, names in os.walk(root):
        place = path_in(root, f"{folder}/")
        linked = [one for one in below if Path(folder, one).is_symlink()]
        below[:] = sorted(one for one in below if one != _UNREAD and not _is_own(f"{place}{one}"))
        for name in (*names, *linked):
            with contextlib.suppress(FileNotFoundError):
                state = os.lstat(f"{folder}/{name}")
                count += 1
                if (state.st_dev, state.st_ino) not in written:
                    yield f"{place}{name}", (state.st_ctime_ns, state.st_size, state.st_ino)
        if count > _MAX_FILES:
            return
