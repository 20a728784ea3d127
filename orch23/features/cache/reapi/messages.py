"""The messages of REAPI v2, of google.bytestream and of google.rpc that orch23 sends or reads.

Fields that orch23 does not use are left out. A message ends with `Proto` if another class of orch23 has its name.
"""

from typing import Annotated, Final

from orch23.features.cache.reapi.wire import INT32, Proto, refuse
from orch23.model.digest import Digest

SHA256: Final = 1
"""DigestFunction: SHA-256."""
IDENTITY, ZSTD = 0, 1
"""Compressor: none, or zstd."""

_HEX: Final = frozenset("0123456789abcdef")
_HEX_DIGITS: Final = 64


class DigestProto(Proto, frozen=True, kw_only=True):
    """Identifies a blob."""

    hash: Annotated[str, 1] = ""
    size_bytes: Annotated[int, 2] = 0


def digest_proto(digest: Digest) -> DigestProto:
    """Return a digest as a message."""
    return DigestProto(hash=digest.sha256, size_bytes=digest.size_bytes)


def digest_of(proto: DigestProto | None) -> Digest:
    """Return the digest that a message is.

    Raises:
        DecodeError: it is missing, or not a SHA-256.
    """
    if proto is None or len(proto.hash) != _HEX_DIGITS or not _HEX.issuperset(proto.hash) or proto.size_bytes < 0:
        refuse("a digest is missing, or not a SHA-256 with a size")
    return Digest(proto.hash, proto.size_bytes)


EMPTY_BLOB: Final = Digest("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 0)
"""The digest of no bytes, and of an empty Directory."""


class Duration(Proto, frozen=True, kw_only=True):
    """A time in seconds and nanoseconds."""

    seconds: Annotated[int, 1] = 0
    nanos: Annotated[int, 2, INT32] = 0


class Property(Proto, frozen=True, kw_only=True):
    """A property that a worker must have, or an environment variable: both have these fields."""

    name: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


class Platform(Proto, frozen=True, kw_only=True):
    """What a worker must have; sorted by name."""

    properties: Annotated[tuple[Property, ...], 1] = ()


class Command(Proto, frozen=True, kw_only=True):
    """Arguments and environment of a process. Output paths are relative to the working directory, and sorted."""

    arguments: Annotated[tuple[str, ...], 1] = ()
    environment_variables: Annotated[tuple[Property, ...], 2] = ()
    platform: Annotated[Platform | None, 5] = None
    working_directory: Annotated[str, 6] = ""
    output_paths: Annotated[tuple[str, ...], 7] = ()


class FileNode(Proto, frozen=True, kw_only=True):
    """A file in a directory."""

    name: Annotated[str, 1] = ""
    digest: Annotated[DigestProto | None, 2] = None
    is_executable: Annotated[bool, 4] = False


class DirectoryNode(Proto, frozen=True, kw_only=True):
    """A directory in a directory: the digest of its Directory."""

    name: Annotated[str, 1] = ""
    digest: Annotated[DigestProto | None, 2] = None


class SymlinkNode(Proto, frozen=True, kw_only=True):
    """A symbolic link in a directory. The target is relative to this directory."""

    name: Annotated[str, 1] = ""
    target: Annotated[str, 2] = ""


class Directory(Proto, frozen=True, kw_only=True):
    """A directory; each of the lists is sorted by name."""

    files: Annotated[tuple[FileNode, ...], 1] = ()
    directories: Annotated[tuple[DirectoryNode, ...], 2] = ()
    symlinks: Annotated[tuple[SymlinkNode, ...], 3] = ()


class Tree(Proto, frozen=True, kw_only=True):
    """A directory with all directories in it, as the value of an output directory."""

    root: Annotated[Directory | None, 1] = None
    children: Annotated[tuple[Directory, ...], 2] = ()


class ActionProto(Proto, frozen=True, kw_only=True):
    """A command with its input tree. Its digest is the key of its result."""

    command_digest: Annotated[DigestProto | None, 1] = None
    input_root_digest: Annotated[DigestProto | None, 2] = None
    timeout: Annotated[Duration | None, 6] = None
    do_not_cache: Annotated[bool, 7] = False
    salt: Annotated[bytes, 9] = b""
    platform: Annotated[Platform | None, 10] = None


class OutputFile(Proto, frozen=True, kw_only=True):
    """A file of a result. `contents` may have its bytes."""

    path: Annotated[str, 1] = ""
    digest: Annotated[DigestProto | None, 2] = None
    is_executable: Annotated[bool, 4] = False
    contents: Annotated[bytes, 5] = b""


class OutputDirectory(Proto, frozen=True, kw_only=True):
    """A directory of a result: the digest of a Tree."""

    path: Annotated[str, 1] = ""
    tree_digest: Annotated[DigestProto | None, 3] = None


class OutputSymlink(Proto, frozen=True, kw_only=True):
    """A symbolic link of a result."""

    path: Annotated[str, 1] = ""
    target: Annotated[str, 2] = ""


class ExecutedActionMetadata(Proto, frozen=True, kw_only=True):
    """Which worker ran an action."""

    worker: Annotated[str, 1] = ""


class ActionResultProto(Proto, frozen=True, kw_only=True):
    """The result of an action."""

    output_files: Annotated[tuple[OutputFile, ...], 2] = ()
    output_directories: Annotated[tuple[OutputDirectory, ...], 3] = ()
    exit_code: Annotated[int, 4, INT32] = 0
    stdout_raw: Annotated[bytes, 5] = b""
    stdout_digest: Annotated[DigestProto | None, 6] = None
    stderr_raw: Annotated[bytes, 7] = b""
    stderr_digest: Annotated[DigestProto | None, 8] = None
    execution_metadata: Annotated[ExecutedActionMetadata | None, 9] = None
    output_symlinks: Annotated[tuple[OutputSymlink, ...], 12] = ()


class AnyProto(Proto, frozen=True, kw_only=True):
    """google.protobuf.Any: a message with the URL of its type."""

    type_url: Annotated[str, 1] = ""
    value: Annotated[bytes, 2] = b""


class RpcStatus(Proto, frozen=True, kw_only=True):
    """google.rpc.Status: the result of a call or of one part of it; code 0 is success."""

    code: Annotated[int, 1, INT32] = 0
    message: Annotated[str, 2] = ""
    details: Annotated[tuple[AnyProto, ...], 3] = ()


class PreconditionViolation(Proto, frozen=True, kw_only=True):
    """google.rpc.PreconditionFailure.Violation: of the type MISSING, with a blob as its subject."""

    type: Annotated[str, 1] = ""
    subject: Annotated[str, 2] = ""


class PreconditionFailure(Proto, frozen=True, kw_only=True):
    """google.rpc.PreconditionFailure: the detail of a status with the code FAILED_PRECONDITION."""

    violations: Annotated[tuple[PreconditionViolation, ...], 1] = ()


class _OfInstance(Proto, frozen=True, kw_only=True):
    """A request for an instance of a server."""

    instance_name: Annotated[str, 1] = ""


class FindMissingBlobsRequest(_OfInstance, frozen=True, kw_only=True):
    """Asks which blobs are missing."""

    blob_digests: Annotated[tuple[DigestProto, ...], 2] = ()


class FindMissingBlobsResponse(Proto, frozen=True, kw_only=True):
    """The blobs that are missing."""

    missing_blob_digests: Annotated[tuple[DigestProto, ...], 2] = ()


class BlobUpdate(Proto, frozen=True, kw_only=True):
    """BatchUpdateBlobsRequest.Request: a blob to store."""

    digest: Annotated[DigestProto | None, 1] = None
    data: Annotated[bytes, 2] = b""
    compressor: Annotated[int, 3, INT32] = 0


class BatchUpdateBlobsRequest(_OfInstance, frozen=True, kw_only=True):
    """Stores small blobs."""

    requests: Annotated[tuple[BlobUpdate, ...], 2] = ()


class BlobUpdated(Proto, frozen=True, kw_only=True):
    """BatchUpdateBlobsResponse.Response: whether a blob was stored."""

    digest: Annotated[DigestProto | None, 1] = None
    status: Annotated[RpcStatus | None, 2] = None


class BatchUpdateBlobsResponse(Proto, frozen=True, kw_only=True):
    """Which small blobs were stored."""

    responses: Annotated[tuple[BlobUpdated, ...], 1] = ()


class BatchReadBlobsRequest(_OfInstance, frozen=True, kw_only=True):
    """Asks for small blobs."""

    digests: Annotated[tuple[DigestProto, ...], 2] = ()
    acceptable_compressors: Annotated[tuple[int, ...], 3, INT32] = ()


class BlobRead(Proto, frozen=True, kw_only=True):
    """BatchReadBlobsResponse.Response: a blob, or why it was not read."""

    digest: Annotated[DigestProto | None, 1] = None
    data: Annotated[bytes, 2] = b""
    status: Annotated[RpcStatus | None, 3] = None
    compressor: Annotated[int, 4, INT32] = 0


class BatchReadBlobsResponse(Proto, frozen=True, kw_only=True):
    """Small blobs."""

    responses: Annotated[tuple[BlobRead, ...], 1] = ()


class GetActionResultRequest(_OfInstance, frozen=True, kw_only=True):
    """Asks for the result of an action."""

    action_digest: Annotated[DigestProto | None, 2] = None


class UpdateActionResultRequest(_OfInstance, frozen=True, kw_only=True):
    """Stores the result of an action."""

    action_digest: Annotated[DigestProto | None, 2] = None
    action_result: Annotated[ActionResultProto | None, 3] = None


class GetCapabilitiesRequest(_OfInstance, frozen=True, kw_only=True):
    """Asks what a server can do."""


class ActionCacheUpdateCapabilities(Proto, frozen=True, kw_only=True):
    """Whether the caller may store results."""

    update_enabled: Annotated[bool, 1] = False


class CacheCapabilities(Proto, frozen=True, kw_only=True):
    """What a cache can do. With a maximum of 0, only the limit of gRPC applies."""

    digest_functions: Annotated[tuple[int, ...], 1, INT32] = ()
    action_cache_update_capabilities: Annotated[ActionCacheUpdateCapabilities | None, 2] = None
    max_batch_total_size_bytes: Annotated[int, 4] = 0
    supported_compressors: Annotated[tuple[int, ...], 6, INT32] = ()
    supported_batch_update_compressors: Annotated[tuple[int, ...], 7, INT32] = ()


class ExecutionCapabilities(Proto, frozen=True, kw_only=True):
    """Whether a server runs actions."""

    exec_enabled: Annotated[bool, 2] = False


class ServerCapabilities(Proto, frozen=True, kw_only=True):
    """What a server can do."""

    cache_capabilities: Annotated[CacheCapabilities | None, 1] = None
    execution_capabilities: Annotated[ExecutionCapabilities | None, 2] = None


class ExecuteRequest(_OfInstance, frozen=True, kw_only=True):
    """Asks for the execution of an action. The replies are Operations."""

    skip_cache_lookup: Annotated[bool, 3] = False
    action_digest: Annotated[DigestProto | None, 6] = None
    digest_function: Annotated[int, 9, INT32] = 0


class OperationRequest(Proto, frozen=True, kw_only=True):
    """WaitExecutionRequest and CancelOperationRequest: asks for the further states of an operation, or for its end."""

    name: Annotated[str, 1] = ""


class ExecuteResponse(Proto, frozen=True, kw_only=True):
    """The result of an execution, or why there is none."""

    result: Annotated[ActionResultProto | None, 1] = None
    status: Annotated[RpcStatus | None, 3] = None


class ExecuteOperationMetadata(Proto, frozen=True, kw_only=True):
    """The metadata of an Operation. ByteStream.Read reads the streams with these names; empty: no stream."""

    stdout_stream_name: Annotated[str, 3] = ""
    stderr_stream_name: Annotated[str, 4] = ""


class Operation(Proto, frozen=True, kw_only=True):
    """google.longrunning: the state of an execution. When it is done, it has an error, or an ExecuteResponse."""

    name: Annotated[str, 1] = ""
    metadata: Annotated[AnyProto | None, 2] = None
    done: Annotated[bool, 3] = False
    error: Annotated[RpcStatus | None, 4] = None
    response: Annotated[AnyProto | None, 5] = None


class ReadRequest(Proto, frozen=True, kw_only=True):
    """Asks for the bytes of a resource, from an offset. QueryWriteStatusRequest has the same name, and no offset."""

    resource_name: Annotated[str, 1] = ""
    read_offset: Annotated[int, 2] = 0


class ReadResponse(Proto, frozen=True, kw_only=True):
    """A part of a resource."""

    data: Annotated[bytes, 10] = b""


class WriteRequest(Proto, frozen=True, kw_only=True):
    """A part of a resource to write. The first has the name."""

    resource_name: Annotated[str, 1] = ""
    write_offset: Annotated[int, 2] = 0
    finish_write: Annotated[bool, 3] = False
    data: Annotated[bytes, 10] = b""


class WriteStatus(Proto, frozen=True, kw_only=True):
    """WriteResponse and QueryWriteStatusResponse: how far a write has come. WriteResponse has only the size."""

    committed_size: Annotated[int, 1] = 0
    complete: Annotated[bool, 2] = False
