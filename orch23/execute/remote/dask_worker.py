"""The side of a dask worker: the function that it runs, and the process that `orch23 worker` starts."""

import asyncio
import multiprocessing.util
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker
from distributed.core import Status

from orch23.execute.remote.dask_scheduler import security_of
from orch23.execute.remote.worker import RemoteWorker
from orch23.execute.remote.worker_process import NO_SCHEDULER, WorkerSettings
from orch23.execute.server_login import worker_cache_opener
from orch23.model.plugins import exception_text
from orch23.model.server_url import is_loopback

_SCRATCH = "dask-scratch-space"
_READ_BYTES = 1 << 16
_CONNECT_WITHIN_S = 30
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
            slots = ActionSlots(folder=str(_top(worker)))
            _open(worker, slots)
            # The worker tears it down when it closes, which need not be the end of the process.
            worker.loop.add_callback(worker.plugins.__setitem__, slots.name, slots)
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
        open_cache=worker_cache_opener(slots.cache_url, Path(slots.folder), os.environ),
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


async def run_worker(settings: WorkerSettings) -> bool:
    """Run actions in this process until SIGTERM, or the end of the scheduler. Return False if there was none at all."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = Worker(
        settings.scheduler,
        nthreads=settings.slots,
        plugins=(ActionSlots(folder=settings.folder, cache_url=settings.cache_url, allowed=settings.allowed),),
        local_directory=settings.folder,
        # Each action has its own limits; dask would pause the worker with all of its actions.
        memory_limit=0,
        death_timeout=_CONNECT_WITHIN_S,
        security=security_of(settings.scheduler, "worker"),
        host="127.0.0.1" if is_loopback(settings.scheduler) else None,
        dashboard_address="127.0.0.1:0",
    )
    try:
        await _first(worker.start(), stop.wait())
        await _first(worker.finished(), stop.wait())
    except (OSError, TimeoutError) as error:
        sys.stderr.write(f"{exception_text(error)}\n")
        return False
    finally:
        await worker.close()
    return True


async def _first(*some: Coroutine[Any, Any, object]) -> None:
    """Wait until one of these has ended, and cancel the others.

    Raises:
        Exception: that of the one that has ended.

    """
    tasks = [asyncio.ensure_future(one) for one in some]
    ended, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    for task in ended:
        task.result()


def main() -> None:
    """Read the settings from stdin, and run actions. The end of stdin is the end of the process that started this."""
    # Not by `sys.stdin`: Python cannot end while another thread reads it.
    data = b""
    while not data.endswith(b"\n") and (more := os.read(0, _READ_BYTES)):
        data += more
    settings = WorkerSettings.from_bytes(data)

    def end_with_parent() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.exit(0 if asyncio.run(run_worker(settings)) else NO_SCHEDULER)
