"""A shared cache in a directory, such as a network share, in the layout of Bazel's disk cache.

Blobs are `cas/ab/<sha256>` and entries `ac/ab/<sha256>`. There are no locks, which network shares often do not have:
each file is written under another name in `tmp` and then linked to its name, which fails if the name exists.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from orch23.features.cache.bounds import (
    CHUNK_BYTES,
    MAX_ENTRY_BYTES,
    FileFault,
    WrongBytesError,
    checked_sha256,
    started,
    verified,
    whole_entry,
)
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault, SafetyError
from orch23.model.ports import ChunkSource
from orch23.store.safe_files import (
    DirectoryCache,
    closing,
    is_temp,
    open_directory,
    open_regular,
    open_temp,
    try_unlink,
    write_all,
)

_BLOBS, _ENTRIES, _TEMPS = "cas", "ac", "tmp"
_ABANDONED_S = 24 * 3600
"""The age of a temporary file whose process must have ended."""
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_OF_ONE_FILE = frozenset(
    {errno.EPERM, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENOTEMPTY, errno.EEXIST}
)
"""Errors of a path below the directory of all blobs or entries; others can be used."""
_TRANSIENT = frozenset({errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.EBUSY, errno.EIO})


def open_disk(path: str, _credentials: object) -> "DiskCache":
    """Return the cache in a directory; nothing is created yet."""
    return DiskCache(Path(path))


class DiskCache:
    """A shared cache in a directory. Files and directories in it get the permissions of that directory.

    Links in it are not followed. A file of a wrong type, or that this user cannot read, is not used. The next
    put replaces it, or raises FileFault: in a directory with the sticky bit, only the owner of a file can replace it.
    """

    def __init__(self, folder: Path) -> None:
        """Create nothing: the first put creates the directory, and removes temporary files of killed processes."""
        self._root = folder
        self._mode: int | None = None

    def entry(self, digest: Digest) -> bytes | None:
        """See the port."""
        with _faults():
            descriptor = self._open(_ENTRIES, digest)
            return None if descriptor is None else whole_entry(_chunks(descriptor, MAX_ENTRY_BYTES + 1))

    def put_entry(self, digest: Digest, data: bytes, *, replace: bool = False) -> None:
        """See the port."""
        with _faults():
            self._put(_ENTRIES, digest, lambda: (data,), lambda found: not replace and found.st_size <= MAX_ENTRY_BYTES)

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port."""
        with _faults(), contextlib.closing(DirectoryCache(self._root)) as directories:
            return [digest for digest in sorted(digests) if not self._has(directories, digest)]

    def blob(self, digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        """See the port."""
        with _faults():
            descriptor = self._open(_BLOBS, digest)
            if descriptor is None:
                return None
            os.lseek(descriptor, offset, os.SEEK_SET)
            # One byte more: the bytes of a file that is larger are wrong.
            return started(_chunks(descriptor, digest.size_bytes - offset + 1))

    def put_blob(self, digest: Digest, chunks: ChunkSource) -> None:
        """See the port."""
        with _faults():
            # One that is there already was stored meanwhile, or may have wrong bytes.
            self._put(
                _BLOBS, digest, chunks, lambda found: found.st_size == digest.size_bytes and self._is_right(digest)
            )

    def discard(self, digest: Digest) -> None:
        """Delete a blob, if this user may."""
        names, name = _place(_BLOBS, digest)
        with contextlib.suppress(OSError, SafetyError), open_directory(self._root, names) as parent:
            os.unlink(name, dir_fd=parent)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _open(self, kind: str, digest: Digest) -> int | None:
        names, name = _place(kind, digest)
        try:
            with self._of_one_file(kind, name), open_directory(self._root, names) as parent:
                descriptor = open_regular(name, parent)
                if descriptor is None:
                    os.stat(name, dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if descriptor is None:
            message = f"{kind}/{name[:2]}/{name}: not a regular file"
            raise FileFault(message)
        # Bazel removes the files that were not used for the longest time, and knows that by this time.
        with contextlib.suppress(OSError):
            os.utime(descriptor)
        return descriptor

    def _has(self, directories: DirectoryCache, digest: Digest) -> bool:
        names, name = _place(_BLOBS, digest)
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError, FileFault)
        with absent, self._of_one_file(_BLOBS, name):
            return _stays(name, directories.open(names), lambda found: found.st_size == digest.size_bytes)
        return False

    def _is_right(self, digest: Digest) -> bool:
        chunks = self.blob(digest)
        with contextlib.suppress(WrongBytesError):
            return chunks is not None and all(True for _ in verified(chunks, digest))
        return False

    @contextlib.contextmanager
    def _of_one_file(self, kind: str, name: str) -> Iterator[None]:
        """Raise FileFault for what is wrong with one file, or with the directory that has it and some others."""
        try:
            yield
        except (OSError, SafetyError) as error:
            if isinstance(error, OSError) and error.errno not in _OF_ONE_FILE:
                raise
            # It is the fault of the cache if no file of this kind can be used.
            with open_directory(self._root, (kind,)):
                message = f"{kind}/{name[:2]}/{name}: {_text(error)}"
                raise FileFault(message) from error

    def _put(self, kind: str, digest: Digest, chunks: ChunkSource, stays: Callable[[os.stat_result], bool]) -> None:
        names, name = _place(kind, digest)
        self._make_directories(names)
        with self._of_one_file(kind, name), open_directory(self._root, names) as parent:
            if not _stays(name, parent, stays):
                # An error of the temporary file is one of the cache.
                with _faults():
                    self._create(kind, name, parent, chunks(), stays)

    def _create(
        self, kind: str, name: str, parent: int, chunks: Iterable[bytes], stays: Callable[[os.stat_result], bool]
    ) -> None:
        with open_directory(self._root, (_TEMPS,)) as temps:
            descriptor, temp = open_temp("", self._permissions() & 0o666, temps)
            try:
                with closing(descriptor):
                    for chunk in chunks:
                        write_all(descriptor, chunk)
                    # The umask may have removed some. Not all network shares have permissions.
                    with contextlib.suppress(OSError):
                        os.fchmod(descriptor, self._permissions() & 0o666)
                with self._of_one_file(kind, name):
                    if not _linked(temp, temps, name, parent, stays):
                        _replace(temp, temps, name, parent)
            finally:
                try_unlink(temp, temps)

    def _make_directories(self, names: tuple[str, ...]) -> None:
        if self._mode is None:
            os.makedirs(self._root, exist_ok=True)
            self._make_directory((_TEMPS,))
            self._sweep()
        try:
            with open_directory(self._root, names):
                return
        except FileNotFoundError:
            for count in range(1, len(names) + 1):
                self._make_directory(names[:count])
        except (OSError, SafetyError):
            # The caller opens it, too.
            return

    def _make_directory(self, names: tuple[str, ...]) -> None:
        with open_directory(self._root, names[:-1]) as parent:
            try:
                os.mkdir(names[-1], dir_fd=parent)
            except FileExistsError:
                return
        # Not `chmod` by the name: it could be a link by now.
        with contextlib.suppress(OSError), open_directory(self._root, names) as created:
            os.fchmod(created, self._permissions())

    def _permissions(self) -> int:
        """Return the permissions of the directory: a group that shares it shares all files, whatever the umask is."""
        if self._mode is None:
            self._mode = stat.S_IMODE(os.stat(self._root).st_mode)
        return self._mode

    def _sweep(self) -> None:
        """Delete old temporary files. Their age is that by the clock of the file system, not by this machine's."""
        self._permissions()
        with open_directory(self._root, (_TEMPS,)) as temps:
            descriptor, probe = open_temp("", 0o600, temps)
            with closing(descriptor):
                now_s = os.fstat(descriptor).st_mtime
            try_unlink(probe, temps)
            for name in filter(is_temp, os.listdir(temps)):
                with contextlib.suppress(OSError):
                    if os.stat(name, dir_fd=temps, follow_symlinks=False).st_mtime < now_s - _ABANDONED_S:
                        try_unlink(name, temps)


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except SafetyError as error:
        raise CacheFault(_text(error)) from error
    except OSError as error:
        raise _fault(error) from error


def _fault(error: OSError) -> CacheFault:
    return CacheFault(_text(error), transient=error.errno in _TRANSIENT)


def _text(error: OSError | SafetyError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _place(kind: str, digest: Digest) -> tuple[tuple[str, str], str]:
    sha256 = checked_sha256(digest)
    return (kind, sha256[:2]), sha256


def _chunks(descriptor: int, size_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of an open file up to a size, and close it. A file that grows meanwhile is not read further."""
    with closing(descriptor):
        yield b""
        while size_bytes > 0:
            try:
                chunk = os.read(descriptor, min(size_bytes, CHUNK_BYTES))
            except OSError as error:
                raise _fault(error) from error
            if not chunk:
                return
            size_bytes -= len(chunk)
            yield chunk


def _stays(name: str, parent: int, stays: Callable[[os.stat_result], bool]) -> bool:
    """Return whether there is a regular file that must not be replaced: this user can read it, too."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not (stat.S_ISREG(found.st_mode) and stays(found)):
        return False
    return os.access(name, os.R_OK, dir_fd=parent, effective_ids=os.access in os.supports_effective_ids)


def _replace(temp: str, temps: int, name: str, parent: int) -> None:
    """Rename a file over another one, or over an empty directory."""
    try:
        os.rename(temp, name, src_dir_fd=temps, dst_dir_fd=parent)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=parent)
        os.rename(temp, name, src_dir_fd=temps, dst_dir_fd=parent)


def _linked(temp: str, temps: int, name: str, parent: int, stays: Callable[[os.stat_result], bool]) -> bool:
    """Give a file its name if no file has it, or one that stays; return False if a rename must do it."""
    try:
        os.link(temp, name, src_dir_fd=temps, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        return _stays(name, parent, stays)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without links, of two that write an entry at once the second may win.
        return _stays(name, parent, stays)
    return True
