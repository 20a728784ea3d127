"""A shared cache behind Bazel's Remote Execution API with gRPC, such as bazel-remote, Buildbarn or buildbox-casd.

The path of the URL is the name of the instance. Compressed blobs are not used.
"""

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar
from urllib.parse import unquote, urlsplit

from orch23.cache.bounds import CHUNK_BYTES, MAX_ENTRY_BYTES, checked_sha256, started
from orch23.cache.grpc_calls import CALL_S, AbsentError, GrpcCalls, TooLargeError, deadline_s, status_fault
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource
from orch23.reapi.messages import (
    SHA256,
    ActionCacheUpdateCapabilities,
    ActionResultProto,
    BatchReadBlobsRequest,
    BatchReadBlobsResponse,
    BatchUpdateBlobsRequest,
    BatchUpdateBlobsResponse,
    BlobUpdate,
    CacheCapabilities,
    FindMissingBlobsRequest,
    FindMissingBlobsResponse,
    GetActionResultRequest,
    GetCapabilitiesRequest,
    QueryWriteStatusRequest,
    QueryWriteStatusResponse,
    ReadRequest,
    ReadResponse,
    RpcStatus,
    ServerCapabilities,
    UpdateActionResultRequest,
    WriteRequest,
    WriteResponse,
    digest_of,
    digest_proto,
)
from orch23.reapi.wire import DecodeError, Message, decode

if TYPE_CHECKING:
    from typing import TypeAlias

    from orch23.cache.client_certificate import ClientCertificate

    Credentials: TypeAlias = Callable[[str], Mapping[str, str]]

M = TypeVar("M", bound=Message)

_API = "/build.bazel.remote.execution.v2"
_CAPABILITIES = f"{_API}.Capabilities/GetCapabilities"
_GET_RESULT = f"{_API}.ActionCache/GetActionResult"
_UPDATE_RESULT = f"{_API}.ActionCache/UpdateActionResult"
_FIND_MISSING = f"{_API}.ContentAddressableStorage/FindMissingBlobs"
_BATCH_READ = f"{_API}.ContentAddressableStorage/BatchReadBlobs"
_BATCH_UPDATE = f"{_API}.ContentAddressableStorage/BatchUpdateBlobs"
_READ, _WRITE = "/google.bytestream.ByteStream/Read", "/google.bytestream.ByteStream/Write"
_QUERY_WRITE = "/google.bytestream.ByteStream/QueryWriteStatus"

_BATCH_BYTES = 4 << 20
"""The maximum of a message that gRPC servers accept if they are not configured."""
_ENVELOPE_BYTES = 4096
"""The maximum of the other fields of a message with one blob."""
_QUESTION_DIGESTS = 10_000
"""Digests in one question: less than 1 MB."""
_RESUMED = 3
_OK, _NOT_FOUND = 0, 5
_CODES = {3: "INVALID_ARGUMENT", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 13: "INTERNAL", 14: "UNAVAILABLE"}


def open_grpc(url: str, credentials: "Credentials", certificate: "ClientCertificate | None" = None) -> "GrpcCache":
    """Return the cache at a URL with `grpc` or `grpcs`; no connection is opened yet. `certificate` is for `grpcs`."""
    import grpc  # noqa: F401, PLC0415 - an extra: it must be there

    parts = urlsplit(url)
    trusted = None if parts.scheme.lower() == "grpc" else _root_certificates
    files = None if certificate is None else certificate.read_valid()
    calls = GrpcCalls(f"dns:///{parts.netloc}", trusted, files)
    return GrpcCache(calls, unquote(parts.path).strip("/"), lambda: credentials(url))


def _root_certificates() -> bytes | None:
    """Return the certificates of this machine, or of SSL_CERT_FILE; None for those of the library."""
    import ssl  # noqa: PLC0415 - for an encrypted connection

    paths = ssl.get_default_verify_paths()
    # On Debian, only the directory is known; the library reads files.
    files = (Path(paths.cafile or "."), Path(paths.capath or ".", "ca-certificates.crt"))
    return next((path.read_bytes() for path in files if path.is_file()), None)


class GrpcCache:
    """A shared cache behind gRPC. What the server can do is asked once, before the first call."""

    def __init__(
        self,
        calls: GrpcCalls,
        instance: str,
        headers: Callable[[], Mapping[str, str]],
        *,
        takes_entries: bool = True,
    ) -> None:
        """Set the name of the instance, and what returns the headers that log in.

        A server that takes no entries from this user gets blobs only without `takes_entries`.
        """
        self.calls, self.instance, self.headers = calls, instance, headers
        self._takes_entries = takes_entries
        self._lock = threading.Lock()
        self._known: CacheCapabilities | None = None

    def entry(self, digest: Digest) -> bytes | None:
        """See the port."""
        checked_sha256(digest)
        self._capabilities()
        request = GetActionResultRequest(instance_name=self.instance, action_digest=digest_proto(digest))
        try:
            data = self.calls.unary_bytes(_GET_RESULT, request, self.headers(), CALL_S)
        except (AbsentError, TooLargeError):
            return None
        return data if len(data) <= MAX_ENTRY_BYTES else None

    def put_entry(self, digest: Digest, data: bytes, *, replace: bool = False) -> None:
        """See the port. The second of two writers at once may win.

        An entry that is too large for a message of the server is not stored.
        """
        self._check_writable()
        if not replace and self.entry(digest) is not None:
            return
        try:
            result = decode(ActionResultProto, data)
        except DecodeError as error:
            message = f"an entry is not an ActionResult: {error}"
            raise CacheFault(message) from None
        request = UpdateActionResultRequest(
            instance_name=self.instance, action_digest=digest_proto(digest), action_result=result
        )
        try:
            self._unary(_UPDATE_RESULT, request, ActionResultProto, len(data))
        except TooLargeError:
            return

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port."""
        asked = list(dict.fromkeys(digests))
        for digest in asked:
            checked_sha256(digest)
        self._capabilities()
        found: list[Digest] = []
        for start in range(0, len(asked), _QUESTION_DIGESTS):
            protos = tuple(map(digest_proto, asked[start : start + _QUESTION_DIGESTS]))
            request = FindMissingBlobsRequest(instance_name=self.instance, blob_digests=protos)
            reply = self._unary(_FIND_MISSING, request, FindMissingBlobsResponse)
            absent = set(reply.missing_blob_digests)
            if not absent <= set(protos):
                _refuse(_FIND_MISSING, "it has other digests")
            found += [digest_of(proto) for proto in protos if proto in absent]
        return found

    def blob(self, digest: Digest) -> Iterator[bytes] | None:
        """See the port."""
        checked_sha256(digest)
        chunks = started(self._chunks(digest))
        return None if next(chunks, None) is None else chunks

    def put_blob(self, digest: Digest, chunks: ChunkSource) -> None:
        """See the port. A small blob is one message; a large one is resumed if the connection is lost."""
        checked_sha256(digest)
        if self._takes_entries:
            self._check_writable()
        if digest.size_bytes > self._batch_bytes():
            self._write(digest, chunks)
            return
        update = BlobUpdate(digest=digest_proto(digest), data=b"".join(chunks()))
        request = BatchUpdateBlobsRequest(instance_name=self.instance, requests=(update,))
        reply = self._unary(_BATCH_UPDATE, request, BatchUpdateBlobsResponse, digest.size_bytes)
        if [one.digest for one in reply.responses] != [update.digest]:
            _refuse(_BATCH_UPDATE, "it has other digests")
        _check(_BATCH_UPDATE, reply.responses[0].status)

    def discard(self, digest: Digest) -> None:
        """Do nothing: the server verifies each upload."""

    def close(self) -> None:
        """Cancel all calls and close the connections."""
        self.calls.close()

    def _chunks(self, digest: Digest) -> Iterator[bytes]:
        """Yield two empty chunks before those of the blob; only one if there is none."""
        yield b""
        if digest.size_bytes <= self._batch_bytes():
            data = self._read_small(digest)
            if data is not None:
                yield b""
                yield data
            return
        name = f"{self._prefix()}blobs/{digest.sha256}/{digest.size_bytes}"
        request = ReadRequest(resource_name=name)
        replies = self.calls.read(_READ, request, ReadResponse, self.headers(), deadline_s(digest.size_bytes))
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
            _refuse(_READ, "a part of a blob is too large")
        finally:
            replies.close()

    def _read_small(self, digest: Digest) -> bytes | None:
        request = BatchReadBlobsRequest(instance_name=self.instance, digests=(digest_proto(digest),))
        reply = self._unary(_BATCH_READ, request, BatchReadBlobsResponse, digest.size_bytes)
        if [one.digest for one in reply.responses] != [digest_proto(digest)] or reply.responses[0].compressor:
            _refuse(_BATCH_READ, "it has other digests, or a compressed blob")
        (found,) = reply.responses
        if found.status is not None and found.status.code == _NOT_FOUND:
            return None
        _check(_BATCH_READ, found.status)
        # Some servers do not compare sizes.
        return found.data if len(found.data) == digest.size_bytes else None

    def _write(self, digest: Digest, chunks: ChunkSource) -> None:
        name = f"{self._prefix()}uploads/{uuid.uuid4()}/blobs/{digest.sha256}/{digest.size_bytes}"
        offset = 0
        for number in range(_RESUMED + 1):
            requests = _requests(name, digest.size_bytes, offset, chunks)
            limit_s = deadline_s(digest.size_bytes)
            try:
                reply = self.calls.write(_WRITE, requests, WriteResponse, self.headers(), limit_s)
            except (AbsentError, TooLargeError):
                _refuse(_WRITE, "the server does not take the blob")
            except CacheFault as fault:
                committed = self._committed(name) if fault.transient and number < _RESUMED else 0
                if committed == digest.size_bytes:
                    return
                if not offset < committed < digest.size_bytes:
                    raise
                offset = committed
                continue
            if reply.committed_size != digest.size_bytes:
                _refuse(_WRITE, f"{reply.committed_size} of {digest.size_bytes} bytes were stored")
            return

    def _committed(self, name: str) -> int:
        """Return how many bytes of an upload the server has; 0 if it does not know."""
        request = QueryWriteStatusRequest(resource_name=name)
        try:
            return self._unary(_QUERY_WRITE, request, QueryWriteStatusResponse).committed_size
        except CacheFault:
            return 0

    def _unary(self, method: str, request: Message, reply: type[M], size_bytes: int = 0) -> M:
        try:
            return self.calls.unary(method, request, reply, self.headers(), deadline_s(size_bytes))
        except AbsentError:
            raise status_fault(method, "NOT_FOUND", f"instance {self.instance!r}") from None

    def _capabilities(self) -> CacheCapabilities:
        """Return what the server can do.

        Raises:
            CacheFault: it has no cache, or not with SHA-256.

        """
        with self._lock:
            if self._known is None:
                request = GetCapabilitiesRequest(instance_name=self.instance)
                try:
                    reply = self.calls.unary(_CAPABILITIES, request, ServerCapabilities, self.headers(), CALL_S)
                except (AbsentError, TooLargeError):
                    reply = ServerCapabilities()
                if reply.cache_capabilities is None or SHA256 not in reply.cache_capabilities.digest_functions:
                    message = f"the server has no cache with SHA-256 and the name {self.instance!r}"
                    raise CacheFault(message)
                self._known = reply.cache_capabilities
            return self._known

    def _check_writable(self) -> None:
        can_update = self._capabilities().action_cache_update_capabilities or ActionCacheUpdateCapabilities()
        if not can_update.update_enabled:
            message = "the server takes no results from this user"
            raise CacheFault(message)

    def _batch_bytes(self) -> int:
        """Return the maximum size of a blob that is sent in one message."""
        known = self._capabilities().max_batch_total_size_bytes
        return min(known, _BATCH_BYTES) - _ENVELOPE_BYTES if known > 0 else _BATCH_BYTES - _ENVELOPE_BYTES

    def _prefix(self) -> str:
        return f"{self.instance}/" if self.instance else ""


def _requests(name: str, size_bytes: int, offset: int, chunks: ChunkSource) -> Iterator[WriteRequest]:
    """Yield the messages that write a blob from an offset on."""
    at = offset
    for piece in _from(chunks(), offset):
        is_last = at + len(piece) == size_bytes
        first = name if at == offset else ""
        yield WriteRequest(resource_name=first, write_offset=at, finish_write=is_last, data=piece)
        at += len(piece)


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


def _check(method: str, status: RpcStatus | None) -> None:
    if status is not None and status.code != _OK:
        raise status_fault(method, _CODES.get(status.code, f"status {status.code}"), status.message)


def _refuse(method: str, why: str) -> NoReturn:
    message = f"the reply to {method.rpartition('/')[2]} makes no sense: {why}"
    raise CacheFault(message)
