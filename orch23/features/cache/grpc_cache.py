"""A shared cache behind Bazel's Remote Execution API with gRPC, such as bazel-remote, Buildbarn or buildbox-casd.

The path of the URL is the name of the instance. Blobs are compressed if the server and this machine can do it.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from orch23.features.cache import grpc_streams
from orch23.features.cache.batches import RecentMisses
from orch23.features.cache.bounds import (
    TOO_LARGE,
    UNASKED_BYTES,
    BlobFault,
    can_compress,
    checked_sha256,
    compressed,
    decompressed,
    opened,
    whole_entry,
)
from orch23.features.cache.grpc_calls import (
    AbsentError,
    GrpcServer,
    StatusFault,
    TooLargeError,
    no_sense,
    status_fault,
    status_name,
)
from orch23.features.cache.reapi.messages import (
    IDENTITY,
    SHA256,
    ZSTD,
    ActionCacheUpdateCapabilities,
    ActionResultProto,
    BatchReadBlobsRequest,
    BatchReadBlobsResponse,
    BatchUpdateBlobsRequest,
    BatchUpdateBlobsResponse,
    BlobUpdate,
    CacheCapabilities,
    DigestProto,
    FindMissingBlobsRequest,
    FindMissingBlobsResponse,
    GetActionResultRequest,
    RpcStatus,
    UpdateActionResultRequest,
    digest_of,
    digest_proto,
)
from orch23.features.cache.reapi.wire import DecodeError, Proto, decode
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource

if TYPE_CHECKING:
    from orch23.features.cache.client_certificate import ClientCertificate
    from orch23.features.cache.registry import Credentials


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


_Result = TypeVar("_Result")

_API = "/build.bazel.remote.execution.v2"
_GET_RESULT = f"{_API}.ActionCache/GetActionResult"
_UPDATE_RESULT = f"{_API}.ActionCache/UpdateActionResult"
_FIND_MISSING = f"{_API}.ContentAddressableStorage/FindMissingBlobs"

_QUESTION_DIGESTS = 10_000
"""Digests in one question: less than 1 MB."""


def open_grpc(url: str, credentials: "Credentials", certificate: "ClientCertificate | None" = None) -> "GrpcCache":
    """Return the cache at a URL with `grpc` or `grpcs`; no connection is opened yet. `certificate` is for `grpcs`."""
    import grpc  # noqa: F401, PLC0415 - an extra: it must be there

    parts = urlsplit(url)
    trusted = None if parts.scheme.lower() == "grpc" else _root_certificates
    files = None if certificate is None else certificate.read()
    if files is not None and files.fault:
        raise CacheFault(files.fault)
    name = unquote(parts.path).strip("/")
    return GrpcCache(GrpcServer(f"dns:///{parts.netloc}", name, lambda: credentials(url), trusted, files))


def _root_certificates() -> bytes | None:
    """Return the certificates of this machine, or of SSL_CERT_FILE; None for those of the library."""
    import ssl  # noqa: PLC0415 - for an encrypted connection

    paths = ssl.get_default_verify_paths()
    # On Debian, only the directory is known; the library reads files.
    files = (Path(paths.cafile or "."), Path(paths.capath or ".", "ca-certificates.crt"))
    return next((path.read_bytes() for path in files if path.is_file()), None)


class GrpcCache:
    """A shared cache behind gRPC. What the server can do is asked once, before the first call."""

    def __init__(self, server: GrpcServer, *, takes_entries: bool = True) -> None:
        """Set the server. Without `takes_entries`, blobs are stored even if it takes no entries from this user."""
        self.server = server
        self._has_batches = True
        self._takes_entries = takes_entries
        self._misses = RecentMisses()
        self._lock = threading.Lock()
        self._known: CacheCapabilities | None = None

    def entry(self, digest: Digest) -> bytes | None:
        """See the port."""
        checked_sha256(digest)
        self._capabilities()
        request = GetActionResultRequest(instance_name=self.server.name, action_digest=digest_proto(digest))
        try:
            return whole_entry((self.server.unary_bytes(_GET_RESULT, request),))
        except AbsentError:
            self._misses.note(digest)
            return None
        except TooLargeError:
            raise BlobFault(TOO_LARGE) from None

    def put_entry(self, digest: Digest, data: bytes, *, replace: bool = False) -> None:
        """See the port. If two builds write within some seconds, the second entry may replace the first.

        An entry that is too large for a message of the server is not stored.
        """
        self._check_writable()
        if not replace and not self._misses.take(digest):
            with suppress(BlobFault):
                if self.entry(digest) is not None:
                    return
            self._misses.take(digest)
        try:
            result = decode(ActionResultProto, data)
        except DecodeError as error:
            message = f"an entry is not an ActionResult: {error}"
            raise CacheFault(message) from None
        request = UpdateActionResultRequest(
            instance_name=self.server.name, action_digest=digest_proto(digest), action_result=result
        )
        with suppress(TooLargeError):
            self.server.call(_UPDATE_RESULT, request, ActionResultProto, len(data))

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port."""
        asked = list(dict.fromkeys(digests))
        for digest in asked:
            checked_sha256(digest)
        self._capabilities()
        found: list[Digest] = []
        for start in range(0, len(asked), _QUESTION_DIGESTS):
            protos = tuple(map(digest_proto, asked[start : start + _QUESTION_DIGESTS]))
            request = FindMissingBlobsRequest(instance_name=self.server.name, blob_digests=protos)
            reply = self.server.call(_FIND_MISSING, request, FindMissingBlobsResponse)
            absent = set(reply.missing_blob_digests)
            if not absent <= set(protos):
                no_sense(_FIND_MISSING, "it has other digests")
            found += [digest_of(proto) for proto in protos if proto in absent]
        return found

    def worth_asking(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port. One request asks for all of them."""
        return digests if sum(digest.size_bytes for digest in digests) > UNASKED_BYTES else ()

    def blob(self, digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        """See the port."""
        checked_sha256(digest)
        return opened(self._chunks(digest, offset))

    def put_blob(self, digest: Digest, chunks: ChunkSource) -> None:
        """See the port. A small blob is one message; a large one is resumed if the connection is lost."""
        checked_sha256(digest)
        if self._takes_entries:
            self._check_writable()
        if self._is_small(digest):
            faults = self._put_batch({digest: b"".join(chunks())})
            if faults is not None:
                for fault in faults.values():
                    raise fault
                return
        is_compressed = self._compresses(self._capabilities().supported_compressors)
        grpc_streams.write(self.server, digest, chunks, is_compressed=is_compressed)

    def batches(self, digests: Collection[Digest]) -> Sequence[Sequence[Digest]]:
        """See the port. Before the server has stated its limits, each blob is alone."""
        if self._known is None or not self._has_batches:
            return [[digest] for digest in digests]
        return grouped(digests, self._batch_bytes())

    def read_batch(self, digests: Collection[Digest]) -> Mapping[Digest, bytes | None]:
        """See the port."""
        for digest in digests:
            checked_sha256(digest)
        found = self._read_batch(digests) or {}
        return {digest: one for digest, one in found.items() if not isinstance(one, CacheFault)}

    def put_batch(self, blobs: Mapping[Digest, bytes]) -> Collection[Digest]:
        """See the port."""
        for digest in blobs:
            checked_sha256(digest)
        if self._takes_entries:
            self._check_writable()
        faults = self._put_batch(blobs)
        return blobs.keys() if faults is None else faults.keys()

    def discard(self, digest: Digest) -> None:
        """Do nothing: the server verifies each upload."""

    def close(self) -> None:
        """Cancel all calls and close the connections."""
        self.server.close()

    def _chunks(self, digest: Digest, offset: int) -> Iterator[bytes]:
        """Yield two empty chunks before those of the blob; only one if there is none."""
        yield b""
        if self._is_small(digest):
            found = self._read_batch((digest,))
            if found is not None:
                data = found[digest]
                if isinstance(data, CacheFault):
                    raise data
                if data is not None:
                    yield b""
                    yield data[offset:]
                return
        is_compressed = self._compresses(self._capabilities().supported_compressors)
        yield from grpc_streams.read(self.server, digest, offset, is_compressed=is_compressed)

    def _is_small(self, digest: Digest) -> bool:
        return digest.size_bytes <= self._batch_bytes() and self._has_batches

    def _compresses(self, compressors: Collection[int]) -> bool:
        """Return whether blobs are sent with zstd: the server and this machine can do it."""
        return ZSTD in compressors and can_compress()

    def _read_batch(self, digests: Collection[Digest]) -> Mapping[Digest, bytes | BlobFault | None] | None:
        accepts = self._compresses(self._capabilities().supported_compressors)
        return self._in_batch(lambda: read_batch(self.server, digests, accepts_compressed=accepts))

    def _put_batch(self, blobs: Mapping[Digest, bytes]) -> Mapping[Digest, BlobFault] | None:
        compresses = self._compresses(self._capabilities().supported_batch_update_compressors)
        return self._in_batch(lambda: put_batch(self.server, blobs, is_compressed=compresses))

    def _in_batch(self, call: Callable[[], _Result]) -> _Result | None:
        """Return the result of a call with several blobs; None if this server cannot: they are streams from now on."""
        try:
            return call()
        except UnusableBatchesError:
            self._has_batches = False
            return None

    def _capabilities(self) -> CacheCapabilities:
        """Return what the server can do; raise if it has no cache, or not with SHA-256."""
        with self._lock:
            if self._known is None:
                found = self.server.capabilities().cache_capabilities
                if found is None or SHA256 not in found.digest_functions:
                    message = f"the server has no cache with SHA-256 and the name {self.server.name!r}"
                    raise CacheFault(message)
                self._known = found
            return self._known

    def _check_writable(self) -> None:
        can_update = self._capabilities().action_cache_update_capabilities or ActionCacheUpdateCapabilities()
        if not can_update.update_enabled:
            message = "the server takes no results from this user"
            raise CacheFault(message)

    def _batch_bytes(self) -> int:
        return batch_bytes(self._capabilities().max_batch_total_size_bytes)
