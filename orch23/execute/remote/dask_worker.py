"""The side of a dask worker: a function that it runs, and the command that starts such workers."""

import asyncio
import multiprocessing.util
import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

from distributed import Nanny, Worker, WorkerPlugin, get_worker
from distributed.core import Status
from msgspec import Struct

from orch23.execute.remote.dask_engine import security_of
from orch23.execute.remote.worker import RemoteWorker
from orch23.model.server_url import is_loopback

_SCRATCH = "dask-scratch-space"
_WANTED = frozenset({"executing", "long-running", "resumed"})
_LOCK = threading.Lock()
# By the id of the dask worker. A worker that was not started by `orch23 worker` gets one with its first action.
_WORKERS: dict[str, RemoteWorker] = {}


def run_remotely(cache_url: str, digest: str) -> bytes:
    """Run an action in a thread of a dask worker, and return the bytes of its `Reply`."""
    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        # Both change when the client cancels or is gone, the second when the scheduler is.
        task = worker.state.tasks.get(key)
        return task is not None and task.state in _WANTED and worker.status in {Status.running, Status.paused}

    return _remote_worker(worker).run_remotely(cache_url, digest, is_wanted)


def _remote_worker(worker: Worker) -> RemoteWorker:
    with _LOCK:
        if worker.id not in _WORKERS:
            _open(worker, ActionSlots(folder=str(_top(worker))))
        return _WORKERS[worker.id]


def _top(worker: Worker) -> Path:
    """Return the folder for temporary files that a dask worker was started with."""
    scratch = Path(worker.local_directory).parent
    return scratch.parent if scratch.name.startswith(_SCRATCH) else Path(tempfile.gettempdir())


def _open(worker: Worker, slots: "ActionSlots") -> None:
    remote = RemoteWorker(
        Path(slots.folder),
        slots=worker.state.nthreads,
        # There is no command line in this process.
        environ=dict(os.environ),
        cache_url=slots.cache_url,
        allowed=slots.allowed,
    )
    _WORKERS[worker.id] = remote
    # Python runs no functions of `atexit` in a process of multiprocessing.
    multiprocessing.util.Finalize(None, remote.close, exitpriority=10)


class ActionSlots(WorkerPlugin):
    """What a worker of `orch23 worker` has from its start: a folder, a cache, and what it allows."""

    name = "orch23"

    def __init__(self, *, folder: str, cache_url: str = "", allowed: bool = False) -> None:
        """Keep the settings; the plugin is sent to the process of the worker."""
        self.folder, self.cache_url, self.allowed = folder, cache_url, allowed

    def setup(self, worker: Worker) -> None:
        """Remove what a killed worker has left, and create the folder."""
        with _LOCK:
            _open(worker, self)

    def teardown(self, worker: Worker) -> None:
        """Cancel all actions, and remove the folder."""
        with _LOCK:
            remote = _WORKERS.pop(worker.id, None)
        if remote is not None:
            remote.close()


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """The options of `orch23 worker`."""

    scheduler: str
    cache_url: str
    slots: int
    folder: Path
    allowed: bool = False


def worker_options(settings: WorkerSettings) -> dict[str, Any]:
    """Return the arguments of a Nanny: it starts one process, and starts it again when it was killed."""
    is_here = is_loopback(settings.scheduler)
    return {
        "nthreads": settings.slots,
        "plugins": (ActionSlots(folder=str(settings.folder), cache_url=settings.cache_url, allowed=settings.allowed),),
        "local_directory": str(settings.folder),
        # Each action has its own limits; dask would kill the worker with all of its actions.
        "memory_limit": 0,
        "host": "127.0.0.1" if is_here else None,
        "dashboard_address": "127.0.0.1:0",
    }


def serve(settings: WorkerSettings) -> None:
    """Run actions until the scheduler ends, or SIGINT or SIGTERM arrives.

    Raises:
        OSError: the scheduler cannot be reached.

    """
    asyncio.run(_serve(settings))


async def _serve(settings: WorkerSettings) -> None:
    nanny = Nanny(settings.scheduler, security=security_of(settings.scheduler), **worker_options(settings))
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with nanny:
        ended = {asyncio.create_task(nanny.finished()), asyncio.create_task(stop.wait())}
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.cancel()
