"""Remove directory trees, also hostile ones, in the background and after killed processes."""

import contextlib
import errno
import fcntl
import os
import queue
import re
import secrets
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from orch23.execute import process_tree

_NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 10_000
_SHALLOW = 20
_READ_FLAGS, _WRITE_FLAGS = 0x8008_6601, 0x4008_6602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_REFUSED = frozenset({errno.EPERM, errno.EACCES})


def remove_tree(root: Path) -> None:
    """Remove a tree, or whatever else has that name. What resists stays, and is tried again at the next call.

    Each directory that lies deep or resists is lifted beside `root`, so no path and no recursion grows with the depth
    of the tree.
    """
    remove_trees(root.parent, root.name)


def remove_trees(folder: Path, *names: str) -> None:
    """Remove some trees that stand in one folder, as `remove_tree` does."""
    with contextlib.suppress(OSError):
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                _Removal(parent, name).run()
        finally:
            os.close(parent)


class _Removal:
    """Takes one tree away, in the directory that it stands in."""

    def __init__(self, parent: int, name: str) -> None:
        self._parent = parent
        self._name = name
        self._lifted = [name]
        self._count = 0

    def run(self) -> None:
        while self._lifted:
            with contextlib.suppress(OSError):
                self._take(self._lifted.pop())

    def _take(self, name: str) -> None:
        """Empty a directory and remove it; anything else is unlinked, a link too."""
        status = os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=self._parent)
            return
        make_accessible(name, self._parent)
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW, dir_fd=self._parent)
        try:
            self._empty(folder, 1)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=self._parent)

    def _empty(self, folder: int, depth: int) -> None:
        while self._empty_in_part(folder, depth):
            pass

    def _empty_in_part(self, folder: int, depth: int) -> bool:
        """Take some entries away, and say whether more may be left that will go: a directory may hold millions."""
        with os.scandir(folder) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(found, _AT_ONCE)]
        gone = 0
        for name, is_directory in entries:
            with contextlib.suppress(OSError):
                if is_directory:
                    if not self._is_gone(name, folder, depth):
                        self._lift(name, folder)
                else:
                    _forced(partial(os.unlink, name, dir_fd=folder), name, folder)
                gone += 1
        return gone > 0 and len(entries) == _AT_ONCE

    def _is_gone(self, name: str, folder: int, depth: int) -> bool:
        """Remove an inner directory where it stands, if it is not deep and nothing resists; say whether it is gone."""
        if depth == _SHALLOW:
            return False
        try:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW, dir_fd=folder)
        except OSError:
            return False
        try:
            self._empty(inner, depth + 1)
            os.rmdir(name, dir_fd=folder)
        except OSError:
            return False
        finally:
            os.close(inner)
        return True

    def _lift(self, name: str, folder: int) -> None:
        make_accessible(name, folder)
        self._count += 1
        aside = f"{self._name}.gone{self._count}"
        _forced(lambda: os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=self._parent), name, folder)
        self._lifted.append(aside)


def make_accessible(name: str, folder: int) -> None:
    """Give ourselves every right to a directory, whatever it is now that has this name: a link is not followed.

    Raises:
        OSError: it is no directory, or not ours.

    """
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | _NOFOLLOW, dir_fd=folder)
    try:
        if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            _forced(lambda: os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU), name, folder)
    finally:
        os.close(place)


def _forced(change: Callable[[], None], name: str, folder: int) -> None:
    """Make a change; where it is refused, a second time, without the attributes that forbid it."""
    try:
        change()
    except OSError as problem:
        if problem.errno not in _REFUSED:
            raise
        _permit(folder)
        with contextlib.suppress(OSError):  # what cannot be opened has none
            place = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NOFOLLOW, dir_fd=folder)
            try:
                if stat.S_IFMT(os.fstat(place).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
                    _permit(place)
            finally:
                os.close(place)
        change()


def _permit(place: int) -> None:
    """Take the attributes away by which root makes a file immutable, or only to be appended to."""
    with contextlib.suppress(OSError):
        flags = struct.unpack("l", fcntl.ioctl(place, _READ_FLAGS, struct.pack("l", 0)))[0]
        if flags & (_IMMUTABLE | _APPEND_ONLY):
            fcntl.ioctl(place, _WRITE_FLAGS, struct.pack("l", flags & ~(_IMMUTABLE | _APPEND_ONLY)))


_MOST_WAITING = 2


class BackgroundCleaner:
    """Does what it is given in turn. Where it falls behind, whoever comes cleans up himself: rooms do not pile up."""

    def __init__(self) -> None:
        """Begin with nothing to do; the thread is made for the first piece of work."""
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Do some work soon, or at once where enough is waiting."""
        if self._work.qsize() >= _MOST_WAITING:
            work()
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="orch23-cleaner", daemon=True)
                self._thread.start()
            self._work.put(work)

    def close(self) -> None:
        """Wait until all is done; what went wrong is raised here. It may be given work again."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._work.put(None)
                thread.join()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 - it is raised where the end is waited for
                self._problem = self._problem or problem


_NAME = re.compile(r"orch23-(?:sandbox|template)-[0-9a-f]{16}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def temporary_folder(purpose: Literal["sandbox", "template"]) -> Iterator[Path]:
    """Give a new folder of the user's own, and remove it at the end.

    It is locked as long as this process lives: by that, those that nobody uses any more are told.

    Raises:
        OSError: none can be made.

    """
    top = Path(tempfile.gettempdir()).resolve()
    _sweep(top)
    path, lock = _made(top, purpose)
    try:
        yield path
    finally:
        remove_trees(path.parent, path.name)
        os.close(lock)


def _made(top: Path, purpose: str) -> tuple[Path, int]:
    while True:
        path = top / f"orch23-{purpose}-{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # another one took it for left behind
            lock = _locked(path.name, path.parent)
            if path.exists():
                return path, lock
            os.close(lock)


def _sweep(top: Path) -> None:
    """Remove the folders that killed processes left, and end what still runs in them."""
    with contextlib.suppress(OSError):
        for name in os.listdir(top):
            if _NAME.fullmatch(name):
                with contextlib.suppress(OSError):
                    lock = _locked(name, top)
                    try:
                        if os.fstat(lock).st_uid == os.geteuid():
                            process_tree.kill_leftovers(top / name)
                            remove_trees(top, name)
                    finally:
                        os.close(lock)


def _locked(name: str, parent: Path) -> int:
    """Open a folder and lock it.

    Raises:
        BlockingIOError: its process lives.
        OSError: it is no folder, or gone.

    """
    lock = os.open(parent / name, _DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock
