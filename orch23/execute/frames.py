"""The folders of a room, without its files: made, emptied again, and refitted to be the folders of the next room."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute.removal import remove_tree

END_OF_SEARCH: Final[Mapping[str, bytes]] = {
    "pytest.ini": b"",
    ".gitignore": b"",
    ".hgignore": b"",
    ".ruff.toml": b"",
    "mypy.ini": b"[mypy]\n",
    "pyproject.toml": b"[tool.black]\n",
}
"""Files of the sandbox directory, above `work`: pytest, hatchling, ruff, mypy and black search parent directories for
settings and stop at these. The project's own, further up, cannot be read with Landlock, and these tools fail on that.
"""

_EMPTY_PARTS = ("home", "tmp")
_WORK = "work"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_ONLY = 0o700

_Access: TypeAlias = tuple[int, int, int]


class Frame(Struct, frozen=True):
    """The folders of a room at `root`: those of every room, and in `work` these, each named after those above it.

    `access` is who may do what in the room's own folders, `below` in those in `work`.
    """

    root: str
    folders: tuple[str, ...]
    access: _Access
    below: _Access | None


def make_frame(root: str, folders: Sequence[str]) -> Frame:
    """Make the folders of a room.

    Raises:
        FileNotFoundError: there is no folder of rooms.
        OSError: the disk is full or not writable.

    """
    for folder in (root, *(f"{root}/{part}" for part in (*_EMPTY_PARTS, _WORK))):
        os.mkdir(folder, _OWN_ONLY)
    for name, text in END_OF_SEARCH.items():
        descriptor = os.open(f"{root}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
    frame = Frame(root, (), _access(os.stat(root)), None)
    return _with_folders(frame, folders)


def refitted(frame: Frame, folders: Sequence[str]) -> Frame | None:
    """Make the folders of an empty frame those of another room; None, and it is gone, where something resists."""
    try:
        for folder in reversed(frame.folders):
            if folder not in folders:
                os.rmdir(f"{frame.root}/{_WORK}/{folder}")
        return _with_folders(frame, folders)
    except OSError:
        remove_tree(Path(frame.root))
        return None


def emptied(frame: Frame) -> bool:
    """Take the files out of the frame of a step that has ended; False where it changed more than files in `work`.

    Each folder has to be there, as open to others as it was, and there may be no other. No link is followed.
    """
    try:
        with _opened(frame.root) as root:
            if not _is_as_made(frame, root):
                return False
            for part in _EMPTY_PARTS:
                with _opened(part, root) as folder:
                    if _access(os.fstat(folder)) != frame.access or os.listdir(folder):
                        return False
            with _opened(_WORK, root) as work:
                if _access(os.fstat(work)) != frame.access:
                    return False
                return _take_files(frame, work, "") == len(frame.folders)
    except (OSError, _StrangeError):
        return False


class _StrangeError(Exception):
    """A folder is not one that was made, or not as it was made."""


def _with_folders(frame: Frame, folders: Sequence[str]) -> Frame:
    for folder in folders:
        if folder not in frame.folders:
            os.mkdir(f"{frame.root}/{_WORK}/{folder}")
    below = frame.below
    if below is None and folders:
        below = _access(os.stat(f"{frame.root}/{_WORK}/{folders[0]}"))
    return replace(frame, folders=tuple(folders), below=below)


def _is_as_made(frame: Frame, root: int) -> bool:
    if _access(os.fstat(root)) != frame.access:
        return False
    if sorted(os.listdir(root)) != sorted((*_EMPTY_PARTS, _WORK, *END_OF_SEARCH)):
        return False
    return all(_is_as_written(root, name, text) for name, text in END_OF_SEARCH.items())


def _is_as_written(root: int, name: str, text: bytes) -> bool:
    """Return whether a file of the root is the one that was made; it is opened only if it has bytes."""
    status = os.stat(name, dir_fd=root, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size != len(text):
        return False
    if not text:
        return True
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    try:
        return os.read(descriptor, len(text) + 1) == text
    finally:
        os.close(descriptor)


def _take_files(frame: Frame, folder: int, prefix: str) -> int:
    """Unlink the files in a folder and in those below it; return how many these are."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    count = 0
    for name, is_directory in found:
        if not is_directory:
            os.unlink(name, dir_fd=folder)
            continue
        if prefix + name not in frame.folders:
            raise _StrangeError
        with _opened(name, folder) as inner:
            if _access(os.fstat(inner)) != frame.below:
                raise _StrangeError
            count += 1 + _take_files(frame, inner, f"{prefix}{name}/")
    return count


@contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _access(status: os.stat_result) -> _Access:
    return status.st_mode, status.st_uid, status.st_gid
