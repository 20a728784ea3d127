"""Open, write and replace files: atomically, durably, and below a root without following links."""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import SafetyError
from orch23.model.paths import FORBIDDEN_LINK_TARGETS
from orch23.store.codes import E_LINK

PRIVATE_FILE_MODE = 0o600
PRIVATE_FOLDER_MODE = 0o700
TEMP_PREFIX = ".orch23-"
TEMP_SUFFIX = ".tmp"

_numbers = itertools.count(1)  # next() on it is atomic, so threads never share a name


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644, scratch: Path | None = None) -> None:
    """Replace a file's bytes durably: when this returns they survive a power cut, and no reader ever sees a part.

    The temporary file is made in `scratch` (default: the file's own folder), which must be on the same filesystem.
    Missing folders are made, and are as private as the file.
    """
    make_folder(path.parent, PRIVATE_FOLDER_MODE if mode == PRIVATE_FILE_MODE else 0o777)
    descriptor, temp = open_temp(scratch or path.parent, mode)
    try:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temp, path)
    except BaseException:
        try_unlink(temp)
        raise
    sync_folder(path.parent)


def open_temp(folder: Path | str, mode: int) -> tuple[int, str]:
    """Make a new file of a name that nobody else uses, open for writing, and return its descriptor and path."""
    while True:
        path = f"{folder}/{temp_name()}"
        with contextlib.suppress(FileExistsError):  # left by a dead process that had our number
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode), path


def temp_name() -> str:
    """Return a file name that is new in this process."""
    return f"{TEMP_PREFIX}{os.getpid()}-{next(_numbers)}{TEMP_SUFFIX}"


def is_temp(name: str) -> bool:
    """Say whether a file name is one of `temp_name`, whoever made it."""
    return name.startswith(TEMP_PREFIX) and name.endswith(TEMP_SUFFIX)


def sweep_temps(folder: Path) -> None:
    """Remove what killed processes left in one folder. Only for the holder of the build lock."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if is_temp(entry.name):
                try_unlink(Path(entry.path))


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of the bytes; one call of the kernel may take fewer."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def try_unlink(path: Path | str) -> None:
    """Remove a file if it can be removed; what is left behind is swept at the next start."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder with its parents, durably; one that exists costs a single look, and keeps its mode."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_filesystem(path: Path) -> None:
    """Make everything written so far to the filesystem of `path` durable, in one call for any number of files."""
    import ctypes  # noqa: PLC0415 - 5 ms that only a build that wrote something has to pay

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # pragma: no cover - a libc without it: not Linux
            os.sync()
        elif syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


_NOT_BELOW = frozenset({"", ".", ".."})
_PIECE_BYTES = 1 << 16
MAX_LINKS = 40  # as many as the kernel follows
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def split_path(path: str) -> tuple[tuple[str, ...], str]:
    """Return the directories and the name of a relative path.

    Raises:
        SafetyError: it is absolute, climbs, or has an empty segment.

    """
    names = tuple(path.split("/"))
    if not _NOT_BELOW.isdisjoint(names) or "\0" in path:
        raise unsafe_path_error(path)
    return names[:-1], names[-1]


@contextlib.contextmanager
def open_directory(root: Path, names: Sequence[str]) -> Iterator[int]:
    """Give a descriptor of a directory below the root.

    Raises:
        FileNotFoundError: it, or one above it, is not there.
        NotADirectoryError: one of them is a file.
        SafetyError: one of them is a link.

    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number, name in enumerate(names):
            below = _enter(descriptor, name, "/".join(names[: number + 1]))
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def make_directories(root: Path, names: Sequence[str]) -> None:
    """Make a directory below the root, with those above it.

    Raises:
        SafetyError: one of them is a link.
        NotADirectoryError: one of them is a file.

    """
    with contextlib.suppress(FileNotFoundError), open_directory(root, names):
        return
    for count in range(len(names)):
        with open_directory(root, names[:count]) as parent, contextlib.suppress(FileExistsError):
            os.mkdir(names[count], dir_fd=parent)
    with open_directory(root, names):
        pass


class DirectoryCache:
    """Directories below a root, for one path after the other: the last one stays open while the next is the same.

    `close` it at the end. What it raises is what `directory` raises.
    """

    def __init__(self, root: Path) -> None:
        """Take the root; nothing is opened yet."""
        self._root = root
        self._open = contextlib.ExitStack()
        self._names: Sequence[str] | None = None
        self._descriptor = -1

    def open(self, names: Sequence[str]) -> int:
        """Give a descriptor of a directory, which is good until another one is entered."""
        if names != self._names:
            self.close()
            self._descriptor = self._open.enter_context(open_directory(self._root, names))
            self._names = names
        return self._descriptor

    def close(self) -> None:
        """Let the last one go."""
        self._names = None
        self._open.close()


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


def replace_file(root: Path, path: str, data: bytes, mode: int) -> os.stat_result:
    """Replace a file's bytes below the root, durably and at once; the folders above it are made.

    What is returned is the file as it was before it got its name, which changes its `st_ctime`.

    Raises:
        SafetyError: the path has a bad segment, or a directory of it is a link.
        NotADirectoryError: one of them is a file.

    """
    names, name = split_path(path)
    make_directories(root, names)
    with open_directory(root, names) as parent:
        temp = temp_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temp, flags, mode, dir_fd=parent)
        try:
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
                written = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temp, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temp, dir_fd=parent)
            raise
        os.fsync(parent)
    return written


def open_regular(name: str | Path, parent: int | None = None) -> int | None:
    """Return a descriptor of a regular file, or None if it is not there or something else, such as a link or a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would block us
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR}:
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def read_regular(path: Path) -> bytes | None:
    """Return the bytes of a regular file, or None if it is not there or something else, such as a folder or a pipe."""
    descriptor = open_regular(path)
    return None if descriptor is None else read_and_close(descriptor)


def read_and_close(descriptor: int, most: int = -1) -> bytes:
    """Return all bytes from a descriptor, or at most so many, and close it."""
    try:
        pieces: list[bytes] = []
        left = os.fstat(descriptor).st_size + 1  # one more, to see the end at once
        while most != 0 and (piece := os.read(descriptor, left if most < 0 else min(left, most))):
            pieces.append(piece)
            most -= len(piece) if most > 0 else 0
            left = max(left - len(piece), _PIECE_BYTES)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        os.close(descriptor)


def unsafe_path_error(path: str) -> SafetyError:
    """Return the complaint about a path that leads through a link or out of the root."""
    return SafetyError(
        Diagnostic(
            E_LINK,
            f"the path {path!r} leads through a link or out of the project",
            hint="replace the link by a real directory, or name another path",
        )
    )


def resolve_links(path: str, base: str, text_of: Callable[[str], str | None]) -> str | None:
    """Return where a path below a root leads to, link by link, as a path from the root; None where nothing is there.

    `base` is the root with a `/` at its end. `text_of` says where the link at a path leads to; empty for what is no
    link, None where nothing is. `..` is taken from where a link has led to, as the kernel does.

    Raises:
        SafetyError: a link leads out of the root or into a folder that is no input, or links lead in a circle.

    """
    waiting, done, followed = path.split("/"), list[str](), 0
    while waiting:
        name = waiting.pop(0)
        if name == ".." and not done:
            raise outside_link_error(path)
        if name == "..":
            done.pop()
        if name in ("", ".", ".."):
            continue
        text = text_of("/".join((*done, name)))
        if text is None:
            return None
        if not text:
            done.append(name)
            continue
        followed += 1
        if followed > MAX_LINKS:
            raise link_cycle_error(path)
        if text.startswith("/"):
            text, done = _from_root(path, base, text), []
        waiting = [*text.split("/"), *waiting]
    if not done or (followed and not FORBIDDEN_LINK_TARGETS.isdisjoint(done)):
        raise outside_link_error(path)
    return "/".join(done)


def _from_root(path: str, base: str, text: str) -> str:
    if not text.startswith(base):
        raise outside_link_error(path)
    return text.removeprefix(base)


def outside_link_error(path: str) -> SafetyError:
    """Return the complaint about a link among the inputs that leads where no input may be."""
    message = f"the link {path!r} leads out of the project, or into a folder of git or orch23"
    hint = f'copy what it leads to into the project; if a pattern finds it, exclude it: "!{path}"'
    return SafetyError(Diagnostic(E_LINK, message, hint=hint))


def link_cycle_error(path: str) -> SafetyError:
    """Return the complaint about a link among the inputs that leads to itself, or to a folder that it is in."""
    message = f"the link {path!r} leads in a circle"
    hint = f'remove it; if a pattern finds it, exclude it: "!{path}"'
    return SafetyError(Diagnostic(E_LINK, message, hint=hint))


def _enter(descriptor: int, name: str, path: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=descriptor)
    except NotADirectoryError:
        pass
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
            raise unsafe_path_error(path)
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
