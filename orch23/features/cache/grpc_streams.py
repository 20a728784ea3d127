"""Large blobs of a server of the Remote Execution API: streams, of which an upload is resumed."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, islice

from orch23.features.cache.bounds import CHUNK_BYTES, after, compressed, decompressed
from orch23.features.cache.grpc_calls import AbsentError, GrpcServer, TooLargeError, deadline_s, no_sense
from orch23.features.cache.reapi.messages import ReadRequest, ReadResponse, WriteRequest, WriteStatus
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource

READ, _WRITE = "/google.bytestream.ByteStream/Read", "/google.bytestream.ByteStream/Write"
_QUERY_WRITE = "/google.bytestream.ByteStream/QueryWriteStatus"
_RESUMED = 3


def read(server: GrpcServer, digest: Digest, offset: int, *, is_compressed: bool) -> Iterator[bytes]:
    """Yield an empty chunk before those of a blob from an offset on; nothing if there is none."""
    # The offset is a position in the blob, also if it is sent compressed.
    request = ReadRequest(resource_name=server.prefix + _name(digest, is_compressed=is_compressed), read_offset=offset)
    replies = server.read(READ, request, ReadResponse, deadline_s(digest.size_bytes))
    try:
        waiting = [next(replies, ReadResponse()).data]
        yield b""
        parts = _parts(waiting, replies)
        yield from decompressed(parts, digest.size_bytes - offset) if is_compressed else parts
    except AbsentError:
        return
    except TooLargeError:
        no_sense(READ, "a part of a blob is too large")
    finally:
        replies.close()


def write(server: GrpcServer, digest: Digest, chunks: ChunkSource, *, is_compressed: bool) -> None:
    """Store a blob. If the connection is lost, the upload goes on where the server has it.

    Raises:
        CacheFault: the server does not take it.
        Exception: the chunks raised it.
    """
    name = f"{server.prefix}uploads/{uuid.uuid4()}/{_name(digest, is_compressed=is_compressed)}"
    # The size of a compressed upload is known at its end; -1 says that the server had the blob.
    stored = {digest.size_bytes, *((-1,) if is_compressed else ())}
    offset = 0
    for number in range(_RESUMED + 1):
        sent = after(compressed(chunks()) if is_compressed else chunks(), offset)
        pieces = (piece for chunk in sent for piece in _pieces(chunk))
        requests = _requests(name, offset, pieces, stored.add)
        limit_s = deadline_s(digest.size_bytes)
        try:
            reply = server.write(_WRITE, requests, WriteStatus, limit_s)
        except (AbsentError, TooLargeError):
            no_sense(_WRITE, "the server does not take the blob")
        except CacheFault as fault:
            found = WriteStatus()
            if fault.transient and number < _RESUMED:
                with suppress(CacheFault):
                    found = server.call(_QUERY_WRITE, ReadRequest(resource_name=name), WriteStatus)
            if found.complete or (not is_compressed and found.committed_size == digest.size_bytes):
                return
            if found.committed_size <= offset or (not is_compressed and found.committed_size > digest.size_bytes):
                raise
            offset = found.committed_size
            continue
        if reply.committed_size not in stored:
            no_sense(_WRITE, f"{reply.committed_size} of {digest.size_bytes} bytes were stored")
        return


def _name(digest: Digest, *, is_compressed: bool) -> str:
    folder = "compressed-blobs/zstd" if is_compressed else "blobs"
    return f"{folder}/{digest.sha256}/{digest.size_bytes}"


def _requests(
    name: str, offset: int, pieces: Iterator[bytes], on_end: Callable[[int], object]
) -> Iterator[WriteRequest]:
    """Yield the messages that write a blob from an offset on; `on_end` gets its size."""
    at, piece = offset, next(pieces, b"")
    for following in chain(pieces, (None,)):
        if following is None:
            on_end(at + len(piece))
        first = name if at == offset else ""
        yield WriteRequest(resource_name=first, write_offset=at, finish_write=following is None, data=piece)
        at, piece = at + len(piece), following or b""


def _parts(waiting: list[bytes], replies: Iterator[ReadResponse]) -> Iterator[bytes]:
    """Yield the bytes of a blob. While the next part comes, none is kept but the piece that the caller has."""
    while waiting:
        yield from _pieces(waiting.pop())
        waiting += (reply.data for reply in islice(replies, 1))


def _pieces(data: bytes) -> Iterator[bytes]:
    while data:
        piece, data = data[:CHUNK_BYTES], data[CHUNK_BYTES:]
        yield piece
