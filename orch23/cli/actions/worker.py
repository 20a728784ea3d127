"""Run `worker`: run steps of builds on other machines."""

import os
import tempfile
from pathlib import Path

from orch23.cache.registry import open_shared_cache
from orch23.cli.console import Console
from orch23.cli.opening import cache_address
from orch23.execute.remote.dask_engine import check_scheduler, connection_error


def serve_worker(
    console: Console, *, scheduler: str, cache: str, slots: int | None, folder: str | None, allow_unsandboxed: bool
) -> None:
    """Run actions until the scheduler ends, or the process is interrupted.

    Raises:
        ConfigurationError: the scheduler or the cache must not, or cannot, be used.

    """
    check_scheduler(scheduler)
    url = cache_address(console.here, cache) or ""
    if url:
        open_shared_cache(url).close()
    from orch23.execute.remote.dask_worker import WorkerSettings, serve  # noqa: PLC0415 - loads dask

    settings = WorkerSettings(
        scheduler=scheduler,
        cache_url=url,
        slots=slots or os.cpu_count() or 1,
        folder=(console.here / folder if folder else Path(tempfile.gettempdir())).absolute(),
        allowed=allow_unsandboxed,
    )
    try:
        serve(settings)
    except (OSError, TimeoutError) as error:
        raise connection_error(scheduler, error) from error
