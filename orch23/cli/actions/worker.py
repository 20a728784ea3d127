"""Run `worker`: run steps of builds on other machines."""

import os
import tempfile
from pathlib import Path

from orch23.cli.console import Console
from orch23.cli.opening import cache_address
from orch23.execute.remote.dask_scheduler import check_scheduler, security_of, unreachable_error
from orch23.execute.remote.single_action import run_single_action
from orch23.execute.remote.worker_process import WorkerProcess, WorkerSettings
from orch23.execute.server_login import engine_opener
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import UsageError


def serve_worker(
    console: Console,
    *,
    scheduler: str | None,
    once: str | None,
    cache_url: str,
    slots: int | None,
    folder: str | None,
    allow_unsandboxed: bool,
) -> None:
    """Run actions until the scheduler ends, or the process is interrupted; or one action in this folder.

    Raises:
        ConfigurationError: the scheduler or the cache must not, or cannot, be used.
        UsageError: the options do not fit together.

    """
    top = console.here / folder if folder else None
    if once is not None:
        if scheduler is not None or cache_url or slots is not None:
            message = "`--once` does not go with `--scheduler`, `--cache` or `--slots`"
            raise UsageError(Diagnostic("E641", message, hint="remove one of them"))
        run_single_action(console.here, once, top, allowed=allow_unsandboxed)
        return
    address = scheduler or ""
    check_scheduler(address)
    folder_path = (top or Path(tempfile.gettempdir())).absolute()
    url = cache_address(console.here, cache_url) or ""
    if url:
        engine_opener(folder_path, console.environ)(url).close()
    settings = WorkerSettings(
        scheduler=address,
        cache_url=url,
        slots=slots or os.cpu_count() or 1,
        folder=str(folder_path),
        allowed=allow_unsandboxed,
    )
    security_of(address, "worker")
    if not WorkerProcess(settings).serve():
        raise unreachable_error(address)
