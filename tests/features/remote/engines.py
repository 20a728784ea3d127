"""Executors to test: the local one, one on an engine in this process, and one on a cluster of dask."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from orch23.execute.interpreters import matching_interpreter
from orch23.execute.launch import PlainLauncher, SandboxLauncher, not_allowed_error
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.features.cache.disk import DiskCache
from orch23.features.cache.registry import open_shared_cache
from orch23.features.remote.dask_engine import lacking_text
from orch23.features.remote.engine import EngineFault, RemoteLimits, Work, digest_text
from orch23.features.remote.executor import RemoteExecutor
from orch23.features.remote.live_lines import Line, LineBatches
from orch23.features.remote.reapi_engine import make_executor
from orch23.features.remote.worker import RemoteWorker, StoredInputs
from orch23.model.ports import Surroundings
from orch23.model.text import LineListener
from orch23.store.content_store import DiskContentStore

ENVIRON = {"VIRTUAL_ENV": sys.prefix, "HOME": os.environ.get("HOME", "/"), "ACME_TOKEN": "a-secret-of-the-worker"}
QUICK = RemoteLimits(pauses_s=(0.0,), patience_s=2.0, look_each_s=0.05)


class FakeEngine:
    """Runs actions in threads of this process. `faults` are raised in place of the next submissions, in order.

    `on_reply` may change what a worker replies, and raise a fault.
    """

    def __init__(self, worker: RemoteWorker, slots: int = 2) -> None:
        self.worker, self.count = worker, slots
        self.resources: dict[str, float] = {}
        self.threads = ThreadPoolExecutor(slots)
        self.submitted: list[Work] = []
        self.faults: list[EngineFault] = []
        self.on_reply: Callable[[bytes], bytes] = bytes
        self._unwanted: dict[Future[bytes], Event] = {}

    def connect(self) -> None:
        """Do nothing: it is in this process."""

    def submit(self, work: Work, hear: LineListener | None) -> Future[bytes]:
        self.submitted.append(work)
        if self.faults:
            raise self.faults.pop(0)
        unwanted = Event()

        def run() -> bytes:
            def send(lines: Sequence[Line]) -> None:
                for line, cut in lines:
                    if hear is not None:
                        hear(line, cut=cut)

            batches = LineBatches(send)
            reply = self.worker.run_remotely(
                work.cache_url, digest_text(work.action), lambda: not unwanted.is_set(), batches
            )
            if unwanted.is_set():
                raise CancelledError
            return self.on_reply(reply)

        future = self.threads.submit(run)
        self._unwanted[future] = unwanted
        return future

    def cancel(self, submission: Any) -> None:
        self._unwanted[submission].set()
        submission.cancel()

    def release(self, submission: Any) -> None:
        del self._unwanted[submission]

    def slots(self) -> int:
        return self.count

    def lacking(self, resources: Mapping[str, float]) -> str:
        return lacking_text(resources, [self.resources])

    def known(self, _submission: Any) -> str:
        return ""

    def close(self) -> None:
        self.threads.shutdown()


class Rig:
    """An executor with its contents, and its cache if it has one."""

    def __init__(
        self, executor: Any, contents: DiskContentStore, cache: Path | None = None, engine: Any = None
    ) -> None:
        self.executor, self.contents, self.cache, self.engine = executor, contents, cache, engine
        self.is_nested = False
        """Whether its sandboxes are inside of one of the engine."""


@contextmanager
def local_rig(folder: Path, workers: int = 2, *, allowed: bool = False) -> Iterator[Rig]:
    """Yield the executor of this machine."""
    contents = DiskContentStore(folder / "contents")
    executor = LocalExecutor(
        sandbox_dirs=SandboxDirs(folder / "rooms", StoredInputs(contents)),
        contents=contents,
        workers=workers,
        interpreters=partial(matching_interpreter, root=folder, environ=ENVIRON),
        launcher=SandboxLauncher(best_tier_once),
        unconfined=PlainLauncher(None if allowed else not_allowed_error()),
    )
    try:
        yield Rig(executor, contents)
    finally:
        executor.close()


@contextmanager
def remote_rig(folder: Path, engine: Any, *, limits: RemoteLimits = QUICK, **given: Any) -> Iterator[Rig]:
    """Yield an executor on an engine, with a cache in a directory."""
    contents, cache = DiskContentStore(folder / "contents"), folder / "cache"
    url = given.pop("cache_url", str(cache))
    executor = RemoteExecutor(
        engine, DiskCache(cache), cache_url=url, contents=contents, workers=2, limits=limits, **given
    )
    try:
        yield Rig(executor, contents, cache, engine)
    finally:
        executor.close()


@contextmanager
def fake_rig(folder: Path, *, worker: dict[str, Any] | None = None, **given: Any) -> Iterator[Rig]:
    """Yield an executor on an engine in this process."""
    with ExitStack() as stack:
        remote = RemoteWorker(folder / "worker", slots=2, environ=ENVIRON, **(worker or {}))
        stack.callback(remote.close)
        yield stack.enter_context(remote_rig(folder, FakeEngine(remote), **given))


@contextmanager
def reapi_rig(
    folder: Path, scheduler: str, *, limits: RemoteLimits = QUICK, workers: int = 2, **given: Any
) -> Iterator[Rig]:
    """Yield an executor on a server of the Remote Execution API, as a build makes it."""
    contents = DiskContentStore(folder / "contents")
    surroundings = Surroundings(
        contents=contents,
        workers=workers,
        environ={},
        redact=str,
        open_cache=open_shared_cache,
        scheduler=scheduler,
        **given,
    )
    executor = make_executor(surroundings)
    executor._limits = limits
    try:
        yield Rig(executor, contents, engine=executor._engine)
    finally:
        executor.close()
