"""Store bytes by their SHA-256, and verify them when they are read."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.snapshot.signatures import sha256, sha256_hex
from orch23.store.file_copy import CHUNK_BYTES, FileProgress, copy_and_hash, hash_file, no_progress
from orch23.store.safe_files import (
    PRIVATE_FOLDER_MODE,
    closing,
    make_folder,
    make_subfolder,
    open_regular,
    open_temp,
    read_and_close,
    sync_filesystem,
    try_unlink,
    write_all,
)

_MANY, _FACTOR = 3, 20


# SHA-256 and not a faster hash: hashing costs less than reading the file (ADR 1).
class DiskContentStore:
    """Stores blobs by digest in `ab/<sha256>`, read-only, and verifies a blob each time it is read.

    A put alone is not durable: `sync` makes all earlier puts durable in one call, since an fsync of each of thousands
    of small files takes longer than the build.
    """

    def __init__(self, folder: Path, meter: FileProgress = no_progress) -> None:
        """Create nothing: the first put creates the folder. `meter` receives the progress of copying and checking."""
        self.folder = folder
        self._base = str(folder)
        self._made: set[str] = set()
        self._meter = meter
        self._verified: set[str] = set()
        self.read_digests: set[Digest] = set()
        self._damaged: set[str] = set()
        self.damaged: list[str] = []
        self.added_bytes = 0

    def path_of(self, digest: Digest) -> Path:
        """Return where the bytes of a digest are, or would be."""
        return self.folder / digest.sha256[:2] / digest.sha256

    def has(self, digest: Digest) -> bool:
        """Return whether there is a blob of that digest and size. Its bytes are verified when they are read."""
        if digest.sha256 in self._damaged:
            return False
        try:
            return os.stat(self._blob_path(digest.sha256)).st_size == digest.size_bytes
        except OSError:
            return False

    def absent(self, digests: Iterable[Digest]) -> list[Digest]:
        """Return the digests for which `has` is false. Of many, the sizes of blobs are not compared."""
        groups, suspects, names = dict[str, list[Digest]](), list[Digest](), set[str]()
        for one in digests:
            groups.setdefault(one.sha256[:2], []).append(one)
        for group, some in groups.items():
            # Listing a folder takes less time than a stat of each blob, unless it has many others.
            if len(some) >= _MANY and len(names) < _FACTOR * len(some) and not self._damaged:
                with contextlib.suppress(OSError):
                    names = {*os.listdir(f"{self._base}/{group}")}
            suspects += [one for one in some if one.sha256 not in names]
        return [one for one in suspects if not self.has(one)]

    def _blob_path(self, sha256: str) -> str:
        # A string: building a Path takes longer than the `stat`, and plans test every blob.
        return f"{self._base}/{sha256[:2]}/{sha256}"

    def put(self, data: bytes) -> Digest:
        """Store some bytes and return their digest."""
        digest = digest_bytes(data)
        if not self._holds(digest):

            def write(target: int) -> tuple[str, int]:
                write_all(target, data)
                return digest.sha256, digest.size_bytes

            self._put_written(write, is_new=True)
        return digest

    def put_chunks(self, chunks: Iterable[bytes]) -> Digest:
        """Store the bytes of all chunks together and return their digest. Nothing is stored if the iteration raises."""

        def write(target: int) -> tuple[str, int]:
            hasher, size_bytes = sha256(size=CHUNK_BYTES), 0
            for chunk in chunks:
                hasher.update(chunk)
                write_all(target, chunk)
                size_bytes += len(chunk)
            return hasher.hexdigest(), size_bytes

        return self._put_written(write)

    def adopt(self, descriptor: int, name: str = "") -> Digest:
        """Store the bytes of an open regular file, from its beginning, and return their digest.

        Blocks are shared if the file system can. Memory use does not depend on the size of the file.
        """
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes <= CHUNK_BYTES:
            data = os.pread(descriptor, size_bytes + 1, 0)
            # One more byte was asked for: a read of exactly its size is the whole file.
            return self.put(data if len(data) == size_bytes else read_and_close(os.dup(descriptor)))
        advance = self._meter("copying", name, size_bytes)
        return self._put_written(lambda target: copy_and_hash(descriptor, target, advance))

    def get(self, digest: Digest) -> bytes:
        """Return the bytes of a digest.

        Raises:
            MissingBytesError: they are missing or damaged. Damaged bytes count as missing until they are put again.
        """
        data = read_and_close(self._open(digest))
        self._verify(digest, sha256_hex(data))
        self.read_digests.add(digest)
        return data

    def get_chunks(self, digest: Digest) -> Iterator[bytes]:
        """Yield the bytes of a digest in chunks. They are verified after the last one. Raises what `get` raises."""
        with closing(self._open(digest)) as source:
            hasher = sha256(size=digest.size_bytes)
            while chunk := os.read(source, CHUNK_BYTES):
                hasher.update(chunk)
                yield chunk
        self._verify(digest, hasher.hexdigest())
        self.read_digests.add(digest)

    def copy_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        """Write the bytes of a digest to an empty file that is open for reading and writing.

        Blocks are shared if the file system can; the inode never is.

        Raises:
            MissingBytesError: they are missing or damaged. The caller must delete the file, whose bytes are wrong.
        """
        with closing(self._open(digest)) as source:
            found, _ = copy_and_hash(source, descriptor, self._meter("copying", name, digest.size_bytes))
        self._verify(digest, found)

    def check(self, digest: Digest) -> None:
        """Read and verify all bytes of a digest, also if they were verified before.

        Raises:
            MissingBytesError: they are missing or damaged.
        """
        with closing(self._open(digest)) as source:
            found, _ = hash_file(source, self._meter("checking", digest.sha256[:12], digest.size_bytes))
        self._verify(digest, found)

    def sync(self) -> None:
        """Make all earlier puts durable."""
        if self.folder.is_dir():
            sync_filesystem(self.folder)

    def delete(self, digest: Digest) -> None:
        """Delete the bytes of a digest. The caller holds the build lock."""
        self._verified.discard(digest.sha256)
        try_unlink(self.path_of(digest))

    def _open(self, digest: Digest) -> int:
        source = open_regular(self._blob_path(digest.sha256))
        if source is None:
            raise MissingBytesError(digest.sha256)
        return source

    def _put_written(self, write: Callable[[int], tuple[str, int]], *, is_new: bool = False) -> Digest:
        """Store the bytes that `write` writes to an empty file; it returns their SHA-256 and size.

        With `is_new`, the caller has searched for a good blob of these bytes in vain.
        """
        self._make_folders("")
        descriptor, temp = open_temp(self._base, 0o444)
        try:
            try:
                digest = Digest(*write(descriptor))
            finally:
                os.close(descriptor)
            if not is_new and self._holds(digest):
                try_unlink(temp)
            else:
                self._rename(temp, digest)
        except BaseException:
            try_unlink(temp)
            raise
        return digest

    def _make_folders(self, name: str) -> None:
        """Create the folder of all blobs and one folder in it; `sync` makes both durable with the blobs in them."""
        if name in self._made:
            return
        if not self._made:
            make_folder(self.folder, PRIVATE_FOLDER_MODE)
        if name:
            make_subfolder(f"{self._base}/{name}", PRIVATE_FOLDER_MODE)
        self._made.add(name)

    def _rename(self, temp: str, digest: Digest) -> None:
        self._make_folders(digest.sha256[:2])
        os.rename(temp, self._blob_path(digest.sha256))
        self._damaged.discard(digest.sha256)
        self._verified.add(digest.sha256)
        self.added_bytes += digest.size_bytes

    def _holds(self, digest: Digest) -> bool:
        """Return whether the blob is there, and had the right bytes when this process last read all of them.

        A put must not skip a damaged blob: its bytes would be lost, although the caller has them.
        """
        if not self.has(digest):
            return False
        if digest.sha256 not in self._verified:
            with contextlib.suppress(MissingBytesError):
                self.check(digest)
        return digest.sha256 in self._verified

    def _verify(self, digest: Digest, found: str) -> None:
        if found == digest.sha256:
            self._verified.add(found)
            return
        self._verified.discard(digest.sha256)
        # The blob is not deleted here: a command that only reads must not change the store.
        if digest.sha256 not in self._damaged:
            self._damaged.add(digest.sha256)
            self.damaged.append(f"{digest.sha256}: the stored bytes were damaged")
        raise MissingBytesError(digest.sha256)
