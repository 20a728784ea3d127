"""The end of an execution on a server of the Remote Execution API: a result, or a status that is a fault."""

import re
import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from orch23.features.cache.grpc_calls import StatusFault, status_name
from orch23.features.cache.reapi.messages import (
    ActionResultProto,
    ExecuteResponse,
    Operation,
    PreconditionFailure,
    RpcStatus,
)
from orch23.features.cache.reapi.wire import DecodeError, decode
from orch23.features.remote.engine import EngineFault, UnreachableEngineError, WorkerLost
from orch23.features.remote.reapi_streams import OutputStreams
from orch23.features.remote.single_action import Messages
from orch23.model.action import Action
from orch23.model.digest import Digest
from orch23.model.text import one_line

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
