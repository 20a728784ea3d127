"""The engine of a dask cluster, and the executor that uses it."""

import logging
import threading
import warnings
from concurrent.futures import CancelledError
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orch23.execute.remote.dask_scheduler import E_SCHEDULER, check_scheduler, security_of
from orch23.execute.remote.engine import (
    EngineFault,
    Submission,
    UnreachableEngineError,
    Work,
    WorkerLost,
    digest_text,
)
from orch23.execute.remote.executor import RemoteExecutor
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.plugins import exception_text
from orch23.model.ports import Surroundings

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_S = 10
_RESULT_S = 5
_COUNT_EACH_S = 2.0


def make_executor(surroundings: Surroundings) -> RemoteExecutor:
    """Return the executor that runs actions on a dask cluster. It connects to the scheduler with the first action.

    Raises:
        ConfigurationError: the scheduler or the cache is not named, or must not be used, or a library is missing.

    """
    check_scheduler(surroundings.scheduler)
    if not surroundings.cache:
        message = "workers get files through a shared cache, and none is named"
        raise ConfigurationError(Diagnostic(E_SCHEDULER, message, hint="add `--cache URL`, which workers can use too"))
    return RemoteExecutor(
        DaskEngine(surroundings.scheduler),
        surroundings.open_cache(surroundings.cache),
        cache_url=surroundings.cache,
        contents=surroundings.contents,
        workers=surroundings.workers,
        redact=surroundings.redact,
        on_fault=lambda reason: surroundings.warn(f"a step is sent to a worker again: {reason}"),
    )


def count_slots(address: str) -> int:
    """Return how many actions the workers of a scheduler can run at once. It waits for the scheduler for 10 s.

    Raises:
        ConfigurationError: the certificates for it are not set, or cannot be read.
        EngineFault: it cannot be reached.

    """
    engine = DaskEngine(address)
    try:
        return engine.slots()
    finally:
        engine.close()


def silence_dask() -> None:
    """Keep dask from writing its log to stderr, between the lines of a build."""
    log = logging.getLogger("distributed")
    log.handlers = [logging.NullHandler()]
    log.propagate = False


class _DaskSubmission:
    """A future of dask, with the exceptions of the port."""

    def __init__(self, future: Any) -> None:
        self.future = future
        self._ended = threading.Event()
        future.add_done_callback(lambda _: self._ended.set())

    def result(self, timeout: float) -> bytes:
        """See the port."""
        from distributed.scheduler import KilledWorker, NoValidWorkerError  # noqa: PLC0415 - as in `security_of`

        # Without a call of dask: a timeout of `result` cancels a transfer that has begun.
        if not self._ended.wait(timeout):
            raise TimeoutError
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


class DaskEngine:
    """The workers of a dask cluster. It connects with the first action, in the thread of the caller."""

    def __init__(self, address: str) -> None:
        """Use the scheduler at an address."""
        self._address = address
        self._lock = threading.Lock()
        self._connected: Client | None = None
        self._is_closed = False
        self._counted_s, self._count = -_COUNT_EACH_S, 0

    def connect(self) -> None:
        """See the port: the first submission connects."""

    def submit(self, work: Work) -> Submission:
        """See the port."""
        from orch23.execute.remote.dask_worker import run_remotely  # noqa: PLC0415 - loads dask

        client = self._client()
        try:
            # A key of its own: dask would give the result of an earlier submission, also one with a fault.
            key, digest = f"orch23-{uuid4().hex}", digest_text(work.action)
            future = client.submit(run_remotely, work.cache_url, digest, key=key, pure=False)
        except Exception as error:
            raise EngineFault(exception_text(error)) from error
        return _DaskSubmission(future)

    def cancel(self, submission: Submission) -> None:
        """See the port. Dask leaves a running function alone: the worker sees that its key is not wanted any more."""
        assert isinstance(submission, _DaskSubmission)
        with suppress(Exception):
            submission.future.cancel(force=True)

    def slots(self) -> int:
        """See the port. The scheduler is asked every two seconds at most."""
        client = self._client()
        with self._lock:
            if monotonic() > self._counted_s + _COUNT_EACH_S:
                try:
                    self._count = int(client.scheduler_info(n_workers=0)["total_threads"])
                except Exception as error:
                    raise EngineFault(exception_text(error)) from error
                self._counted_s = monotonic()
            return self._count

    def close(self) -> None:
        """See the port."""
        with self._lock:
            self._is_closed, client, self._connected = True, self._connected, None
        if client is not None:
            with suppress(Exception):
                client.close(timeout=_CONNECT_S)

    def _client(self) -> "Client":
        with self._lock:
            if self._is_closed:
                raise CancelledError
            # A client closes itself if its scheduler does not come back within half a minute.
            if self._connected is None or self._connected.status == "closed":
                self._connected = self._connect()
            return self._connected

    def _connect(self) -> "Client":
        from distributed import Client  # noqa: PLC0415 - as in `security_of`

        silence_dask()
        security = security_of(self._address, "client")
        try:
            # It warns of other versions of libraries, which two strings do not depend on.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Client(self._address, security=security, timeout=_CONNECT_S, set_as_default=False, name="orch23")
        except Exception as error:
            message = f"the scheduler {self._address} cannot be reached: {exception_text(error)}"
            raise UnreachableEngineError(message) from error
