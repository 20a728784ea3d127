"""Run `worker`: run steps of builds on other machines."""

import os
import tempfile
from pathlib import Path

from orch23.cache.registry import open_shared_cache
from orch23.cli.console import Console
from orch23.cli.opening import cache_address
from orch23.execute.remote.dask_scheduler import check_scheduler, security_of, unreachable_error
from orch23.execute.remote.worker_process import WorkerProcess, WorkerSettings


def serve_worker(
    console: Console, *, scheduler: str, cache_url: str, slots: int | None, folder: str | None, allow_unsandboxed: bool
) -> None:
    """Run actions until the scheduler ends, or the process is interrupted.

    Raises:
        ConfigurationError: the scheduler or the cache must not, or cannot, be used.

    """
    check_scheduler(scheduler)
    url = cache_address(console.here, cache_url) or ""
    if url:
        open_shared_cache(url).close()
    settings = WorkerSettings(
        scheduler=scheduler,
        cache_url=url,
        slots=slots or os.cpu_count() or 1,
        folder=str((console.here / folder if folder else Path(tempfile.gettempdir())).absolute()),
        allowed=allow_unsandboxed,
    )
    security_of(scheduler, "worker")
    if not WorkerProcess(settings).serve():
        raise unreachable_error(scheduler)
