"""Keep bytes under their sha256, and never give out others."""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from pathlib import Path
from typing import Protocol

from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.store.beneath import leaves, open_regular, read_all
from orch23.store.durable import (
    PRIVATE_FOLDER,
    discard,
    make_folder,
    open_temp,
    sweep_temps,
    sync_filesystem,
    write_all,
)

CHUNK_BYTES = 1 << 20
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file, copy on write
_NO_CLONE = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM})


class Hasher(Protocol):
    """What `pump` tells of every piece it copies."""

    def update(self, data: bytes, /) -> None:
        """Take the next bytes."""


class Contents:
    """Blobs by digest in `ab/<sha256>`, read-only, each verified whenever it is read.

    A put is not durable by itself: `sync` makes all puts before it durable, in one call.
    """

    def __init__(self, folder: Path) -> None:
        """Take the folder; it is made by the first put."""
        self._folder = folder
        self._verified: set[str] = set()
        self.read_from: set[Path] = set()
        self.healed: list[str] = []

    def path_of(self, digest: Digest) -> Path:
        """Return where the bytes of a digest are, or would be."""
        return self._folder / digest.sha256[:2] / digest.sha256

    def has(self, digest: Digest) -> bool:
        """Say whether there is a blob of that digest and size. Its bytes are verified when they are read."""
        try:
            return self.path_of(digest).stat().st_size == digest.size_bytes
        except OSError:
            return False

    def put_bytes(self, data: bytes) -> Digest:
        """Keep some bytes and return their digest."""
        digest = digest_bytes(data)
        if not self._holds(digest):
            make_folder(self._folder, PRIVATE_FOLDER)
            descriptor, temp = open_temp(self._folder, 0o444)
            try:
                try:
                    write_all(descriptor, data)
                finally:
                    os.close(descriptor)
                self._keep(temp, digest)
            except BaseException:
                discard(temp)
                raise
        return digest

    def put_file(self, path: Path) -> Digest:
        """Keep the bytes of a regular file and return their digest; the memory needed does not grow with the file.

        Raises:
            SafetyError: it is a link, or no regular file.

        """
        source = open_regular(path)
        if source is None:
            if not path.is_symlink() and not path.exists():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            raise leaves(str(path))
        if os.fstat(source).st_size <= CHUNK_BYTES:
            return self.put_bytes(read_all(source))
        try:
            return self._put_stream(source)
        finally:
            os.close(source)

    def read(self, digest: Digest) -> bytes:
        """Return the bytes of a digest.

        Raises:
            MissingBytesError: they are not there, or were damaged; a damaged blob is deleted.

        """
        source = open_regular(self.path_of(digest))
        if source is None:
            raise MissingBytesError(digest.sha256)
        data = read_all(source)
        self._judge(digest, hashlib.sha256(data).hexdigest())
        self.read_from.add(self.path_of(digest))
        return data

    def copy_to(self, digest: Digest, target: Path, *, executable: bool) -> None:
        """Make a file of these bytes; its blocks are shared where the filesystem can, its inode never is.

        Raises:
            MissingBytesError: the bytes are not there, or were damaged; the target is not left behind.

        """
        mode = 0o777 if executable else 0o666
        descriptor = create_file(target, mode)
        try:
            try:
                self.write_to(digest, descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            discard(target)
            raise

    def write_to(self, digest: Digest, descriptor: int) -> None:
        """Write the bytes of a digest to a new file that is open for writing.

        Raises:
            MissingBytesError: they are not there, or were damaged; what was written is then not to be used.

        """
        source = open_regular(self.path_of(digest))
        if source is None:
            raise MissingBytesError(digest.sha256)
        try:
            hasher = hashlib.sha256()
            pump(source, None if _clone(source, descriptor) else descriptor, hasher)
        finally:
            os.close(source)
        self._judge(digest, hasher.hexdigest())

    def sync(self) -> None:
        """Make everything that was put so far durable."""
        if self._folder.is_dir():
            sync_filesystem(self._folder)

    def delete_all(self) -> None:
        """Forget all bytes."""
        self._verified.clear()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._folder)

    def sweep(self) -> None:
        """Remove what killed processes left. Only for the holder of the build lock."""
        sweep_temps(self._folder)

    def _put_stream(self, source: int) -> Digest:
        make_folder(self._folder, PRIVATE_FOLDER)
        descriptor, temp = open_temp(self._folder, 0o444)
        try:
            try:
                hasher = hashlib.sha256()
                size = pump(source, descriptor, hasher)
            finally:
                os.close(descriptor)
            digest = Digest(hasher.hexdigest(), size)
            if self._holds(digest):
                discard(temp)
            else:
                self._keep(temp, digest)
        except BaseException:
            discard(temp)
            raise
        return digest

    def _keep(self, temp: Path, digest: Digest) -> None:
        path = self.path_of(digest)
        make_folder(path.parent, PRIVATE_FOLDER)
        temp.rename(path)
        self._verified.add(digest.sha256)

    def _holds(self, digest: Digest) -> bool:
        """Say whether the blob is there, and was good when this process last saw all of it."""
        if not self.has(digest):
            return False
        if digest.sha256 not in self._verified:
            with contextlib.suppress(MissingBytesError):
                self.read(digest)
        return digest.sha256 in self._verified

    def _judge(self, digest: Digest, found: str) -> None:
        if found == digest.sha256:
            self._verified.add(found)
            return
        self._verified.discard(digest.sha256)
        self.healed.append(f"{digest.sha256}: the stored bytes were damaged")
        discard(self.path_of(digest))
        raise MissingBytesError(digest.sha256)


def create_file(target: Path, mode: int) -> int:
    """Make a new file open for writing in place of what is there; a shared inode is never written through."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(target, flags, mode)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            target.unlink()


def pump(source: int, target: int | None, hasher: Hasher) -> int:
    """Read a descriptor to its end, in pieces, into a hasher and, if there is one, a target; return the size."""
    size = 0
    while piece := os.read(source, CHUNK_BYTES):
        hasher.update(piece)
        size += len(piece)
        if target is not None:
            write_all(target, piece)
    return size


def _clone(source: int, target: int) -> bool:
    """Share the source's blocks with the target, if this filesystem can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_CLONE:
            return False
        raise
    return True
