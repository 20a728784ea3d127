"""The end of an execution on a server of the Remote Execution API: a result, or a status that is a fault."""

import re
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
