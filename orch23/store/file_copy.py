"""Hash and copy files: share blocks or copy in the kernel, keep holes, report progress.

No inode is shared: a step that writes to its copy changes no other file. The bytes of the copy are hashed, not those of
the source, so the digest is right even if the source changes meanwhile. Memory use does not depend on the file size.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from typing import Literal, Protocol, TypeAlias

from orch23.snapshot.signatures import sha256, sha256_hex
from orch23.store.safe_files import write_all

FileActivity: TypeAlias = Literal["hashing", "copying", "checking"]
AdvanceProgress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes processed since the last call."""


class FileProgress(Protocol):
    """Receives the progress of work on files. May be called from any thread."""

    def __call__(self, verb: FileActivity, name: str, size_bytes: int, /) -> AdvanceProgress:
        """Begin the work on a file, and return the function that receives its progress."""


def no_progress(_verb: FileActivity, _name: str, _size_bytes: int) -> AdvanceProgress:
    """Report no progress."""
    return lambda _size_bytes: None


CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 1 << 14
# linux/fs.h: share the blocks of another file, copy on write.
_FICLONE = 0x40049409
_NO_CLONE = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM})
_NO_RANGE = frozenset({*_NO_CLONE, errno.EBADF, errno.ETXTBSY})
# What st_blocks counts, whatever the file system.
_BLOCK_BYTES = 512
_ZEROS = memoryview(bytes(CHUNK_BYTES))


def share_blocks(source: int, target: int) -> bool:
    """Let an empty file share the blocks of another file; return False if the file system cannot do it."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_CLONE:
            return False
        raise
    return True


def hash_file(source: int, advance: AdvanceProgress) -> tuple[str, int]:
    """Return the SHA-256 and the size of an open file. Holes are hashed without being read."""
    size = os.fstat(source).st_size
    if size < CHUNK_BYTES:
        data = os.pread(source, size + 1, 0)
        if len(data) == size:
            advance(size)
            return sha256_hex(data), size
    return _hash_pieces(source, size, lambda at, view: os.preadv(source, [view], at), advance)


def copy_and_hash(source: int, target: int, advance: AdvanceProgress) -> tuple[str, int]:
    """Copy an open file to an empty file, open for reading and writing; return the copy's SHA-256 and size."""
    size = os.fstat(source).st_size
    # A file of a few blocks is copied as fast as its blocks are shared, and most file systems cannot share them.
    if size > _SMALL_BYTES and share_blocks(source, target):
        return hash_file(target, advance)
    if size <= CHUNK_BYTES:
        return _copy_small(source, target, size, advance)
    sha256, size = _hash_pieces(source, size, lambda at, view: _copy_piece(source, target, at, view), advance)
    # The file may end with a hole.
    os.ftruncate(target, size)
    return sha256, size


def _hash_pieces(
    source: int, size: int, read: Callable[[int, memoryview], int], advance: AdvanceProgress
) -> tuple[str, int]:
    """Return the SHA-256 and the size of a file. `read` reads a piece of it at an offset, and returns its size."""
    hasher = sha256(size=size)
    view = memoryview(bytearray(min(size + 1, CHUNK_BYTES)))
    at = 0
    for start, end in _extents(source):
        at = _hash_hole(hasher.update, at, start, advance)
        while end is None or at < end:
            found = read(at, view if end is None else view[: end - at])
            if found == 0:
                # The end, also if the file was truncated meanwhile.
                break
            hasher.update(view[:found])
            at += found
            advance(found)
    return hasher.hexdigest(), at


def _copy_small(source: int, target: int, size: int, advance: AdvanceProgress) -> tuple[str, int]:
    # One more byte is asked for: a read of exactly its size is the whole file.
    data = os.read(source, size + 1)
    if len(data) != size:
        # It changes while it is read: continue in chunks, up to its end.
        data += b"".join(iter(lambda: os.read(source, CHUNK_BYTES), b""))
    write_all(target, data)
    advance(len(data))
    return sha256_hex(data), len(data)


def _copy_piece(source: int, target: int, at: int, view: memoryview) -> int:
    """Copy one chunk, and read it from the target into `view`; return its size, 0 at the end."""
    try:
        size = os.copy_file_range(source, target, len(view), at, at)
    except OSError as error:
        if error.errno not in _NO_RANGE:
            raise
        size = 0
    if size:
        return os.preadv(target, [view[:size]], at)
    size = os.preadv(source, [view], at)
    os.lseek(target, at, os.SEEK_SET)
    write_all(target, view[:size])
    return size


def _hash_hole(update: Callable[[memoryview], object], at: int, end: int, advance: AdvanceProgress) -> int:
    """Hash the zeros of a hole, and return where it ends."""
    while at < end:
        size = min(CHUNK_BYTES, end - at)
        update(_ZEROS[:size])
        advance(size)
        at += size
    return at


def _extents(source: int) -> Iterator[tuple[int, int | None]]:
    """Yield the start and end of each range of data, then the end of the file; (0, None) for a file without holes."""
    found = os.fstat(source)
    if found.st_size <= CHUNK_BYTES or found.st_blocks * _BLOCK_BYTES >= found.st_size:
        yield 0, None
        return
    at = 0
    while at < found.st_size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # nothing but a hole follows
        at = os.lseek(source, start, os.SEEK_HOLE)
        yield start, at
    yield found.st_size, found.st_size
