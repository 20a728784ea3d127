"""Run calls of a shared cache in a bounded number of threads that no one has to wait for.

The threads of `concurrent.futures` are joined when Python exits: a call that hangs, such as a read of a network share
whose server is gone, would keep the process alive.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class DaemonThreads:
    """Runs calls in the order of their submission. A thread starts when a call has to wait."""

    def __init__(self, count: int, name: str) -> None:
        """Start no thread yet."""
        self._count, self._name = count, name
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = 0

    def submit(self, call: Callable[[], _Result]) -> Future[_Result]:
        """Run a call as soon as a thread is free, and return its future."""
        future: Future[_Result] = Future()
        self._tasks.put((future, call))
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._threads < self._count:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        return future

    def stop(self) -> None:
        """Let all threads end after their calls. No call may be submitted later."""
        with self._lock:
            for _ in range(self._threads):
                self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            with self._lock:  # until `submit` returns: one question can then include what its caller adds next
                future, call = task
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for the result
                future.set_exception(error)
            self._idle.release()
