"""Compress and decompress blobs with zstd, for servers that can do it. Source: RFC 8878."""

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from orch23.features.cache.bounds import CHUNK_BYTES

if TYPE_CHECKING:
    from types import ModuleType


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
