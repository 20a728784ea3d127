"""An execution on a server of the Remote Execution API, with what `engine.Submission` promises."""

import threading
from collections.abc import Callable

from orch23.features.remote.reapi_streams import OutputStreams
from orch23.features.remote.single_action import Messages
from orch23.model.action import Action
from orch23.model.digest import Digest


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
