"""Store bytes by their SHA-256, and verify them when they are read."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.store.file_copy import CHUNK_BYTES, FileProgress, copy_and_hash, hash_file, no_progress
from orch23.store.safe_files import (
    PRIVATE_FOLDER_MODE,
    make_folder,
    open_regular,
    open_temp,
    read_and_close,
    sweep_temps,
    sync_filesystem,
    try_unlink,
    write_all,
)


class DiskContentStore:
    """Blobs by digest in `ab/<sha256>`, read-only, each verified whenever it is read.

    A put is not durable by itself: `sync` makes all puts before it durable, in one call.
    """

    def __init__(self, folder: Path, meter: FileProgress = no_progress) -> None:
        """Take the folder, made by the first put, and who is told how far copying and checking are."""
        self._folder = folder
        self._base = str(folder)
        self._made: set[str] = set()
        self._meter = meter
        self._verified: set[str] = set()
        self.read_digests: set[Digest] = set()
        self._damaged: set[str] = set()
        self.damaged: list[str] = []
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

    def put(self, data: bytes) -> Digest:
        """Store some bytes and return their digest."""
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
                try_unlink(temp)
                raise
        return digest

    def put_chunks(self, chunks: Iterable[bytes]) -> Digest:
        """Store what the chunks make together and return its digest. Nothing is stored if they raise."""

        def write(target: int) -> tuple[str, int]:
            hasher, size_bytes = hashlib.sha256(), 0
            for chunk in chunks:
                hasher.update(chunk)
                write_all(target, chunk)
                size_bytes += len(chunk)
            return hasher.hexdigest(), size_bytes

        return self._put_written(write)

    def adopt(self, descriptor: int, name: str = "") -> Digest:
        """Store the bytes of an open regular file, from its beginning, and return their digest.

        Blocks are shared where the file system can. The memory needed does not grow with the file.
        """
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes <= CHUNK_BYTES:
            return self.put(read_and_close(os.dup(descriptor)))
        advance = self._meter("copying", name, size_bytes)
        return self._put_written(lambda target: copy_and_hash(descriptor, target, advance))

    def get(self, digest: Digest) -> bytes:
        """Return the bytes of a digest.

        Raises:
            MissingBytesError: they are missing or damaged. Damaged bytes count as missing until they are put again.

        """
        source = self._open(digest)
        data = read_and_close(source)
        self._judge(digest, hashlib.sha256(data).hexdigest())
        self.read_digests.add(digest)
        return data

    def get_chunks(self, digest: Digest) -> Iterator[bytes]:
        """Yield the bytes of a digest in pieces. They are verified when the last one was yielded.

        Raises:
            MissingBytesError: as for `get`.

        """
        source = self._open(digest)
        try:
            hasher = hashlib.sha256()
            while chunk := os.read(source, CHUNK_BYTES):
                hasher.update(chunk)
                yield chunk
        finally:
            os.close(source)
        self._judge(digest, hasher.hexdigest())
        self.read_digests.add(digest)

    def copy_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        """Write the bytes of a digest to an empty file that is open for reading and writing.

        Blocks are shared where the file system can; the inode never is.

        Raises:
            MissingBytesError: they are missing or damaged. Delete the file: what was written is not verified.

        """
        source = self._open(digest)
        try:
            found, _ = copy_and_hash(source, descriptor, self._meter("copying", name, digest.size_bytes))
        finally:
            os.close(source)
        self._judge(digest, found)

    def check(self, digest: Digest) -> None:
        """Read all bytes of a digest, whatever was seen of them before, and keep none in memory.

        Raises:
            MissingBytesError: they are not there, or were damaged; a damaged blob is deleted.

        """
        source = self._open(digest)
        try:
            found, _ = hash_file(source, self._meter("checking", digest.sha256[:12], digest.size_bytes))
        finally:
            os.close(source)
        self._judge(digest, found)

    def sync(self) -> None:
        """Make everything that was put so far durable."""
        if self._folder.is_dir():
            sync_filesystem(self._folder)

    def delete(self, digest: Digest) -> None:
        """Forget the bytes of a digest; only for the holder of the build lock."""
        self._verified.discard(digest.sha256)
        try_unlink(self.path_of(digest))

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

    def _open(self, digest: Digest) -> int:
        source = open_regular(self._place(digest.sha256))
        if source is None:
            raise MissingBytesError(digest.sha256)
        return source

    def _put_written(self, write: Callable[[int], tuple[str, int]]) -> Digest:
        """Store what `write` writes to an empty file; it returns the sha256 and the size of that."""
        self._make_folders("")
        descriptor, temp = open_temp(self._base, 0o444)
        try:
            try:
                found = write(descriptor)
            finally:
                os.close(descriptor)
            digest = Digest(*found)
            if self._holds(digest):
                try_unlink(temp)
            else:
                self._keep(temp, digest)
        except BaseException:
            try_unlink(temp)
            raise
        return digest

    def _make_folders(self, name: str) -> None:
        """Make the folder of all blobs, and one in it; they last when `sync` is called, as what is put there does."""
        if name in self._made:
            return
        if not self._made:
            make_folder(self._folder, PRIVATE_FOLDER_MODE)
        if name:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{self._base}/{name}", PRIVATE_FOLDER_MODE)
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
            self.damaged.append(f"{digest.sha256}: the stored bytes were damaged")
        raise MissingBytesError(digest.sha256)
