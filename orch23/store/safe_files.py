"""Open, stamp, write and replace files of orch23 and of the project: atomically, durably, without following links.

No other module opens or creates them: `tests/test_opened_paths.py` has the rule and its exceptions (ADR 62).
"""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import SafetyError

if TYPE_CHECKING:
    import _ctypes

PRIVATE_FILE_MODE = 0o600
PRIVATE_FOLDER_MODE = 0o700
TEMP_PREFIX = ".orch23-"
TEMP_SUFFIX = ".tmp"

NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

# next() is atomic in CPython, so two threads never get the same name.
_numbers = itertools.count(1)


def write_atomic(
    path: Path, data: bytes, *, mode: int = 0o644, scratch: Path | None = None, durable: bool = True
) -> None:
    """Replace a file so that a reader sees its old bytes or its new bytes, never a part of either.

    If `durable`, the new bytes survive a power cut once this returns. The temporary file is created in `scratch`
    (default: the folder of the file), which must be on the same file system. Missing folders are created, and are as
    private as the file.
    """
    make_folder(path.parent, folder_mode(mode))
    with _renamed_file(scratch or path.parent, path, mode) as descriptor:
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    if durable:
        sync_folder(path.parent)


def folder_mode(mode: int) -> int:
    """Return the mode of the folders that are created for a file: as private as the file."""
    return PRIVATE_FOLDER_MODE if mode == PRIVATE_FILE_MODE else 0o777


@contextlib.contextmanager
def _renamed_file(folder: Path | str, target: Path | str, mode: int, parent: int | None = None) -> Iterator[int]:
    """Yield a new file, open for writing; then close it and rename it to `target`, or delete it after an error."""
    descriptor, temp = open_temp(folder, mode, parent)
    try:
        with closing(descriptor):
            yield descriptor
        os.rename(temp, target, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        try_unlink(temp, parent)
        raise


class closing(Struct, frozen=True):  # noqa: N801 - as contextlib.closing; no generator, since each step closes thirty
    """Yield a descriptor, and close it at the end of the block."""

    descriptor: int

    def __enter__(self) -> int:
        """Return the descriptor."""
        return self.descriptor

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self.descriptor)


def open_temp(folder: Path | str, mode: int, parent: int | None = None) -> tuple[int, str]:
    """Create a temporary file in a folder (of the directory `parent`), and return its descriptor and its path."""
    while True:
        path = f"{folder}/{temp_name()}" if folder else temp_name()
        try:
            return os.open(path, NEW_FILE_FLAGS, mode, dir_fd=parent), path
        except FileExistsError:  # of a process that was killed and had the same process id
            continue


def temp_name() -> str:
    """Return a file name that is new in this process."""
    return f"{TEMP_PREFIX}{os.getpid()}-{next(_numbers)}{TEMP_SUFFIX}"


def is_temp(name: str) -> bool:
    """Return whether a file name is one of `temp_name`, of any process."""
    return name.startswith(TEMP_PREFIX) and name.endswith(TEMP_SUFFIX)


def sweep_temps(folder: Path) -> None:
    """Delete the temporary files that killed processes left in a folder. The caller holds the build lock."""
    with contextlib.suppress(FileNotFoundError):
        for name in [one for one in os.listdir(folder) if one.startswith(TEMP_PREFIX)]:  # no call for each other file
            if is_temp(name):
                try_unlink(f"{folder}/{name}")


def sweep_temps_below(root: Path, names: Sequence[str]) -> None:
    """Delete such files in a directory below the root, if there is one. Raises SafetyError as `open_directory`."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_directory(root, names) as parent:
        for name in filter(is_temp, os.listdir(parent)):
            os.unlink(name, dir_fd=parent)


def list_folder(folder: Path) -> list[Path]:
    """Return the sorted paths of the entries of a folder; none if there is no such folder."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(folder.iterdir())
    return []


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of the bytes: one `write` may take fewer, as on a disk that is nearly full."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def try_unlink(path: Path | str, parent: int | None = None) -> None:
    """Delete a file if that is possible. A temporary file that stays is deleted by the next build (`sweep_temps`)."""
    with contextlib.suppress(OSError):
        os.unlink(path, dir_fd=parent)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder with its parents, durably. A folder that exists costs one `lstat`, and must not be a link.

    Folders above it may be links: those of the project are checked at the start.
    """
    try:
        check_no_link(folder)
    except FileNotFoundError:
        if not folder.parent.is_dir():
            make_folder(folder.parent, mode)
        make_subfolder(folder, mode)
        sync_folder(folder.parent)


def make_subfolder(folder: Path | str, mode: int) -> None:
    """Create a folder in one that exists, unless there is one, which must not be a link."""
    try:
        os.mkdir(folder, mode)
    except FileExistsError:
        check_no_link(folder)


def check_no_link(folder: Path | str) -> None:
    """Raise FileNotFoundError or NotADirectoryError if a path is not a folder, and SafetyError if it is a link."""
    kind = os.lstat(folder).st_mode
    if stat.S_ISLNK(kind):
        raise unsafe_path_error(str(folder))
    if not stat.S_ISDIR(kind):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: `fsync` of a file does not cover its name."""
    with closing(os.open(folder, FOLDER_FLAGS)) as descriptor:
        os.fsync(descriptor)


@cache
def _c_function_type() -> type["_ctypes.CFuncPtr"]:
    """Return the type of C functions that take and return integers."""
    # Not `ctypes`, which takes 5 ms: it defines types and classes around these.
    from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr  # noqa: PLC0415 - as below

    return type("CFunction", (CFuncPtr,), {"_flags_": FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO})


def c_function(name: str) -> Callable[..., int]:
    """Return a function of the C library, for integers. `_ctypes.get_errno` has its error."""
    from _ctypes import dlopen, dlsym  # noqa: PLC0415 - as below

    return _c_function_type()(dlsym(dlopen(None, 0), name))  # type: ignore[arg-type] # None is this process


def sync_filesystem(path: Path) -> None:
    """Make everything written so far to the file system of `path` durable, in one call for any number of files."""
    from _ctypes import get_errno  # noqa: PLC0415 - needed only by a build that runs or wrote something

    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        if c_function("syncfs")(descriptor) != 0:
            number = get_errno()
            raise OSError(number, os.strerror(number), str(path))


_REFUSED_SEGMENTS = frozenset({"", ".", ".."})
_PIECE_BYTES = 1 << 16

# A path below the root is opened one directory after the other with O_NOFOLLOW. To test a path and then to open it as
# a whole would follow a link that a step puts there between the two.


def split_path(path: str) -> tuple[tuple[str, ...], str]:
    """Return the directories and the name of a relative path.

    Raises:
        SafetyError: it is absolute, or has a segment that is empty, `.` or `..`.
    """
    names = tuple(path.split("/"))
    if not _REFUSED_SEGMENTS.isdisjoint(names) or "\0" in path:
        raise unsafe_path_error(path)
    return names[:-1], names[-1]


@contextlib.contextmanager
def open_directory(root: Path, names: Sequence[str]) -> Iterator[int]:
    """Yield a descriptor of a directory below the root.

    Raises:
        FileNotFoundError: it, or a directory above it, does not exist.
        NotADirectoryError: it, or one above it, is a file.
        SafetyError: it, or one above it, is a link.
    """
    descriptor = os.open(root, FOLDER_FLAGS)
    try:
        for number, name in enumerate(names):
            below = _open_subfolder(descriptor, name, "/".join(names[: number + 1]))
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def make_directories(root: Path, names: Sequence[str], mode: int = 0o777) -> None:
    """Create a directory below the root, with those above it.

    Raises:
        SafetyError: it, or one above it, is a link.
        NotADirectoryError: it, or one above it, is a file.
    """
    with contextlib.suppress(FileNotFoundError), open_directory(root, names):
        return
    for count in range(len(names)):
        with open_directory(root, names[:count]) as parent, contextlib.suppress(FileExistsError):
            os.mkdir(names[count], mode, dir_fd=parent)
    with open_directory(root, names):
        pass


class DirectoryCache:
    """Opens directories below a root for one path after the other, and keeps the last one open.

    Sorted paths are often in the same directory, which is then opened once. The caller must `close` it.
    """

    def __init__(self, root: Path) -> None:
        """Open nothing yet."""
        self._root = root
        self._stack = contextlib.ExitStack()
        self._names: Sequence[str] | None = None
        self._descriptor = -1

    def open(self, names: Sequence[str]) -> int:
        """Return a descriptor of a directory, valid until the next call. Raises what `open_directory` raises."""
        if names != self._names:
            self.close()
            self._descriptor = self._stack.enter_context(open_directory(self._root, names))
            self._names = names
        return self._descriptor

    def close(self) -> None:
        """Close the last directory."""
        self._names = None
        self._stack.close()


def open_file(root: Path, path: str) -> int | None:
    """Return a descriptor of a regular file below the root, or None if there is none.

    Raises:
        SafetyError: the path has a bad segment, or a directory of it is a link.
    """
    names, name = split_path(path)
    try:
        with open_directory(root, names) as parent:
            return open_regular(name, parent)
    except (FileNotFoundError, NotADirectoryError):
        return None


def replace_file(root: Path, path: str, data: bytes | Sequence[memoryview], mode: int) -> os.stat_result:
    """Replace a file's bytes below the root, atomically and durably; missing directories are created.

    `data` may be the pieces of the bytes, in order.

    Return the status of the new file before it was renamed, which changes its `st_ctime`.

    Raises:
        SafetyError: the path has a bad segment, or a directory of it is a link.
        NotADirectoryError: a directory of it is a file.
    """
    names, name = split_path(path)
    make_directories(root, names, folder_mode(mode))
    with open_directory(root, names) as parent:
        try:
            with _renamed_file("", name, mode, parent) as descriptor:
                for piece in (data,) if isinstance(data, bytes) else data:
                    write_all(descriptor, piece)
                os.fsync(descriptor)
                written = os.fstat(descriptor)
        except OSError as error:
            # Not the name alone, which is relative to an open directory.
            error.filename, error.filename2 = str(root / path), None
            raise
        os.fsync(parent)
    return written


class StagedFiles(contextlib.AbstractContextManager["StagedFiles"]):
    """Replaces many files below a root, with one sync for all: after a power cut each has its old or its new bytes.

    Temporary files are created in `scratch`, on the same file system, by default beside each file. Those that were not
    renamed are deleted at the end of the block.
    """

    def __init__(self, root: Path, scratch: Path | str = "") -> None:
        """Write nothing yet."""
        self._root = root
        self._scratch = scratch
        self._temps: list[tuple[str, str]] = []

    def add(self, path: str, data: bytes, mode: int) -> None:
        """Write the new bytes of a file under a temporary name. Raises what `replace_file` raises."""
        names, _ = split_path(path)
        make_directories(self._root, names, folder_mode(mode))
        with open_directory(self._root, names) as parent:
            descriptor, temp = open_temp(self._scratch, mode, parent)
            self._temps.append((path, temp))
            with closing(descriptor):
                write_all(descriptor, data)

    def commit(self) -> None:
        """Make the new bytes durable, then rename the files. The new names are durable after the next sync."""
        if self._temps:
            sync_filesystem(self._root)
        while self._temps:
            path, temp = self._temps[-1]
            names, name = split_path(path)
            with open_directory(self._root, names) as parent:
                os.rename(temp, name, src_dir_fd=parent, dst_dir_fd=parent)
            self._temps.pop()

    def __exit__(self, *_: object) -> None:
        """Delete the temporary files that are left."""
        for path, temp in self._temps:
            discard_temp(self._root, path, temp)


def discard_temp(root: Path, path: str, temp: str) -> None:
    """Delete the temporary file of a path below the root, which is beside it or absolute, if that is possible."""
    names, _ = split_path(path)
    with contextlib.suppress(OSError, SafetyError), open_directory(root, names) as parent:
        os.unlink(temp, dir_fd=parent)


def open_own(name: str | Path, flags: int = os.O_RDONLY, parent: int | None = None) -> int:
    """Return a descriptor of a regular file of orch23: the only way to open one. A link is not followed (ELOOP)."""
    # Without O_NONBLOCK, opening a pipe waits for its other end.
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(name, flags, PRIVATE_FILE_MODE, dir_fd=parent)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ENXIO, "is not a regular file", str(name))


def open_stream(path: Path) -> BufferedReader:
    """Return a regular file of orch23, open for reading. Raises what `open_own` raises."""
    return os.fdopen(open_own(path), "rb")


NOT_A_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV})
"""The errors of `open_own` if a link, a folder or a pipe has the name of a file."""


def open_regular(name: str | Path, parent: int | None = None) -> int | None:
    """Return a descriptor of a regular file, or None if there is none, or a link, a pipe or another type of entry."""
    try:
        return open_own(name, parent=parent)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno in NOT_A_FILE:
            return None
        raise


def read_file(root: Path, path: str, max_bytes: int = -1) -> bytes | None:
    """Return the bytes of a regular file below the root, or the first `max_bytes`; None if there is none.

    Raises what `open_file` raises.
    """
    descriptor = open_file(root, path)
    return None if descriptor is None else read_and_close(descriptor, max_bytes)


def read_regular(path: Path, max_bytes: int = -1) -> bytes | None:
    """Return the bytes of a regular file, or the first `max_bytes`; None if there is none, or a folder or a pipe."""
    descriptor = open_regular(path)
    return None if descriptor is None else read_and_close(descriptor, max_bytes)


def read_own(path: Path, others: int, max_bytes: int) -> bytes | None:
    """Return the first bytes of a regular file of this user; None if others have one of the rights `others` to it."""
    with contextlib.suppress(OSError), open_stream(path) as file:
        status = os.fstat(file.fileno())
        if status.st_uid == os.geteuid() and not status.st_mode & others:
            return file.read(max_bytes)
    return None


def read_and_close(descriptor: int, max_bytes: int = -1) -> bytes:
    """Return all bytes from a descriptor, or the first `max_bytes`, and close it."""
    try:
        pieces: list[bytes] = []
        # One more than its size: the read is then short, which shows the end.
        left = os.fstat(descriptor).st_size + 1
        while max_bytes != 0 and (piece := os.read(descriptor, left if max_bytes < 0 else min(left, max_bytes))):
            pieces.append(piece)
            max_bytes -= len(piece) if max_bytes > 0 else 0
            left = max(left - len(piece), _PIECE_BYTES)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        os.close(descriptor)


def unsafe_path_error(path: str) -> SafetyError:
    """Return the error for a path that leads through a link or out of the root."""
    message = f"the path {path!r} leads through a link or out of the project"
    return SafetyError(Diagnostic("E691", message, hint="replace the link by a real directory, or name another path"))


def _open_subfolder(descriptor: int, name: str, path: str) -> int:
    try:
        return os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            # Kernels differ in which of these errors they return for a link.
            raise
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
            raise unsafe_path_error(path)
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


class FileStamp(NamedTuple):
    """The fields of a file's inode. Equal stamps mean equal bytes, unless the times are racy."""

    dev: int
    ino: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    mode: int


def stamp_of(status: os.stat_result) -> FileStamp:
    """Return the stamp of a status. No process can set a ctime, so a stamp shows changes that hide from `mtime_ns`."""
    mode = stat.S_IMODE(status.st_mode)
    return FileStamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, mode)


def walk_tree(
    root: Path, *, is_skipped: Callable[[str], bool] = lambda _path: False, ignored: tuple[type[OSError], ...] = ()
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield each entry below a folder with its path from there, folders before their entries; no link is followed.

    A path that is skipped is not entered either. A folder whose listing fails with an `ignored` error has no entries.
    """
    pending = [""]
    while pending:
        folder = pending.pop()
        with contextlib.suppress(*ignored), os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if not is_skipped(path):
                    yield path, entry
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{path}/")
