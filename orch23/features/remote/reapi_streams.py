"""Read what an execution prints from a server of the Remote Execution API, while it runs."""

import codecs
import threading
from collections.abc import Callable, Iterator

from orch23.features.cache.grpc_calls import AbsentError, GrpcServer, TooLargeError
from orch23.features.cache.grpc_streams import READ
from orch23.features.cache.reapi.messages import ExecuteOperationMetadata, Operation, ReadRequest, ReadResponse
from orch23.features.cache.reapi.wire import DecodeError, decode
from orch23.features.remote.live_lines import MAX_CHARACTERS
from orch23.model.errors import CacheFault
from orch23.model.text import LineListener, LineSplitter

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
