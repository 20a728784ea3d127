"""Open what lies below a root, component by component, without ever following a link."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import SafetyError
from orch23.model.own_files import NO_INPUTS
from orch23.store.codes import E_LINK
from orch23.store.durable import temp_name, write_all

_NOT_BELOW = frozenset({"", ".", ".."})
_PIECE_BYTES = 1 << 16
MOST_LINKS = 40  # as many as the kernel follows
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def split(path: str) -> tuple[tuple[str, ...], str]:
    """Return the directories and the name of a relative path.

    Raises:
        SafetyError: it is absolute, climbs, or has an empty segment.

    """
    names = tuple(path.split("/"))
    if not _NOT_BELOW.isdisjoint(names) or "\0" in path:
        raise leaves(path)
    return names[:-1], names[-1]


@contextlib.contextmanager
def directory(root: Path, names: Sequence[str]) -> Iterator[int]:
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
    with contextlib.suppress(FileNotFoundError), directory(root, names):
        return
    for count in range(len(names)):
        with directory(root, names[:count]) as parent, contextlib.suppress(FileExistsError):
            os.mkdir(names[count], dir_fd=parent)
    with directory(root, names):
        pass


class Directories:
    """Directories below a root, for one path after the other: the last one stays open while the next is the same.

    `close` it at the end. What it raises is what `directory` raises.
    """

    def __init__(self, root: Path) -> None:
        """Take the root; nothing is opened yet."""
        self._root = root
        self._open = contextlib.ExitStack()
        self._names: Sequence[str] | None = None
        self._descriptor = -1

    def enter(self, names: Sequence[str]) -> int:
        """Give a descriptor of a directory, which is good until another one is entered."""
        if names != self._names:
            self.close()
            self._descriptor = self._open.enter_context(directory(self._root, names))
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
    names, name = split(path)
    try:
        with directory(root, names) as parent:
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
    names, name = split(path)
    make_directories(root, names)
    with directory(root, names) as parent:
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
    return None if descriptor is None else read_all(descriptor)


def read_all(descriptor: int, most: int = -1) -> bytes:
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


def leaves(path: str) -> SafetyError:
    """Return the complaint about a path that leads through a link or out of the root."""
    return SafetyError(
        Diagnostic(
            E_LINK,
            f"the path {path!r} leads through a link or out of the project",
            hint="replace the link by a real directory, or name another path",
        )
    )


def follow(path: str, base: str, text_of: Callable[[str], str | None]) -> str | None:
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
            raise leads_out(path)
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
        if followed > MOST_LINKS:
            raise circle(path)
        if text.startswith("/"):
            text, done = _from_root(path, base, text), []
        waiting = [*text.split("/"), *waiting]
    if not done or (followed and not NO_INPUTS.isdisjoint(done)):
        raise leads_out(path)
    return "/".join(done)


def _from_root(path: str, base: str, text: str) -> str:
    if not text.startswith(base):
        raise leads_out(path)
    return text.removeprefix(base)


def leads_out(path: str) -> SafetyError:
    """Return the complaint about a link among the inputs that leads where no input may be."""
    message = f"the link {path!r} leads out of the project, or into a folder of git or orch23"
    hint = f'copy what it leads to into the project; if a pattern finds it, exclude it: "!{path}"'
    return SafetyError(Diagnostic(E_LINK, message, hint=hint))


def circle(path: str) -> SafetyError:
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
            raise leaves(path)
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
