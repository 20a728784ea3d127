"""Run calls of a shared cache in a bounded number of threads that no one has to wait for.

The threads of `concurrent.futures` are joined when Python exits: a call that hangs, such as a read of a network share
whose server is gone, would keep the process alive.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Task(Generic[_Result]):
    """A call in a thread. `result` is None until it has returned."""

    def __init__(self, call: Callable[[], _Result | None], usual_s: float) -> None:
        """Store a call with the time that it usually takes."""
        self.usual_s = usual_s
        self.began_s: float | None = None
        self.finished = threading.Event()
        self.result: _Result | None = None
        self.error: BaseException | None = None
        self._call = call

    def run(self, now_s: float) -> None:
        """Run the call, and store what it returns or raises."""
        self.began_s = now_s
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for the result
            self.error = error
        self.finished.set()

    def outcome(self) -> _Result:
        """Wait for the call, and return its result, or raise what it raised."""
        self.finished.wait()
        if self.error is not None:
            raise self.error
        return cast("_Result", self.result)


class DaemonThreads:
    """Runs tasks in the order of their submission. A thread starts when a task has to wait."""

    def __init__(self, count: int, name: str, clock: Callable[[], float]) -> None:
        """Start no thread yet."""
        self._count, self._name, self._clock = count, name, clock
        self._tasks: SimpleQueue[Task[Any] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = 0
        self._running: set[Task[Any]] = set()

    def submit(self, task: Task[_Result]) -> Task[_Result]:
        """Run a task as soon as a thread is free, and return it."""
        self._tasks.put(task)
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._threads < self._count:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        return task

    def running(self) -> list[Task[Any]]:
        """Return the tasks that are running now."""
        with self._lock:
            return list(self._running)

    def stop(self) -> None:
        """Let all threads end after their tasks. No task may be submitted later."""
        with self._lock:
            for _ in range(self._threads):
                self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            with self._lock:
                self._running.add(task)
            task.run(self._clock())
            with self._lock:
                self._running.discard(task)
            self._idle.release()


def map_in_threads(call: Callable[[_Item], _Result], items: Sequence[_Item], count: int, name: str) -> list[_Result]:
    """Return the results of a call for some items, in their order, from some threads at most.

    Raises:
        BaseException: what the first failed call raised. The calls of further items may run on.

    """
    if len(items) <= 1:
        return [call(item) for item in items]
    threads = DaemonThreads(count, name, time.monotonic)
    tasks = [threads.submit(Task(partial(call, item), 0.0)) for item in items]
    try:
        return [task.outcome() for task in tasks]
    finally:
        threads.stop()
