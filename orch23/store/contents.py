"""Keep bytes under their sha256, and never give out others."""

import contextlib
import errno
import hashlib
import os
import shutil
from pathlib import Path

from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.store.beneath import leaves, open_regular, read_all
from orch23.store.clone import CHUNK_BYTES, copy_hashed, hash_file
from orch23.store.durable import (
    PRIVATE_FOLDER,
    discard,
    make_folder,
    open_temp,
    sweep_temps,
    sync_filesystem,
    write_all,
)
from orch23.store.meter import Meter, silent


class Contents:
    """Blobs by digest in `ab/<sha256>`, read-only, each verified whenever it is read.

    A put is not durable by itself: `sync` makes all puts before it durable, in one call.
    """

    def __init__(self, folder: Path, meter: Meter = silent) -> None:
        """Take the folder, made by the first put, and who is told how far copying and checking are."""
        self._folder = folder
        self._base = str(folder)
        self._made: set[str] = set()
        self._meter = meter
        self._verified: set[str] = set()
        self.read_from: set[Path] = set()
        self._damaged: set[str] = set()
        self.healed: list[str] = []
        self.added_bytes = 0

    @property
    def folder(self) -> Path:
        """Give the folder of all blobs."""
        return self._folder

    def path_of(self, digest: Digest) -> Path:
        """Return where the bytes of a digest are, or would be."""
        return self._folder / digest.sha256[:2] / digest.sha256

    def has(self, digest: Digest) -> bool:
        """Say whether there is a blob of that digest and size. Its bytes are verified when they are read."""
        if digest.sha256 in self._damaged:
            return False
        try:
            return os.stat(self._place(digest.sha256)).st_size == digest.size_bytes
        except OSError:
            return False

    def _place(self, sha256: str) -> str:
        return f"{self._base}/{sha256[:2]}/{sha256}"

    def put_bytes(self, data: bytes) -> Digest:
        """Keep some bytes and return their digest."""
        digest = digest_bytes(data)
        if not self._holds(digest):
            self._make_folders(digest.sha256[:2])
            descriptor, temp = open_temp(self._base, 0o444)
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
        try:
            return self.put_open(source, path.name)
        finally:
            os.close(source)

    def put_open(self, source: int, name: str) -> Digest:
        """Keep the bytes of an open regular file, from its beginning, and return their digest; `name` is what is told.

        The memory needed does not grow with the file.
        """
        if os.fstat(source).st_size <= CHUNK_BYTES:
            return self.put_bytes(read_all(os.dup(source)))
        return self._put_stream(source, name)

    def read(self, digest: Digest) -> bytes:
        """Return the bytes of a digest.

        Raises:
            MissingBytesError: they are not there, or were damaged: then they count as lost until they are put again.

        """
        source = open_regular(self._place(digest.sha256))
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
                self.write_to(digest, descriptor, target.name)
            finally:
                os.close(descriptor)
        except BaseException:
            discard(target)
            raise

    def write_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        """Write the bytes of a digest to a new file that is open for reading and writing; `name` is what it is told as.

        Raises:
            MissingBytesError: they are not there, or were damaged; what was written is then not to be used.

        """
        source = open_regular(self._place(digest.sha256))
        if source is None:
            raise MissingBytesError(digest.sha256)
        try:
            found, _ = copy_hashed(source, descriptor, self._meter("copying", name, digest.size_bytes))
        finally:
            os.close(source)
        self._judge(digest, found)

    def check(self, digest: Digest) -> None:
        """Read all bytes of a digest, whatever was seen of them before, and keep none in memory.

        Raises:
            MissingBytesError: they are not there, or were damaged; a damaged blob is deleted.

        """
        source = open_regular(self._place(digest.sha256))
        if source is None:
            raise MissingBytesError(digest.sha256)
        try:
            found, _ = hash_file(source, self._meter("checking", digest.sha256[:12], digest.size_bytes))
        finally:
            os.close(source)
        self._judge(digest, found)

    def sync(self) -> None:
        """Make everything that was put so far durable."""
        if self._folder.is_dir():
            sync_filesystem(self._folder)

    def drop(self, digest: Digest) -> None:
        """Forget the bytes of a digest; only for the holder of the build lock."""
        self._verified.discard(digest.sha256)
        discard(self.path_of(digest))

    def delete_all(self) -> None:
        """Forget all bytes."""
        self._verified.clear()
        self._damaged.clear()
        self._made.clear()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._folder)

    def sweep(self) -> None:
        """Remove what killed processes left. Only for the holder of the build lock."""
        sweep_temps(self._folder)

    def _put_stream(self, source: int, name: str) -> Digest:
        self._make_folders("")
        descriptor, temp = open_temp(self._base, 0o444)
        try:
            try:
                found = copy_hashed(source, descriptor, self._meter("copying", name, os.fstat(source).st_size))
            finally:
                os.close(descriptor)
            digest = Digest(*found)
            if self._holds(digest):
                discard(temp)
            else:
                self._keep(temp, digest)
        except BaseException:
            discard(temp)
            raise
        return digest

    def _make_folders(self, name: str) -> None:
        """Make the folder of all blobs, and one in it; they last when `sync` is called, as what is put there does."""
        if name in self._made:
            return
        if not self._made:
            make_folder(self._folder, PRIVATE_FOLDER)
        if name:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{self._base}/{name}", PRIVATE_FOLDER)
        self._made.add(name)

    def _keep(self, temp: str, digest: Digest) -> None:
        self._make_folders(digest.sha256[:2])
        os.rename(temp, self._place(digest.sha256))
        self._damaged.discard(digest.sha256)
        self._verified.add(digest.sha256)
        self.added_bytes += digest.size_bytes

    def _holds(self, digest: Digest) -> bool:
        """Say whether the blob is there, and was good when this process last saw all of it."""
        if not self.has(digest):
            return False
        if digest.sha256 not in self._verified:
            with contextlib.suppress(MissingBytesError):
                self.check(digest)
        return digest.sha256 in self._verified

    def _judge(self, digest: Digest, found: str) -> None:
        if found == digest.sha256:
            self._verified.add(found)
            return
        self._verified.discard(digest.sha256)
        if digest.sha256 not in self._damaged:  # whoever only looks must not remove it
            self._damaged.add(digest.sha256)
            self.healed.append(f"{digest.sha256}: the stored bytes were damaged")
        raise MissingBytesError(digest.sha256)


def create_file(target: Path, mode: int) -> int:
    """Make a new file open for reading and writing in place of what is there: no shared inode is written through."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(target, flags, mode)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            target.unlink()
