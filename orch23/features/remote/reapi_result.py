"""The end of an execution on a server of the Remote Execution API, a result or a fault, and the output until then."""

import codecs
import re
import threading
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from orch23.features.cache.grpc_calls import AbsentError, GrpcServer, StatusFault, TooLargeError, status_name
from orch23.features.cache.grpc_streams import READ
from orch23.features.cache.reapi.messages import (
    ActionResultProto,
    ExecuteOperationMetadata,
    ExecuteResponse,
    Operation,
    PreconditionFailure,
    ReadRequest,
    ReadResponse,
    RpcStatus,
)
from orch23.features.cache.reapi.wire import DecodeError, decode
from orch23.features.remote.engine import EngineFault, UnreachableEngineError, WorkerLost
from orch23.features.remote.live_lines import MAX_CHARACTERS
from orch23.features.remote.single_action import Messages
from orch23.model.action import Action
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.text import LineListener, LineSplitter, one_line

_METADATA = "/build.bazel.remote.execution.v2.ExecuteOperationMetadata"
_PAUSE_S = 0.5
_TRIES = 5


def stream_names(operation: Operation) -> tuple[str, str]:
    """Return the names of the streams of stdout and stderr; empty if the server has none, or not yet."""
    sent = operation.metadata
    try:
        found = decode(ExecuteOperationMetadata, sent.value if sent and sent.type_url.endswith(_METADATA) else b"")
    except DecodeError:
        return "", ""
    return found.stdout_stream_name, found.stderr_stream_name


class OutputStreams:
    """The streams of one execution, each with a thread that reads it until the execution ends."""

    def __init__(self, server: GrpcServer, hear: LineListener | None, call_s: float) -> None:
        """Set the server, the listener, and the deadline of one call; then the next one goes on.

        Without a listener, nothing is read.
        """
        self._server, self._hear, self._call_s = server, hear, call_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._names: set[str] = set()
        self._end_calls: dict[str, Callable[[], object]] = {}

    def read(self, name: str) -> None:
        """Read a stream, if it has a name and is not read yet. This does not wait."""
        with self._lock:
            if self._hear is None or not name or name in self._names or self._ended.is_set():
                return
            self._names.add(name)
        threading.Thread(target=self._follow, args=(name, self._hear), name="orch23-lines", daemon=True).start()

    def end(self) -> None:
        """Read no more: the outcome has the rest."""
        self._ended.set()
        with self._lock:
            end_calls = [*self._end_calls.values()]
        for end_call in end_calls:
            end_call()

    def _follow(self, name: str, hear: LineListener) -> None:
        lines, decoder = LineSplitter(hear), codecs.getincrementaldecoder("utf-8")("replace")
        offset, tries = 0, 0
        while tries < _TRIES and offset < MAX_CHARACTERS and not self._ended.is_set():
            tries += 1
            try:
                for data in self._parts(name, offset):
                    offset, tries = offset + len(data), 0
                    lines.feed(decoder.decode(data))
                    if offset >= MAX_CHARACTERS:
                        break
                else:
                    return
            except (AbsentError, TooLargeError, CacheFault):
                # A stream may begin later than the execution, and a connection may be cut.
                self._ended.wait(_PAUSE_S)

    def _parts(self, name: str, offset: int) -> Iterator[bytes]:
        request = ReadRequest(resource_name=name, read_offset=offset)
        replies, end_call = self._server.open_stream(READ, request, ReadResponse, self._call_s)
        with self._lock:
            self._end_calls[name] = end_call
        try:
            if not self._ended.is_set():
                yield from (reply.data for reply in replies)
        finally:
            end_call()


_LOST: Final = frozenset({"CANCELLED", "ABORTED"})
_LASTING: Final = frozenset({"INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"})
_BLOB: Final = re.compile(r"(?:.*/)?blobs/([0-9a-f]{64})/(\d{1,18})")


class Finished(Struct, frozen=True):
    """The result of an execution with its status."""

    status: RpcStatus
    result: ActionResultProto = ActionResultProto()

    @classmethod
    def of(cls, operation: Operation) -> "Finished":
        """Return the end of an operation that is done.

        Raises:
            EngineFault: it has no result that can be read.
        """
        if operation.error is not None:
            return cls(operation.error)
        try:
            response = decode(ExecuteResponse, operation.response.value if operation.response is not None else b"")
        except DecodeError as error:
            message = f"the result of the server cannot be read: {error}"
            raise EngineFault(message) from None
        return cls(response.status or RpcStatus(), response.result or ActionResultProto())

    @classmethod
    def of_fault(cls, fault: StatusFault) -> "Finished":
        """Return the end that is the status of a call."""
        try:
            sent = decode(RpcStatus, fault.details)
        except DecodeError:
            sent = RpcStatus()
        return cls(RpcStatus(code=fault.number, message=fault.message, details=sent.details))

    @property
    def name(self) -> str:
        """Return the name of the status."""
        return status_name(self.status.code)

    @property
    def missing(self) -> frozenset[Digest] | None:
        """Return the blobs that the server misses, none if it does not name them; None if it has another status."""
        if self.name != "FAILED_PRECONDITION":
            return None
        found = set()
        for detail in self.status.details:
            if not detail.type_url.endswith("/google.rpc.PreconditionFailure"):
                continue
            try:
                violations = decode(PreconditionFailure, detail.value).violations
            except DecodeError:
                continue
            for one in violations:
                if one.type == "MISSING" and (blob := _BLOB.fullmatch(one.subject)) is not None:
                    found.add(Digest(blob[1], int(blob[2])))
        return frozenset(found)

    @property
    def fault(self) -> EngineFault | None:
        """Return the fault that the status is; None if it is a success."""
        if self.name == "OK":
            return None
        text = one_line(self.status.message)
        reason = f"the server ended the execution with {self.name}" + (f": {text}" if text else "")
        kind = WorkerLost if self.name in _LOST else UnreachableEngineError if self.name in _LASTING else EngineFault
        return kind(reason)


class Execution:
    """An execution. Its methods may be called from several threads."""

    def __init__(self, digest: Digest, action: Action, request: Messages, streams: OutputStreams, name: str) -> None:
        """Set the digest of the action for workers, the messages for the server, and what reads its streams.

        If an earlier build had it executed, `name` is the name of that execution.
        """
        self.digest, self.action, self.request, self.streams = digest, action, request, streams
        self.is_unwanted = threading.Event()
        self.name, self.is_found = name, bool(name)
        self._ended = threading.Event()
        self._reply = b""
        self._fault: Exception | None = None
        self._lock = threading.Lock()
        self._end_call: Callable[[], object] | None = None

    def result(self, timeout: float) -> bytes:
        """See the port."""
        if not self._ended.wait(timeout):
            raise TimeoutError
        if self._fault is not None:
            raise self._fault
        return self._reply

    def end(self, reply: bytes = b"", fault: Exception | None = None) -> None:
        """Set the reply, or why there is none."""
        self._reply, self._fault = reply, fault
        self._ended.set()
        self.streams.end()

    def calling(self, end_call: Callable[[], object]) -> None:
        """Keep what ends the current call."""
        with self._lock:
            self._end_call = end_call
        self.interrupt()

    def interrupt(self) -> None:
        """End the current call if no one wants its result, unless the name of the execution is not known yet."""
        with self._lock:
            if self._end_call is not None and self.is_unwanted.is_set() and self.name:
                self._end_call()
