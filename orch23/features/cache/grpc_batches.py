"""Small blobs of a server of the Remote Execution API: several in one message, in both directions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from orch23.features.cache.bounds import BlobFault
from orch23.features.cache.compression import compressed, decompressed
from orch23.features.cache.grpc_calls import GrpcServer, StatusFault, TooLargeError, no_sense, status_fault, status_name
from orch23.features.cache.reapi.messages import (
    IDENTITY,
    ZSTD,
    BatchReadBlobsRequest,
    BatchReadBlobsResponse,
    BatchUpdateBlobsRequest,
    BatchUpdateBlobsResponse,
    BlobUpdate,
    DigestProto,
    RpcStatus,
    digest_proto,
)
from orch23.features.cache.reapi.wire import Proto
from orch23.model.digest import Digest

_STORAGE = "/build.bazel.remote.execution.v2.ContentAddressableStorage"
_BATCH_READ, _BATCH_UPDATE = f"{_STORAGE}/BatchReadBlobs", f"{_STORAGE}/BatchUpdateBlobs"

_MESSAGE_BYTES = 1 << 20
"""A quarter of what gRPC servers accept if they are not configured: nothing is known of a message until all is here."""
_ENVELOPE_BYTES = 4096
"""The maximum of the other fields of a message with one blob."""
_EACH_BYTES = 256
"""The maximum of the other fields of each further blob: its digest, lengths, and a short status."""
_BLOBS = 1000
"""The maximum number of blobs in one message."""
_OK, _NOT_FOUND = 0, 5
_Response = TypeVar("_Response", BatchReadBlobsResponse, BatchUpdateBlobsResponse)
_LOGIN = frozenset({7, 16})


class UnusableBatchesError(Exception):
    """The server does not know the calls, or does not take a message of the size that it stated."""


def batch_bytes(stated_bytes: int) -> int:
    """Return the maximum size of a blob in a message, by the maximum that the server states; 0 states none."""
    return (min(stated_bytes, _MESSAGE_BYTES) if stated_bytes > 0 else _MESSAGE_BYTES) - _ENVELOPE_BYTES


def grouped(digests: Iterable[Digest], limit_bytes: int) -> Sequence[Sequence[Digest]]:
    """Return digests in groups whose blobs fit into one message; one that is larger than the limit is alone."""
    large: list[list[Digest]] = []
    groups: list[list[Digest]] = []
    left_bytes = 0
    for digest in digests:
        needed_bytes = digest.size_bytes + _EACH_BYTES
        if digest.size_bytes > limit_bytes:
            large.append([digest])
            continue
        if not groups or needed_bytes > left_bytes or len(groups[-1]) == _BLOBS:
            groups.append([])
            left_bytes = limit_bytes
        groups[-1].append(digest)
        left_bytes -= needed_bytes
    return large + groups


def read_batch(
    server: GrpcServer, digests: Collection[Digest], *, accepts_compressed: bool
) -> Mapping[Digest, bytes | BlobFault | None]:
    """Return the blobs that the server has returned; None for one that it does not have.

    Raises:
        UnusableBatchesError, CacheFault: the call failed, or the reply makes no sense.
    """
    asked = {digest_proto(digest): digest for digest in digests}
    compressors = (ZSTD,) if accepts_compressed else ()
    request = BatchReadBlobsRequest(instance_name=server.name, digests=tuple(asked), acceptable_compressors=compressors)
    reply = _reply(server, _BATCH_READ, request, BatchReadBlobsResponse, asked)
    found: dict[Digest, bytes | BlobFault | None] = {}
    for one in reply.responses:
        digest = asked[one.digest or DigestProto()]
        if one.compressor not in {IDENTITY, *compressors}:
            no_sense(_BATCH_READ, "it has a compressed blob")
        fault = _fault(_BATCH_READ, one.status)
        if one.status is not None and one.status.code == _NOT_FOUND:
            found[digest] = None
        elif fault is not None:
            found[digest] = fault
        else:
            data = b"".join(decompressed((one.data,), digest.size_bytes)) if one.compressor == ZSTD else one.data
            found[digest] = data
    return found


def put_batch(server: GrpcServer, blobs: Mapping[Digest, bytes], *, is_compressed: bool) -> Mapping[Digest, BlobFault]:
    """Store blobs. Return why some were not stored.

    Raises:
        UnusableBatchesError, CacheFault: the call failed, or the reply makes no sense.
    """
    sent = {digest_proto(digest): digest for digest in blobs}
    updates = tuple(_update(proto, blobs[digest], is_compressed=is_compressed) for proto, digest in sent.items())
    request = BatchUpdateBlobsRequest(instance_name=server.name, requests=updates)
    reply = _reply(server, _BATCH_UPDATE, request, BatchUpdateBlobsResponse, sent)
    if len(reply.responses) != len(sent):
        no_sense(_BATCH_UPDATE, "it lacks digests")
    faults = {sent[one.digest or DigestProto()]: _fault(_BATCH_UPDATE, one.status) for one in reply.responses}
    return {digest: fault for digest, fault in faults.items() if fault is not None}


def _update(digest: DigestProto, data: bytes, *, is_compressed: bool) -> BlobUpdate:
    smaller = b"".join(compressed((data,))) if is_compressed else data
    if len(smaller) < len(data):
        return BlobUpdate(digest=digest, data=smaller, compressor=ZSTD)
    return BlobUpdate(digest=digest, data=data)


def _reply(
    server: GrpcServer, method: str, request: Proto, form: type[_Response], sent: Mapping[DigestProto, Digest]
) -> _Response:
    """Return the reply of the server, which is about digests that were sent."""
    try:
        reply = server.call(method, request, form, sum(digest.size_bytes for digest in sent.values()))
    except TooLargeError:
        raise UnusableBatchesError from None
    except StatusFault as error:
        # INVALID_ARGUMENT is the status of a batch that is larger than the server accepts, whatever it has stated.
        if error.name == "UNIMPLEMENTED" or (error.name == "INVALID_ARGUMENT" and len(sent) > 1):
            raise UnusableBatchesError from None
        raise
    replied = [one.digest for one in reply.responses]
    if len(set(replied)) != len(replied) or not sent.keys() >= set(replied) or not replied:
        no_sense(method, "it has other digests")
    return reply


def _fault(method: str, status: RpcStatus | None) -> BlobFault | None:
    """Return the fault of one blob, or raise one of all blobs."""
    if status is None or status.code == _OK:
        return None
    fault = status_fault(method, status_name(status.code), status.message)
    if status.code in _LOGIN:
        raise fault
    return BlobFault(fault.message, transient=fault.transient)
