"""The side of a dask worker: the function that it runs, and the process that `orch23 worker` starts."""

import asyncio
import multiprocessing.util
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker
from distributed.core import Status

from orch23.features.cache.server_login import worker_cache_opener
from orch23.features.remote.dask_runs import LEASE_S, WorkerRuns
from orch23.features.remote.dask_scheduler import security_of
from orch23.features.remote.live_lines import Line, LineBatches
from orch23.features.remote.worker import RemoteWorker
from orch23.features.remote.worker_process import NO_SCHEDULER, WAS_FROZEN, WorkerSettings
from orch23.model.plugins import exception_text
from orch23.model.server_url import is_loopback

_SCRATCH = "dask-scratch-space"
_READ_BYTES = 1 << 16
_CONNECT_WITHIN_S = 30
_TICK_S, _STANDS_STILL_S = 0.5, 5.0
_WANTED = frozenset({"executing", "long-running", "resumed"})
_RUNS = WorkerRuns()
_LOCK = threading.Lock()
# By the id of the dask worker. A worker that was not started by `orch23 worker` gets one with its first action.
_WORKERS: dict[str, RemoteWorker] = {}


def run_remotely(cache_url: str, digest: str, topic: str, *, has_listener: bool) -> bytes:
    """Run an action in a thread of a dask worker, and return the bytes of its `Reply`.

    Its start is an event of a topic, and so are the lines that it prints, if they have a listener.
    """
    worker = get_worker()
    key = str(worker.get_current_task())

    def is_wanted() -> bool:
        if worker.status not in {Status.running, Status.paused}:
            return False  # the scheduler is gone, or has removed the worker
        # dask forgets the key when the client cancels it, closes or is gone.
        task = worker.state.tasks.get(key)
        return _RUNS.is_wanted(key, by_dask=task is not None and task.state in _WANTED)

    def send(lines: Sequence[Line]) -> None:
        worker.log_event(_RUNS.topic(key), {"key": key, "lines": [list(line) for line in lines]})

    _RUNS.begin(key, topic)
    # The scheduler adds the address of the worker.
    worker.log_event(topic, {"key": key, "lines": []})
    lines = LineBatches(send) if has_listener else None
    reply = _remote_worker(worker).run_remotely(cache_url, digest, is_wanted, lines, worker.address)
    _RUNS.end(key, reply)
    worker.loop.add_callback(worker.loop.call_later, LEASE_S + 1, _RUNS.remove_old)
    return reply


def join_action(key: str, topic: str) -> bytes | None:
    """Return the reply of an action that this worker began for an earlier client: see `WorkerRuns.join`."""
    return _RUNS.join(key, topic)


def cancel_actions(keys: Sequence[str]) -> None:
    """Kill the processes of actions of this worker. dask does not say whether a client was killed or has cancelled."""
    _RUNS.cancel(keys)


def _remote_worker(worker: Worker) -> RemoteWorker:
    with _LOCK:
        if worker.id not in _WORKERS:
            slots = ActionSlots(folder=str(_top(worker)))
            _open(worker, slots)
            # The worker tears it down when it closes, which need not be the end of the process.
            worker.loop.add_callback(worker.plugins.__setitem__, slots.name, slots)
        return _WORKERS[worker.id]


def _top(worker: Worker) -> Path:
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


async def run_worker(settings: WorkerSettings) -> int:
    """Run actions in this process until SIGTERM, or the end of the scheduler. Return the exit status."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = Worker(
        settings.scheduler,
        nthreads=settings.slots,
        plugins=(ActionSlots(folder=settings.folder, cache_url=settings.cache_url, allowed=settings.allowed),),
        local_directory=settings.folder,
        resources=dict(settings.resources),
        # Each action has its own limits; dask would pause the worker with all of its actions.
        memory_limit=0,
        death_timeout=_CONNECT_WITHIN_S,
        security=security_of(settings.scheduler, "worker"),
        host="127.0.0.1" if is_loopback(settings.scheduler) else None,
        dashboard_address="127.0.0.1:0",
    )
    clock = _LoopClock()
    try:
        await _first(worker.start(), stop.wait())
        await _first(worker.finished(), stop.wait(), clock.watch())
    except (OSError, TimeoutError) as error:
        sys.stderr.write(f"{exception_text(error)}\n")
        return NO_SCHEDULER
    finally:
        await worker.close()
    # The scheduler or a build has removed this worker, because it was frozen. It runs again.
    return WAS_FROZEN if clock.has_stood_still and not stop.is_set() else 0


class _LoopClock:
    """Notices that this process was stopped for some time, for example with its machine."""

    def __init__(self) -> None:
        self.has_stood_still = False

    async def watch(self) -> None:
        """Look at the time again and again, for ever."""
        while True:
            before_s = monotonic()
            await asyncio.sleep(_TICK_S)
            self.has_stood_still = self.has_stood_still or monotonic() > before_s + _STANDS_STILL_S


async def _first(*some: Coroutine[Any, Any, object]) -> None:
    """Wait until one of these has ended, cancel the others, and raise what it raised."""
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
    sys.exit(asyncio.run(run_worker(settings)))
