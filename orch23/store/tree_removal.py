"""Remove directory trees, also hostile ones, and open directories in them without following links."""

import contextlib
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from orch23.store.safe_files import FOLDER_FLAGS, closing

DIRECTORY_FLAGS: Final = FOLDER_FLAGS | os.O_NOFOLLOW
"""Open a directory, but not through a link, which a step can put in the place of any directory that it writes."""

_ENTRIES_PER_SCAN = 10_000
_MAX_RECURSION = 20
_GET_FLAGS, _SET_FLAGS = 0x8008_6601, 0x4008_6602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_REFUSED = frozenset({errno.EPERM, errno.EACCES})


def open_subdirectory(name: str | Path, parent: int | None = None) -> closing:
    """Open a directory by its parent's descriptor, without following a link, and close it at the end."""
    return closing(os.open(name, DIRECTORY_FLAGS, dir_fd=parent))


@contextlib.contextmanager
def open_below(directory: int, names: Sequence[str]) -> Iterator[int]:
    """Open a directory below another one, name by name, without following links, and close it at the end."""
    # Not by openat2, which some containers refuse (ADR 22).
    descriptor = os.dup(directory)
    try:
        for name in names:
            below = os.open(name, DIRECTORY_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def remove_tree(root: Path) -> None:
    """Remove a tree, or a file of that name. Files that cannot be removed stay, and are tried again at the next call.

    A directory that is deep or cannot be removed in place is moved beside `root` first, so that neither paths nor
    recursion grow with the depth of the tree.
    """
    remove_trees(root.parent, root.name)


def remove_trees(folder: Path, *names: str) -> None:
    """Remove trees of one folder, as `remove_tree` does."""
    with contextlib.suppress(OSError), closing(os.open(folder, FOLDER_FLAGS)) as parent:
        for name in names:
            _Removal(parent, name).run()


def remove_path(path: Path) -> None:
    """Remove a file, a link, or a directory with its contents.

    Raises:
        PermissionError: a part of it cannot be removed.
    """
    remove_tree(path)
    # Errors of single entries are ignored above, so that everything else is removed first.
    if os.path.lexists(path):
        raise PermissionError(errno.EPERM, "cannot be removed", str(path))


class _Removal:
    def __init__(self, parent: int, name: str) -> None:
        self._parent, self._name = parent, name
        self._pending = [name]
        self._moved = 0

    def run(self) -> None:
        while self._pending:
            with contextlib.suppress(OSError):
                self._remove(self._pending.pop())

    def _remove(self, name: str) -> None:
        status = os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=self._parent)
            return
        make_accessible(name, self._parent)
        with open_subdirectory(name, self._parent) as folder:
            self._empty(folder, 1)
        os.rmdir(name, dir_fd=self._parent)

    def _empty(self, folder: int, depth: int) -> None:
        while self._empty_in_part(folder, depth):
            pass

    def _empty_in_part(self, folder: int, depth: int) -> bool:
        """Remove up to 10,000 entries, since a directory may hold millions. Return whether another round may help."""
        with os.scandir(folder) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(found, _ENTRIES_PER_SCAN)]
        removed = 0
        for name, is_directory in entries:
            with contextlib.suppress(OSError):
                if not is_directory:
                    _forced(partial(os.unlink, name, dir_fd=folder), name, folder)
                elif not self._remove_in_place(name, folder, depth):
                    self._move_up(name, folder)
                removed += 1
        return removed > 0 and len(entries) == _ENTRIES_PER_SCAN

    def _remove_in_place(self, name: str, folder: int, depth: int) -> bool:
        """Remove an inner directory unless it is deep or cannot be removed; return whether it is gone."""
        if depth == _MAX_RECURSION:
            return False
        try:
            with open_subdirectory(name, folder) as inner:
                self._empty(inner, depth + 1)
                os.rmdir(name, dir_fd=folder)
        except OSError:
            return False
        return True

    def _move_up(self, name: str, folder: int) -> None:
        make_accessible(name, folder)
        self._moved += 1
        aside = f"{self._name}.gone{self._moved}"
        _forced(lambda: os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=self._parent), name, folder)
        self._pending.append(aside)


def make_accessible(name: str, folder: int) -> None:
    """Give the owner all rights to a directory. The name may be a link by now: it is not followed.

    Raises:
        OSError: it is not a directory, or not ours.
    """
    # O_PATH needs no right to read. chmod of /proc/self/fd changes what was opened, whatever has the name by now.
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing(os.open(name, flags, dir_fd=folder)) as descriptor:
        if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            _forced(lambda: os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU), name, folder)


def _forced(change: Callable[[], None], name: str, folder: int) -> None:
    """Make a change. If it is refused, clear the attributes that root's `chattr +i` or `+a` sets, and try again."""
    try:
        change()
    except OSError as problem:
        if problem.errno not in _REFUSED:
            raise
        _clear_attributes(folder)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        # A file that cannot be opened has no attributes. An ioctl on a device could do anything.
        with contextlib.suppress(OSError), closing(os.open(name, flags, dir_fd=folder)) as descriptor:
            if stat.S_IFMT(os.fstat(descriptor).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
                _clear_attributes(descriptor)
        change()


def _clear_attributes(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        flags = struct.unpack("l", fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("l", 0)))[0]
        if flags & (_IMMUTABLE | _APPEND_ONLY):
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", flags & ~(_IMMUTABLE | _APPEND_ONLY)))
