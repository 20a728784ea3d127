"""Hash and copy files: share blocks or copy in the kernel, keep holes, report progress.

No inode is ever shared: what a step writes to its copy changes nothing else. What is hashed of a copy is the copy, so
it is what its digest says whatever became of the source meanwhile. Memory does not grow with the file.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Literal, Protocol, TypeAlias

from orch23.store.safe_files import write_all

FileActivity: TypeAlias = Literal["hashing", "copying", "checking"]
AdvanceProgress: TypeAlias = Callable[[int], None]
"""Take how many bytes are done since the last call."""


class FileProgress(Protocol):
    """Whoever wants to know of the progress on files. May be called from any thread."""

    def __call__(self, verb: FileActivity, name: str, size_bytes: int, /) -> AdvanceProgress:
        """Take the beginning of the work on a file, and return what takes its progress."""


def no_progress(_verb: FileActivity, _name: str, _size_bytes: int) -> AdvanceProgress:
    """Tell nobody."""
    return _nothing


def _nothing(_size_bytes: int) -> None:
    """Take a step that nobody wants to know of."""


CHUNK_BYTES = 1 << 20
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file, copy on write
_NO_CLONE = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM})
_NO_RANGE = frozenset({*_NO_CLONE, errno.EBADF, errno.ETXTBSY})
_BLOCK_BYTES = 512  # what st_blocks counts, whatever the file system
_ZEROS = memoryview(bytes(CHUNK_BYTES))


def share_blocks(source: int, target: int) -> bool:
    """Make an empty file hold another's bytes by sharing its blocks; say whether the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_CLONE:
            return False
        raise
    return True


def hash_file(source: int, advance: AdvanceProgress) -> tuple[str, int]:
    """Return the sha256 and the size of all that is in an open file. Holes are hashed without being read."""
    size = os.fstat(source).st_size
    if size < CHUNK_BYTES:
        data = os.pread(source, size + 1, 0)
        if len(data) == size:
            advance(size)
            return hashlib.sha256(data).hexdigest(), size
    hasher = hashlib.sha256()
    view = memoryview(bytearray(min(size + 1, CHUNK_BYTES)))
    at = 0
    for start, end in _extents(source):
        at = _hash_hole(hasher, at, start, advance)
        while end is None or at < end:
            found = os.preadv(source, [view if end is None else view[: end - at]], at)
            if found == 0:  # the end, also where the file was cut off meanwhile
                break
            hasher.update(view[:found])
            at += found
            advance(found)
    return hasher.hexdigest(), at


def copy_and_hash(source: int, target: int, advance: AdvanceProgress) -> tuple[str, int]:
    """Make an empty file, open to be read and written, hold another's bytes; return its sha256 and its size."""
    if share_blocks(source, target):
        return hash_file(target, advance)
    size = os.fstat(source).st_size
    if size <= CHUNK_BYTES:
        return _copy_small(source, target, size, advance)
    hasher = hashlib.sha256()
    view = memoryview(bytearray(CHUNK_BYTES))
    at = 0
    for start, end in _extents(source):
        at = _hash_hole(hasher, at, start, advance)
        while end is None or at < end:
            found = _copy_piece(source, target, at, view if end is None else view[: end - at])
            if found == 0:
                break
            hasher.update(view[:found])
            at += found
            advance(found)
    os.ftruncate(target, at)
    return hasher.hexdigest(), at


def _copy_small(source: int, target: int, size: int, advance: AdvanceProgress) -> tuple[str, int]:
    pieces = []
    while piece := os.read(source, size + 1):
        pieces.append(piece)
        size = CHUNK_BYTES  # it grows while it is read: go on in pieces
    data = b"".join(pieces)
    write_all(target, data)
    advance(len(data))
    return hashlib.sha256(data).hexdigest(), len(data)


def _copy_piece(source: int, target: int, at: int, view: memoryview) -> int:
    """Copy one piece, and leave in `view` what the target now holds; return its size, 0 at the end."""
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


def _hash_hole(hasher: "hashlib._Hash", at: int, end: int, advance: AdvanceProgress) -> int:
    """Hash the zeros of a hole, and return where it ends."""
    while at < end:
        size = min(CHUNK_BYTES, end - at)
        hasher.update(_ZEROS[:size])
        advance(size)
        at += size
    return at


def _extents(source: int) -> Iterator[tuple[int, int | None]]:
    """Give where data begins and ends, in order, and last the end of the file; (0, None) where there are no holes."""
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
