"""Clean up behind steps in a thread of its own, so that the next step does not wait for the disk."""

import queue
import threading
from collections.abc import Callable

_MOST_WAITING = 2


class Cleaner:
    """Does what it is given in turn. Where it falls behind, whoever comes cleans up himself: rooms do not pile up."""

    def __init__(self) -> None:
        """Begin with nothing to do; the thread is made for the first piece of work."""
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Do some work soon, or at once where enough is waiting."""
        if self._work.qsize() >= _MOST_WAITING:
            work()
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="orch23-cleaner", daemon=True)
                self._thread.start()
            self._work.put(work)

    def close(self) -> None:
        """Wait until all is done; what went wrong is raised here. It may be given work again."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._work.put(None)
                thread.join()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 - it is raised where the end is waited for
                self._problem = self._problem or problem
