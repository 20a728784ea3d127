"""A cluster of dask on this machine, whose workers are processes and end with this one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import LocalCluster

from orch23.execute.remote.dask_engine import silence_dask
from orch23.execute.remote.dask_worker import WorkerSettings, worker_options


@contextmanager
def dask_cluster(
    folder: Path, *, workers: int = 1, slots: int = 2, allowed: bool = False, **given: Any
) -> Iterator[Any]:
    """Yield a cluster with the workers that `orch23 worker` starts. They may be killed as often as one likes."""
    settings = WorkerSettings(scheduler="tcp://127.0.0.1:0", cache_url="", slots=slots, folder=folder, allowed=allowed)
    options = worker_options(settings)
    options["threads_per_worker"] = options.pop("nthreads")
    options["worker_dashboard_address"] = options.pop("dashboard_address")
    silence_dask()
    # Pipes to this process end the workers when it ends, however that happens.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 10_000}),
        LocalCluster(
            n_workers=workers, dashboard_address="127.0.0.1:0", silence_logs=False, **{**options, **given}
        ) as cluster,
    ):
        yield cluster
