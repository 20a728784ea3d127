"""Large blobs of a server of the Remote Execution API: streams, of which an upload is resumed."""

import uuid
from collections.abc import Iterable, Iterator
from itertools import islice

from orch23.cache.bounds import CHUNK_BYTES
from orch23.cache.grpc_calls import AbsentError, Instance, TooLargeError, deadline_s, no_sense
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource
from orch23.reapi.messages import (
    QueryWriteStatusRequest,
    QueryWriteStatusResponse,
    ReadRequest,
    ReadResponse,
    WriteRequest,
    WriteResponse,
)

_READ, _WRITE = "/google.bytestream.ByteStream/Read", "/google.bytestream.ByteStream/Write"
_QUERY_WRITE = "/google.bytestream.ByteStream/QueryWriteStatus"
_RESUMED = 3


def read(server: Instance, digest: Digest) -> Iterator[bytes]:
    """Yield an empty chunk before those of a blob; nothing if there is none."""
    name = f"{server.prefix}blobs/{digest.sha256}/{digest.size_bytes}"
    request = ReadRequest(resource_name=name)
    replies = server.calls.read(_READ, request, ReadResponse, server.headers(), deadline_s(digest.size_bytes))
    try:
        waiting = [next(replies, ReadResponse()).data]
        yield b""
        # While the next part comes, no part is kept but the piece that the caller has.
        while waiting:
            yield from _pieces(waiting.pop())
            waiting += (reply.data for reply in islice(replies, 1))
    except AbsentError:
        return
    except TooLargeError:
        no_sense(_READ, "a part of a blob is too large")
    finally:
        replies.close()


def write(server: Instance, digest: Digest, chunks: ChunkSource) -> None:
    """Store a blob. If the connection is lost, the upload goes on where the server has it.

    Raises:
        CacheFault: the server does not take it.
        Exception: the chunks raised it.

    """
    name = f"{server.prefix}uploads/{uuid.uuid4()}/blobs/{digest.sha256}/{digest.size_bytes}"
    offset = 0
    for number in range(_RESUMED + 1):
        requests = _requests(name, digest.size_bytes, offset, chunks)
        limit_s = deadline_s(digest.size_bytes)
        try:
            reply = server.calls.write(_WRITE, requests, WriteResponse, server.headers(), limit_s)
        except (AbsentError, TooLargeError):
            no_sense(_WRITE, "the server does not take the blob")
        except CacheFault as fault:
            committed = _committed(server, name) if fault.transient and number < _RESUMED else 0
            if committed == digest.size_bytes:
                return
            if not offset < committed < digest.size_bytes:
                raise
            offset = committed
            continue
        if reply.committed_size != digest.size_bytes:
            no_sense(_WRITE, f"{reply.committed_size} of {digest.size_bytes} bytes were stored")
        return


def _committed(server: Instance, name: str) -> int:
    """Return how many bytes of an upload the server has; 0 if it does not know."""
    request = QueryWriteStatusRequest(resource_name=name)
    try:
        return server.unary(_QUERY_WRITE, request, QueryWriteStatusResponse).committed_size
    except CacheFault:
        return 0


def _requests(name: str, size_bytes: int, offset: int, chunks: ChunkSource) -> Iterator[WriteRequest]:
    """Yield the messages that write a blob from an offset on."""
    at = offset
    for piece in _from(chunks(), offset):
        is_last = at + len(piece) == size_bytes
        first = name if at == offset else ""
        yield WriteRequest(resource_name=first, write_offset=at, finish_write=is_last, data=piece)
        at += len(piece)
    if not size_bytes:
        yield WriteRequest(resource_name=name, finish_write=True)


def _from(chunks: Iterable[bytes], offset: int) -> Iterator[bytes]:
    """Yield the bytes from an offset on, in pieces that a message can have."""
    for chunk in chunks:
        skipped = min(offset, len(chunk))
        offset -= skipped
        yield from _pieces(chunk[skipped:])


def _pieces(data: bytes) -> Iterator[bytes]:
    while data:
        piece, data = data[:CHUNK_BYTES], data[CHUNK_BYTES:]
        yield piece
