"""The engine of a server of the Remote Execution API, and the executor that uses it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from time import monotonic

from orch23.features.cache.batches import batches_of, put_together
from orch23.features.cache.bounds import MAX_ENTRY_BYTES, WrongBytesError, reading, verified
from orch23.features.cache.grpc_cache import GrpcCache
from orch23.features.cache.grpc_calls import AbsentError, GrpcServer, StatusFault
from orch23.features.cache.reapi.messages import (
    SHA256,
    ActionResultProto,
    ExecuteRequest,
    Operation,
    OperationRequest,
    digest_of,
    digest_proto,
)
from orch23.features.cache.reapi.wire import Proto
from orch23.features.remote.engine import (
    MAX_INLINE_BYTES,
    EngineFault,
    RemoteLimits,
    Reply,
    Submission,
    UnreachableEngineError,
    Work,
    WorkerLost,
)
from orch23.features.remote.executor import RemoteExecutor
from orch23.features.remote.plain_action import plain_action, plain_fault, plain_outcome
from orch23.features.remote.reapi_address import ReapiAddress, reapi_address
from orch23.features.remote.reapi_result import Execution, Finished, OutputStreams, stream_names
from orch23.features.remote.single_action import REPLY, single_action
from orch23.model.action import Action, EngineUnavailable, outcome_to_bytes
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.plugins import exception_text
from orch23.model.ports import NOTHING_RUNS, ContentStore, RunningActions, SharedCache, Surroundings
from orch23.model.server_url import shown_url
from orch23.model.text import MAX_REASON, LineListener, one_line

_API = "/build.bazel.remote.execution.v2"
_EXECUTE, _WAIT = f"{_API}.Execution/Execute", f"{_API}.Execution/WaitExecution"
_CANCEL = "/google.longrunning.Operations/CancelOperation"
_STREAM_S = 60.0
"""The deadline of one call that waits for an execution; then the next one waits."""
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_SLOTS = 32
"""How many actions are sent at once if neither the user nor the pipeline says: a server cannot be asked."""
_CLOSE_WITHIN_S = 5.0
_NO_PROGRAM = frozenset({126, 127})
"""The exit codes of a shell for a program that cannot be started."""
_CUT = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED"})
"""The status of a call, not of an execution, whose connection was cut."""


def make_executor(surroundings: Surroundings) -> RemoteExecutor:
    """Return the executor that runs actions on a server. It connects with the first action.

    Raises:
        ConfigurationError: the server is not named, or must not be used, or a library is missing.
    """
    address = reapi_address(surroundings.scheduler)
    server = surroundings.open_cache(address.url)
    assert isinstance(server, GrpcCache)
    # Some installations have their blobs behind another address.
    is_separate = surroundings.cache.partition("://")[0] in {"grpc", "grpcs"}
    opened = surroundings.open_cache(surroundings.cache) if is_separate else server
    assert isinstance(opened, GrpcCache)
    # Many servers take results of actions from their own workers only.
    blobs = GrpcCache(opened.server, takes_entries=False)
    return RemoteExecutor(
        ReapiEngine(address, server.server, blobs, surroundings.contents, running=surroundings.running or NOTHING_RUNS),
        blobs,
        cache_url=shown_url(address.url),
        contents=surroundings.contents,
        workers=surroundings.workers,
        redact=surroundings.redact,
        on_fault=lambda reason: surroundings.warn(f"a step is sent to the server again: {reason}"),
        limits=RemoteLimits(slots=_SLOTS),
    )


def check_server(scheduler: str, contents: ContentStore, open_cache: Callable[[str], SharedCache]) -> None:
    """Ask a server once whether it runs actions. `open_cache` opens it with the credentials of the user.

    Raises:
        ConfigurationError: the server is not named, or must not be used, or a library is missing.
        UnreachableEngineError: it cannot be reached, or runs no actions.
    """
    address = reapi_address(scheduler)
    server = open_cache(address.url)
    assert isinstance(server, GrpcCache)
    with closing(ReapiEngine(address, server.server, server, contents)) as engine:
        engine.connect()


class ReapiEngine:
    """The workers of a server. Each execution has a thread that waits for its end."""

    def __init__(
        self,
        address: ReapiAddress,
        server: GrpcServer,
        blobs: SharedCache,
        contents: ContentStore,
        stream_s: float = _STREAM_S,
        running: RunningActions = NOTHING_RUNS,
    ) -> None:
        """Use a server, a cache with the blobs that it reads, and a store with the actions that are submitted."""
        self._address, self._server, self._blobs, self._contents = address, server, blobs, contents
        self._stream_s, self._running = stream_s, running
        self._place = address.identity
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        self._is_checked = False
        self._is_down = False
        self._suspect: set[Digest] = set()
        self._threads: set[threading.Thread] = set()

    def connect(self) -> None:
        """See the port. The server is asked once whether it runs actions."""
        with self._checking:
            if self._is_checked:
                return
            try:
                found = self._server.capabilities().execution_capabilities
            except CacheFault as fault:
                message = f"the server cannot be reached: {fault.message}"
                raise UnreachableEngineError(message) from fault
            if found is None or not found.exec_enabled:
                message = f"the server runs no actions for the instance {self._server.name!r}"
                raise UnreachableEngineError(message)
            self._is_checked = True

    def submit(self, work: Work, hear: LineListener | None) -> Submission:
        """See the port. The URL is not used: the server stages the files of an action for its worker."""
        action = Action.from_bytes(self._contents.get(work.action))
        address = self._address.with_resources(work.resources)
        if address.program:
            request = single_action(work.action, action, address)
        elif (fault := plain_fault(action, address)) is not None:
            refused: Future[bytes] = Future()
            outcome = EngineUnavailable(fault.message, "sandbox", fault)
            refused.set_result(Reply(outcome=outcome_to_bytes(outcome)).to_bytes())
            return refused
        else:
            request = plain_action(action, address)
        self._upload(request.blobs)
        name = self._running.take(self._place, work.action)
        execution = Execution(work.action, action, request, OutputStreams(self._server, hear, self._stream_s), name)
        thread = threading.Thread(target=self._follow, args=(execution,), name="orch23-execution", daemon=True)
        with self._lock:
            self._threads = {one for one in self._threads if one.is_alive()} | {thread}
            thread.start()
        return execution

    def cancel(self, submission: Submission) -> None:
        """See the port. The thread of the execution tells the server."""
        if isinstance(submission, Execution):
            submission.is_unwanted.set()
            self.release(submission)
            with suppress(Exception):
                submission.interrupt()

    def release(self, submission: Submission) -> None:
        """See the port."""
        if isinstance(submission, Execution):
            self._running.forget(self._place, submission.name)

    def slots(self) -> int:
        """See the port. A server does not say how many workers it has: 0 while it cannot be reached."""
        return 0 if self._is_down else 1

    def lacking(self, resources: Mapping[str, float]) -> str:  # noqa: ARG002 - of the port
        """See the port. A server does not say what its workers have: one that knows that it has none refuses."""
        return ""

    def known(self, submission: Submission) -> str:  # noqa: ARG002 - of the port
        """See the port. A server does not say what its workers do."""
        return "no word from the server" if self._is_down else ""

    def close(self) -> None:
        """See the port."""
        until_s = monotonic() + _CLOSE_WITHIN_S
        with self._lock:
            threads = [*self._threads]
        for thread in threads:
            thread.join(max(0.0, until_s - monotonic()))
        self._server.close()

    def _upload(self, blobs: Mapping[Digest, bytes]) -> None:
        """Upload messages that the server does not have; it is asked each time, since it may have restarted empty."""
        with self._lock:
            again = self._suspect & blobs.keys()
            self._suspect -= again
        for group in batches_of(self._blobs, sorted({*again, *self._blobs.missing(blobs)})):
            for digest in put_together(self._blobs, {digest: blobs[digest] for digest in group}):
                self._blobs.put_blob(digest, lambda digest=digest: (blobs[digest],))  # type: ignore[misc]

    def _follow(self, execution: Execution) -> None:
        """Wait for the end of an execution, also while the server cannot be reached: the executor has the patience."""
        try:
            finished = self._found(execution) if execution.is_found else None
            finished = finished or self._finished(execution)
            if finished is None:
                execution.end(fault=CancelledError())
            else:
                execution.end(self._reply(execution, finished).to_bytes())
        except EngineFault as fault:
            execution.end(fault=fault)
        except CacheFault as fault:
            execution.end(fault=EngineFault(fault.message))
        except Exception as error:  # noqa: BLE001 - the thread would end without a reply
            execution.end(fault=EngineFault(exception_text(error)))

    def _found(self, execution: Execution) -> Finished | None:
        """Return the end of an execution that an earlier build began; None if it has to be executed."""
        finished = None
        with suppress(EngineFault, CacheFault):
            finished = self._finished(execution)
        if finished is not None and self._has_result(finished):
            return finished
        if not execution.is_unwanted.is_set():
            self.release(execution)
        execution.name = ""
        return None

    def _has_result(self, finished: Finished) -> bool:
        is_late = finished.name == "DEADLINE_EXCEEDED" and not self._address.program
        return is_late or (finished.missing is None and finished.fault is None)

    def _finished(self, execution: Execution) -> Finished | None:
        """Return the end of an execution; None if it was cancelled. Raise if there will be none."""
        failures = 0
        while not execution.is_unwanted.is_set():
            is_heard = False
            try:
                for operation in self._operations(execution):
                    is_heard, failures, self._is_down = True, 0, False
                    self._name(execution, operation.name)
                    if operation.done:
                        return Finished.of(operation)
                    execution.interrupt()
                    self._read_output(execution, operation)
                if not is_heard:
                    message = "the server says nothing of an execution"
                    raise EngineFault(message)
            except AbsentError:
                why = "the server does not know the execution any more" if execution.name else "no such instance"
                raise WorkerLost(why) from None
            except StatusFault as fault:
                if execution.is_unwanted.is_set():
                    break
                if fault.name not in _CUT:
                    return Finished.of_fault(fault)
                # Nothing is wrong if an execution takes longer than a call.
                self._is_down = self._is_down or fault.name != "DEADLINE_EXCEEDED" or not execution.name
            execution.is_unwanted.wait(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
            failures += 1
        if execution.name:
            with suppress(AbsentError, CacheFault):
                self._server.unary(_CANCEL, OperationRequest(name=execution.name), Proto)
        return None

    def _name(self, execution: Execution, name: str) -> None:
        if name in {"", execution.name}:
            return
        self._running.forget(self._place, execution.name)
        execution.name = name
        if not execution.is_unwanted.is_set():
            self._running.note(self._place, execution.digest, name)
            if execution.is_unwanted.is_set():
                self.release(execution)

    def _read_output(self, execution: Execution, operation: Operation) -> None:
        stdout, stderr = stream_names(operation)
        execution.streams.read(stdout)
        if not self._address.program:
            # That of `orch23 worker --once` has its own messages: what the step prints is in its stdout.
            execution.streams.read(stderr)

    def _operations(self, execution: Execution) -> Iterator[Operation]:
        """Execute the action; or, if that was begun already, wait for it."""
        request: Proto = OperationRequest(name=execution.name)
        method = _WAIT
        if not execution.name:
            method = _EXECUTE
            request = ExecuteRequest(
                instance_name=self._server.name,
                skip_cache_lookup=True,
                action_digest=digest_proto(execution.request.action),
                digest_function=SHA256,
            )
        replies, end_call = self._server.open_stream(method, request, Operation, self._stream_s)
        execution.calling(end_call)
        try:
            yield from replies
        finally:
            end_call()

    def _reply(self, execution: Execution, finished: Finished) -> Reply:
        if (missing := finished.missing) is not None:
            if not missing or missing & execution.request.blobs.keys():
                with self._lock:
                    self._suspect.update(execution.request.blobs)
            # If the server does not say which ones are missing, it may be all of them.
            return Reply(
                missing=tuple(sorted(missing or {execution.request.action, *execution.request.files})),
                worker="the server",
            )
        if not self._has_result(finished):
            assert finished.fault is not None
            raise finished.fault
        if self._address.program:
            return self._worker_reply(finished.result)
        outcome = plain_outcome(execution.action, finished, self._read, self._contents)
        if outcome is None:
            return Reply(missing=(execution.request.action,), worker="the server")
        data = outcome_to_bytes(outcome)
        return Reply(outcome=data) if len(data) <= MAX_INLINE_BYTES else Reply(blob=self._contents.put(data))

    def _worker_reply(self, result: ActionResultProto) -> Reply:
        worker = result.execution_metadata.worker if result.execution_metadata is not None else ""
        found = [digest_of(file.digest) for file in result.output_files if file.path == REPLY]
        if result.exit_code in _NO_PROGRAM:
            # It would be the same for each action.
            message = f"the workers do not have `{self._address.program}`: it {self._failure(result)}"
            raise UnreachableEngineError(message)
        if result.exit_code or not found:
            return Reply(fault=f"`orch23 worker --once` {self._failure(result)}", worker=worker)
        data = self._read(found[0])
        return Reply(missing=(found[0],), worker=worker) if data is None else Reply.from_bytes(data)

    def _failure(self, result: ActionResultProto) -> str:
        text = result.stderr_raw or b""
        if not text and result.stderr_digest is not None and digest_of(result.stderr_digest).size_bytes:
            text = self._read(digest_of(result.stderr_digest)) or b""
        shown = one_line(text[-MAX_REASON:].decode("utf-8", "replace")) or "no message"
        return f"exited with status {result.exit_code}: {shown}"

    def _read(self, digest: Digest) -> bytes | None:
        if digest.size_bytes > MAX_ENTRY_BYTES:
            message = "the reply of a worker is too large"
            raise EngineFault(message)
        chunks = self._blobs.blob(digest)
        if chunks is None:
            return None
        with reading(chunks) as guarded_chunks, suppress(WrongBytesError):
            return b"".join(verified(guarded_chunks, digest))
        return None
