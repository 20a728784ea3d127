"""Actions that were submitted to a dask cluster, by this build or by an earlier one that was killed."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import msgspec
from msgspec import Struct

from orch23.features.remote.dask_runs import RUNNING
from orch23.features.remote.engine import EngineFault, Submission, WorkerLost
from orch23.model.plugins import exception_text
from orch23.model.text import LineListener

_RESULT_S = 5
_ASK_EACH_S = 0.5


class Place(Struct, frozen=True):
    """The worker that runs an action, and the key that dask knows the action by."""

    worker: str
    key: str

    def to_text(self) -> str:
        """Return the place as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "Place | None":
        """Return the place that `to_text` was called on; None for other texts."""
        try:
            return msgspec.json.decode(text, type=cls)
        except ValueError:
            return None


class DaskSubmission:
    """A future of dask, with the exceptions of the port.

    `worker` is the one that runs it, once that is known. Only those of `allowed` may, or all if
    it is empty.
    """

    def __init__(self, future: Any, on_start: Callable[[Place, Place], object], hear: LineListener | None) -> None:
        """Set the future, and what is called with the new place and the earlier one if a worker starts the action.

        That is called in the thread that waits.
        """
        self.future, self.key, self._on_start, self.hear = future, str(future.key), on_start, hear
        self.worker = self._reported = ""
        self.allowed: frozenset[str] = frozenset()
        self._is_lost = False
        self._ended = threading.Event()
        future.add_done_callback(lambda _: self._ended.set())

    def lose(self) -> None:
        """Wait no more: no worker is left that may run it."""
        self._is_lost = True
        self._ended.set()

    def result(self, timeout: float) -> bytes:
        """See the port."""
        from distributed.scheduler import KilledWorker, NoValidWorkerError  # noqa: PLC0415 - loads dask

        # Without a call of dask: a timeout of `result` cancels a transfer that has begun.
        has_ended = self._ended.wait(timeout)
        if self.worker != self._reported:
            earlier, self._reported = self._reported, self.worker
            self._on_start(Place(self._reported, self.key), Place(earlier, self.key))
        if not has_ended:
            raise TimeoutError
        if self._is_lost:
            message = "all workers that may run it are gone"
            raise WorkerLost(message)
        if self.future.cancelled():  # `result` would ask a client that may be closed
            raise CancelledError
        try:
            found: bytes = self.future.result(_RESULT_S)
        except (TimeoutError, CancelledError):
            raise
        except KilledWorker as error:
            message = f"{error.last_worker.address} ended while it ran the action"
            raise WorkerLost(message) from error
        except NoValidWorkerError as error:
            message = "no worker of the cluster may run it"
            raise EngineFault(message) from error
        except Exception as error:
            raise EngineFault(exception_text(error)) from error
        return found


class FoundSubmission:
    """An action that a worker runs for an earlier build. If that fails, it is submitted again."""

    def __init__(
        self,
        place: Place,
        ask: Callable[[], bytes | None],
        submit: Callable[[], Submission],
        hear: LineListener | None = None,
    ) -> None:
        """Ask the worker for its reply from now on, in a thread; `ask` raises if it cannot be asked."""
        self.place, self.worker, self.key = place, place.worker, place.key
        self._ask, self._submit, self.hear = ask, submit, hear
        self._reply = RUNNING
        self._ended, self.is_unwanted = threading.Event(), threading.Event()
        self.again: Submission | None = None
        threading.Thread(target=self._follow, name="orch23-found", daemon=True).start()

    def lose(self) -> None:
        """Wait no more: the worker is lost."""
        self._ended.set()

    def result(self, timeout: float) -> bytes:
        """See the port."""
        if self.again is not None:
            return self.again.result(timeout)
        if not self._ended.wait(timeout):
            raise TimeoutError
        if self.is_unwanted.is_set():
            raise CancelledError
        if self._reply != RUNNING:
            return self._reply
        self.again = self._submit()
        raise TimeoutError

    def _follow(self) -> None:
        try:
            while not self._ended.is_set() and not self.is_unwanted.is_set():
                found = self._ask()
                if found is None or found != RUNNING:
                    self._reply = found or RUNNING
                    return
                self.is_unwanted.wait(_ASK_EACH_S)
        except Exception:  # noqa: BLE001 - whatever it is, the action is submitted again
            return
        finally:
            self._ended.set()
