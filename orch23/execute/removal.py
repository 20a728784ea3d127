"""Remove a tree that a hostile program may have made: of any depth, size and modes, through no link."""

import contextlib
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

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
        unlock(name, self._parent)
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
        unlock(name, folder)
        self._count += 1
        aside = f"{self._name}.gone{self._count}"
        _forced(lambda: os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=self._parent), name, folder)
        self._lifted.append(aside)


def unlock(name: str, folder: int) -> None:
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
