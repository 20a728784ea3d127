"""Names and bounds of what a shared cache sends: nothing from it is trusted before it is verified.

Blobs are compressed with zstd (RFC 8878) for servers that can do it.
"""

import contextlib
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import CacheFault

if TYPE_CHECKING:
    from types import ModuleType

MAX_ENTRY_BYTES = 16 << 20
"""The maximum size of an entry. An ActionResult with 100,000 outputs has about this size."""
TOO_LARGE = f"its entry has more than {MAX_ENTRY_BYTES >> 20} MiB"
CHUNK_BYTES = 1 << 20
UNASKED_BYTES = 14_000
"""An upload up to this size takes no longer than a question: it fits into the first window of TCP."""
EMPTY = digest_bytes(b"")
"""Every cache has the empty blob: other clients of a cache may not upload it."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


_Result = TypeVar("_Result")


class BlobFault(CacheFault):
    """A shared cache refuses or does not return one blob, in a reply that makes sense: it works for others."""


class FileFault(BlobFault):
    """One file in a directory cannot be used. That costs no request, so a run may meet any number of them."""


class WrongBytesError(Exception):
    """The bytes of a blob do not have its digest."""


def whole_entry(chunks: Iterable[bytes]) -> bytes:
    """Return an entry.

    Raises:
        BlobFault: it is too large.
    """
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_ENTRY_BYTES:
            raise BlobFault(TOO_LARGE)
    return bytes(data)


def is_valid(digest: Digest) -> bool:
    """Return whether a digest is a SHA-256 in hex with a size. One of a forged entry may be a path."""
    return _SHA256.fullmatch(digest.sha256) is not None and digest.size_bytes >= 0


def larger(digests: Iterable[Digest]) -> list[Digest]:
    """Return the blobs that take longer to upload than to ask for, if each has a request of its own."""
    return [digest for digest in digests if digest.size_bytes > UNASKED_BYTES]


def checked_sha256(digest: Digest) -> str:
    """Return the SHA-256 of a digest, as a part of a path or a URL.

    Raises:
        CacheFault: it is not one.
    """
    if not is_valid(digest):
        message = f"{digest.sha256[:80]!r} is not a SHA-256"
        raise CacheFault(message)
    return digest.sha256


def guarded(call: Callable[[], _Result]) -> _Result:
    """Return the result of a call of a backend, whose unexpected exceptions are faults of the cache: no build fails.

    Raises:
        CacheFault: it raised one, or any other exception.
    """
    try:
        return call()
    except CacheFault:
        raise
    except Exception as error:
        # Without its text, which may contain a URL with a password.
        message = f"unexpected {type(error).__name__}"
        raise CacheFault(message) from error


@contextlib.contextmanager
def reading(chunks: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """Yield an iterator with the chunks of a backend; `guarded` has its exceptions. Close the backend's iterator."""
    try:
        yield iter(lambda: guarded(lambda: next(chunks, None)), None)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            with contextlib.suppress(CacheFault):
                guarded(close)


def started(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Return a generator after its first step, which must yield an empty chunk.

    Otherwise `close` would not run its `finally`: its file or connection would stay open.
    """
    next(chunks)
    return chunks


def opened(chunks: Iterator[bytes]) -> Iterator[bytes] | None:
    """Return a generator that yields two empty chunks before those of a blob; None if it yields only one."""
    return None if next(started(chunks), None) is None else chunks


def after(chunks: Iterable[bytes], offset: int) -> Iterator[bytes]:
    """Yield the bytes of some chunks from an offset on."""
    for chunk in chunks:
        skipped = min(offset, len(chunk))
        offset -= skipped
        if skipped < len(chunk):
            yield chunk[skipped:] if skipped else chunk


def verified(chunks: Iterable[bytes], digest: Digest) -> Iterator[bytes]:
    """Yield the chunks of a blob. The last one is yielded only if all of them have the digest.

    So a receiver that expects the size of the digest never gets a whole blob of wrong bytes.

    Raises:
        WrongBytesError: they do not have it, or are more bytes or fewer.
    """
    hasher, size_bytes = hashlib.sha256(), 0
    for chunk in chunks:
        hasher.update(chunk)
        size_bytes += len(chunk)
        if size_bytes > digest.size_bytes or (size_bytes == digest.size_bytes and hasher.hexdigest() != digest.sha256):
            raise WrongBytesError(digest.sha256)
        yield chunk
    if size_bytes != digest.size_bytes or hasher.hexdigest() != digest.sha256:
        raise WrongBytesError(digest.sha256)


@cache
def _zstd() -> "ModuleType | None":
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - only for a server that compresses
    else:
        try:
            from backports import zstd  # noqa: PLC0415 - an extra
        except ImportError:
            return None
    return zstd


def can_compress() -> bool:
    """Return whether this machine has a library for zstd."""
    return _zstd() is not None


def compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a frame with these chunks. The same chunks give the same bytes."""
    zstd = _zstd()
    assert zstd is not None
    compressor = zstd.ZstdCompressor()
    for chunk in chunks:
        if piece := compressor.compress(chunk):
            yield piece
    yield compressor.flush()


def decompressed(chunks: Iterable[bytes], size_bytes: int) -> Iterator[bytes]:
    """Yield what some frames contain, in pieces: one byte more than `size_bytes` at most.

    A small blob can contain terabytes. It ends where frames are damaged: the caller compares size and digest.
    """
    zstd = _zstd()
    assert zstd is not None
    left, decompressor = size_bytes + 1, zstd.ZstdDecompressor()
    for chunk in chunks:
        data = chunk
        while left > 0 and (data or not decompressor.needs_input):
            if decompressor.eof:
                # Frames can follow each other.
                decompressor = zstd.ZstdDecompressor()
            try:
                piece = decompressor.decompress(data, max_length=min(left, CHUNK_BYTES))
            except zstd.ZstdError:
                return
            data = decompressor.unused_data
            left -= len(piece)
            if piece:
                yield piece
            if decompressor.eof and not data:
                break
        if left <= 0:
            return
