"""Run `worker`: run steps of builds on other machines."""

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orch23.cli.console import Console
from orch23.cli.opening import cache_address
from orch23.features.cache.server_login import engine_opener
from orch23.features.remote.dask_scheduler import check_scheduler, security_of
from orch23.features.remote.engine import refuse_scheduler
from orch23.features.remote.single_action import run_single_action
from orch23.features.remote.worker_process import WorkerProcess, WorkerSettings
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import UsageError
from orch23.model.fields import Problems
from orch23.model.language import NAME_PATTERN, SIZE_PATTERN


def serve_worker(
    console: Console,
    *,
    address: str | None,
    once: str | None,
    cache_url: str,
    slots: int | None,
    resources: tuple[str, ...],
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
        if address is not None or cache_url or slots is not None or resources:
            message = "`--once` does not go with `--scheduler`, `--cache`, `--slots` or `--resource`"
            raise UsageError(Diagnostic("E641", message, hint="remove one of them"))
        run_single_action(console.here, once, top, sys.stdout, allowed=allow_unsandboxed)
        return
    offered = parse_resources(resources)
    address = address or ""
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
        resources=offered,
    )
    security_of(address, "worker")
    if not WorkerProcess(settings).serve():
        hint = "check its address, its certificates, and that it runs"
        refuse_scheduler(f"the scheduler {address} cannot be reached", hint)


def parse_resources(texts: Sequence[str]) -> dict[str, float]:
    """Return the resources of `--resource`: name -> amount, sizes in bytes.

    Raises:
        UsageError: one of them cannot be read, or is there twice; with all of these.
    """
    found: dict[str, float] = {}
    wrong: list[str] = []
    for text in texts:
        name, _, amount = text.partition("=")
        is_new, at = name not in found, Problems("")
        if re.fullmatch(NAME_PATTERN, name) and re.fullmatch(SIZE_PATTERN, amount) and is_new:
            found[name] = at.quantity(name, amount)
        if not is_new or name not in found or at.found:
            wrong.append(text)
    if wrong:
        hint = "write `--resource gpu=1` or `--resource memory=16GiB`, each name once"
        raise UsageError(
            *(Diagnostic("E641", f"`--resource {one}` is not a name with an amount", hint=hint) for one in wrong)
        )
    return found
