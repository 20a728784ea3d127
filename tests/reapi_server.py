"""A server of the Remote Execution API on loopback, with Google's protobuf library, and with faults that a test sets.

It verifies uploads, and refuses results whose blobs it does not have. Large uploads can be resumed.
"""

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from backports import zstd

from tests.reapi_oracle import oracle_of

_BLOB = re.compile(r"(?:(.+)/)??(compressed-blobs/zstd|blobs)/([0-9a-f]{64})/(\d+)")
_UPLOAD = re.compile(r"(?:(.+)/)?uploads/([0-9a-f-]{36})/(compressed-blobs/zstd|blobs)/([0-9a-f]{64})/(\d+)")
_NOT_FOUND, _INVALID = 5, 3


class ReapiServer:
    """The server. `fault` returns the name of a status for a method, or an empty text."""

    def __init__(self) -> None:
        self.instance = "main/one"
        self.blobs: MutableMapping[str, bytes] = {}
        self.entries: dict[str, bytes] = {}
        self.partial: dict[str, bytearray] = {}
        self.calls: list[str] = []
        self.in_batches: list[str] = []
        """The SHA-256 of each blob that came in a batch."""
        self.status_of: Callable[[str], int] = lambda _sha256: 0
        """Returns the code of the status of one blob in a batch."""
        self.metadata: list[dict[str, str]] = []
        self.fault: Callable[[str], str] = lambda _method: ""
        self.replaced: Callable[[str, bytes], bytes] = lambda _method, reply: reply
        """Replaces the bytes of a reply."""
        self.breaks_after: list[int] = []
        """Of each further upload of a large blob: the bytes after which the connection breaks."""
        self.part_bytes = 1 << 20
        self.hanging, self.released = threading.Event(), threading.Event()
        """A call hangs by the fault HANG; what it waits for."""
        self.capabilities = oracle_of("CacheCapabilities")(
            digest_functions=[2, 1], action_cache_update_capabilities={"update_enabled": True}
        )
        self.compress: Callable[[bytes], bytes] = zstd.compress
        self.compressed: list[str] = []
        """The blobs of messages with several that came compressed."""
        self.complete: set[str] = set()
        """The names of the large uploads that have ended."""
        self.port = 0
        self.streams: dict[str, Callable[[bytes], Iterator[bytes]]] = {}
        """Further methods, whose replies are streams."""

    @property
    def url(self) -> str:
        """Return the URL of the cache."""
        return f"grpc://127.0.0.1:{self.port}/{self.instance}"

    def unary(self, method: str, request: bytes) -> bytes:
        """Return the reply to a request."""
        kinds = {"CancelOperation": "OperationRequest", "QueryWriteStatus": "ReadRequest"}
        kind = kinds.get(method, f"{method}Request")
        asked = oracle_of(kind).FromString(request)
        if method not in {"QueryWriteStatus", "CancelOperation"} and asked.instance_name != self.instance:
            raise Refusal(grpc.StatusCode.NOT_FOUND)
        answers: dict[str, Callable[[Any], Any]] = {
            "CancelOperation": self.cancel_operation,
            "GetCapabilities": self._get_capabilities,
            "GetActionResult": self._get_action_result,
            "UpdateActionResult": self._update_action_result,
            "FindMissingBlobs": self._find_missing_blobs,
            "BatchReadBlobs": self._batch_read_blobs,
            "BatchUpdateBlobs": self._batch_update_blobs,
            "QueryWriteStatus": self._query_write_status,
        }
        reply = answers[method](asked)
        return reply if isinstance(reply, bytes) else reply.SerializeToString()

    def read(self, request: bytes) -> Iterator[bytes]:
        """Yield the parts of a blob."""
        asked = oracle_of("ReadRequest").FromString(request)
        instance, kind, sha256, _ = self._matched(_BLOB, asked.resource_name)
        data = self.blobs.get(sha256)
        if instance != self.instance or data is None:
            raise Refusal(grpc.StatusCode.NOT_FOUND)
        data = data[asked.read_offset :]
        if self._is_compressed(kind):
            data = self.compress(data)
        for at in range(0, len(data), self.part_bytes):
            yield oracle_of("ReadResponse")(data=data[at : at + self.part_bytes]).SerializeToString()

    def write(self, requests: Iterable[bytes]) -> bytes:
        """Take the parts of a blob."""
        name, breaks_after = "", self.breaks_after.pop(0) if self.breaks_after else None
        for one in requests:
            request = oracle_of("WriteRequest").FromString(one)
            name = name or request.resource_name
            instance, _, kind, sha256, size = self._matched(_UPLOAD, name)
            is_compressed = self._is_compressed(kind)
            if sha256 in self.blobs and hashlib.sha256(self.blobs[sha256]).hexdigest() == sha256:
                committed = -1 if is_compressed else int(size)
                return bytes(oracle_of("WriteStatus")(committed_size=committed).SerializeToString())
            had = self.partial.setdefault(name, bytearray())
            if instance != self.instance or request.resource_name not in {"", name} or len(had) != request.write_offset:
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT)
            if breaks_after is not None and len(had) >= breaks_after:
                raise Refusal(grpc.StatusCode.UNAVAILABLE)
            had += request.data
            if request.finish_write:
                data = zstd.decompress(had) if is_compressed else bytes(had)
                if hashlib.sha256(data).hexdigest() != sha256 or len(data) != int(size):
                    raise Refusal(grpc.StatusCode.INVALID_ARGUMENT)
                self.blobs[sha256] = data
                self.complete.add(name)
                if breaks_after == len(had):
                    raise Refusal(grpc.StatusCode.UNAVAILABLE)
                return bytes(oracle_of("WriteStatus")(committed_size=len(had)).SerializeToString())
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT)

    def cancel_operation(self, _request: Any) -> Any:
        """Refuse: this server runs nothing."""
        raise Refusal(grpc.StatusCode.UNIMPLEMENTED)

    def _matched(self, pattern: re.Pattern[str], name: str) -> Any:
        found = pattern.fullmatch(name)
        if found is None:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT)
        return found.groups()

    def _is_compressed(self, kind: str) -> bool:
        if kind != "blobs" and 1 not in self.capabilities.supported_compressors:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT)
        return bool(kind != "blobs")

    def _has(self, digest: Any) -> bool:
        return len(self.blobs.get(digest.hash, b"")) == digest.size_bytes and digest.hash in self.blobs

    def _get_capabilities(self, _request: Any) -> Any:
        return oracle_of("ServerCapabilities")(cache_capabilities=self.capabilities)

    def _get_action_result(self, request: Any) -> bytes:
        if request.action_digest.hash not in self.entries:
            raise Refusal(grpc.StatusCode.NOT_FOUND)
        return self.entries[request.action_digest.hash]

    def _update_action_result(self, request: Any) -> Any:
        if not all(self._has(file.digest) for file in request.action_result.output_files):
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION)
        self.entries[request.action_digest.hash] = request.action_result.SerializeToString()
        return request.action_result

    def _find_missing_blobs(self, request: Any) -> Any:
        absent = [digest for digest in request.blob_digests if not self._has(digest)]
        return oracle_of("FindMissingBlobsResponse")(missing_blob_digests=absent)

    def _batch_read_blobs(self, request: Any) -> Any:
        reply = oracle_of("BatchReadBlobsResponse")()
        for digest in request.digests:
            one = reply.responses.add(digest=digest)
            one.status.code = self.status_of(digest.hash)
            if one.status.code:
                one.status.message = "not this one"
            elif digest.hash in self.blobs:
                one.data = self.blobs[digest.hash]
                if 1 in request.acceptable_compressors and 1 in self.capabilities.supported_compressors:
                    one.data, one.compressor = self.compress(one.data), 1
            else:
                one.status.code = _NOT_FOUND
        return reply

    def _batch_update_blobs(self, request: Any) -> Any:
        reply = oracle_of("BatchUpdateBlobsResponse")()
        for one in request.requests:
            made = reply.responses.add(digest=one.digest)
            self.in_batches.append(one.digest.hash)
            made.status.code = self.status_of(one.digest.hash)
            data = one.data
            if one.compressor and one.compressor not in self.capabilities.supported_batch_update_compressors:
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT)
            if one.compressor:
                self.compressed.append(one.digest.hash)
                data = zstd.decompress(data)
            if made.status.code:
                made.status.message = "not this one"
            elif hashlib.sha256(data).hexdigest() == one.digest.hash and len(data) == one.digest.size_bytes:
                self.blobs[one.digest.hash] = data
            else:
                made.status.code, made.status.message = _INVALID, "other bytes"
        return reply

    def _query_write_status(self, request: Any) -> Any:
        if request.resource_name not in self.partial:
            raise Refusal(grpc.StatusCode.NOT_FOUND)
        size, is_complete = len(self.partial[request.resource_name]), request.resource_name in self.complete
        return oracle_of("WriteStatus")(committed_size=size, complete=is_complete)


class Refusal(Exception):  # noqa: N818 - a status
    """The reply is a status."""

    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__(status.name)
        self.status = status


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, server: ReapiServer) -> None:
        self._server = server

    def service(self, details: Any) -> Any:
        server, method = self._server, details.method.rpartition("/")[2]
        server.calls.append(method)
        server.metadata.append(dict(details.invocation_metadata))

        def answer(request: Any, context: Any) -> bytes:
            with self._refusals(method, context):
                reply = server.write(request) if method == "Write" else server.unary(method, request)
            return server.replaced(method, reply)

        def parts(request: bytes, context: Any) -> Iterator[bytes]:
            with self._refusals(method, context):
                for part in server.read(request):
                    yield server.replaced(method, part)

        def stream(request: bytes, context: Any) -> Iterator[bytes]:
            with self._refusals(method, context):
                yield from server.streams[method](request)

        if method in server.streams:
            return grpc.unary_stream_rpc_method_handler(stream)
        if method == "Read":
            return grpc.unary_stream_rpc_method_handler(parts)
        if method == "Write":
            return grpc.stream_unary_rpc_method_handler(answer)
        return grpc.unary_unary_rpc_method_handler(answer)

    @contextlib.contextmanager
    def _refusals(self, method: str, context: Any) -> Iterator[None]:
        try:
            name = self._server.fault(method)
            if name == "HANG":
                self._server.hanging.set()
                self._server.released.wait()
            if name not in {"", "HANG"}:
                context.abort(*_status(grpc.StatusCode[name]))
            yield
        except Refusal as error:
            context.abort(*_status(error.status))


def _status(code: grpc.StatusCode) -> tuple[grpc.StatusCode, str]:
    return code, f"a {code.name}\x1b[31m\nmore"


@contextlib.contextmanager
def serving_reapi(
    credentials: Any = None,
    made: ReapiServer | None = None,
    port: int = 0,
    threads: int = 16,
    message_bytes: int = 4 << 20,
) -> Iterator[ReapiServer]:
    """Run a server for a while, encrypted if it gets credentials. It refuses requests larger than `message_bytes`."""
    made = made or ReapiServer()
    with ThreadPoolExecutor(threads) as pool:
        options = (
            ("grpc.so_reuseport", 0),
            ("grpc.max_send_message_length", 64 << 20),
            ("grpc.max_receive_message_length", message_bytes),
        )
        server = grpc.server(pool, (_Handler(made),), options=options)
        address = f"127.0.0.1:{port}"
        if credentials is None:
            made.port = server.add_insecure_port(address)
        else:
            made.port = server.add_secure_port(address, credentials)
        server.start()
        try:
            yield made
        finally:
            made.released.set()
            server.stop(0).wait()
