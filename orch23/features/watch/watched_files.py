"""What `watch` compares with the files now: the snapshot of the last build or, if that failed, what it has read.

Wait for changes in folders, by inotify or by a short interval without watches, and for signals that end `watch`.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct, field

from orch23.model.errors import ExitCode
from orch23.model.paths import LOGS_FOLDER, with_above
from orch23.snapshot.fast_path import StaleSnapshot, last_snapshot
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.snapshot.store_registry import STORE_FOLDER

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify


# Changes are delivered once none has come for a step, at most this long after the first.
_STEP_MS = 20
_LONGEST_MS = 1000
_POLL_S = 1.0
_SLEEP_S = 0.05


class StopSignals(Struct):
    """The signals that end `watch`: between two builds the first one ends its wait, and no exception is raised.

    A KeyboardInterrupt could be raised anywhere, also where Python ignores exceptions. It is raised by a second signal,
    and while `is_building`: a build that is being prepared cannot end otherwise. A build that runs has handlers of its
    own.
    """

    received: list[int] = field(default_factory=list)
    is_building: bool = False

    def is_set(self) -> bool:
        """Return whether a signal was received: watchfiles calls it while it waits."""
        return bool(self.received)

    @property
    def exit_code(self) -> int:
        """128 and the number of the first signal, such as 130 for Ctrl-C."""
        return 128 + self.received[0] if self.received else ExitCode.SIGINT

    def handle_signals(self) -> None:
        """Handle signals from now on."""
        for one in _SIGNALS:
            if signal.getsignal(one) != signal.SIG_IGN:  # nohup ignores SIGHUP, and it must stay ignored
                signal.signal(one, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        if self.is_building or len(self.received) > 1:
            raise KeyboardInterrupt


class FolderEvents(Struct):
    """The events of some folders, without those below them. Close it after use.

    Events of the time between two waits are kept: none is lost while a build runs. A signal of `stop` ends a wait.
    """

    stop: StopSignals = field(default_factory=StopSignals)
    problem: str = ""
    _folders: frozenset[str] = frozenset()
    _notify: "RustNotify | None" = None

    def follow(self, folders: Collection[str]) -> bool:
        """Watch these folders; return True if they were not watched before, so that changes may have been missed."""
        wanted = frozenset(filter(os.path.isdir, folders))
        if self.problem or (self._notify is not None and wanted == self._folders):
            return False
        self.close()
        try:
            self._notify = _notify_of(wanted)
        except FileNotFoundError:  # one was removed meanwhile: tried again after the next wait, which is short
            return False
        except (OSError, RuntimeError) as error:  # no watches or instances are left
            self.problem = str(error)
            return False
        self._folders = wanted
        return True

    def wait(self, longest_s: float) -> bool:
        """Wait for changes, at most so long, and return whether there were some."""
        if self._notify is None:
            self.pause(min(longest_s, _POLL_S))
            return False
        try:
            found = self._notify.watch(_LONGEST_MS, _STEP_MS, max(1, int(longest_s * 1000)), self.stop)
        except RuntimeError:  # of the thread that reads the events
            self.close()
            self.pause(min(longest_s, _POLL_S))
            return False
        if isinstance(found, str):  # `timeout`, or `stop`
            return False
        if any(path in self._folders for _, path in found):  # a folder that was replaced has lost its watch
            self.close()
        return True

    def pause(self, longest_s: float) -> None:
        """Wait without regard to changes, at most so long: until a signal."""
        until = time.monotonic() + longest_s
        # A signal does not end a sleep.
        while not self.stop.is_set() and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, _SLEEP_S))

    def close(self) -> None:
        """End the thread that reads the events; `follow` starts a new one, with new watches."""
        if self._notify is not None:
            self._notify.close()
            self._notify = None


def _notify_of(folders: Collection[str]) -> "RustNotify":
    from watchfiles._rust_notify import RustNotify  # noqa: PLC0415 - only `watch` needs it

    return RustNotify(sorted(folders), False, False, 0, False, True)  # noqa: FBT003 - it has no keywords


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
