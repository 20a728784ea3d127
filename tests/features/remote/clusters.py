"""A scheduler of dask in this process, with workers that are processes of `orch23 worker` and end with it."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from distributed import LocalCluster

from orch23.features.remote.dask_engine import silence_dask

_PROGRAM = (sys.executable, "-c", "from orch23.entry import run; run()", "worker")


class Cluster:
    """The address of a scheduler, and the processes of its workers."""

    def __init__(self, local: Any) -> None:
        self.local, self.address = local, local.scheduler_address
        self.commands: list[subprocess.Popen[bytes]] = []

    def start_worker(
        self, folder: Path, *options: str, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start one process of `orch23 worker`."""
        words = ("--scheduler", self.address, "--folder", str(folder), *options)
        command = subprocess.Popen((*_PROGRAM, *words), env={**os.environ, **(env or {})}, stderr=subprocess.DEVNULL)
        self.commands.append(command)
        return command

    def worker_pids(self) -> list[int]:
        """Return the processes that run actions, also those that still start."""
        parents = {command.pid for command in self.commands}
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent in parents:
                found.append(int(process.name))
        return found


@contextmanager
def dask_cluster(
    folder: Path, *, workers: int = 1, slots: int = 2, options: tuple[str, ...] = (), **given: Any
) -> Iterator[Cluster]:
    """Yield a cluster. `options` are those of `orch23 worker`; `given` is for the scheduler.

    When this process ends, so does the scheduler, and its workers end with it.
    """
    env = given.pop("env", None)
    silence_dask()
    usual = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tcp://"}
    with ExitStack() as stack:
        local = stack.enter_context(
            LocalCluster(n_workers=0, processes=False, silence_logs=False, **{**usual, **given})
        )
        cluster = Cluster(local)
        stack.callback(end_all, cluster)
        for _ in range(workers):
            cluster.start_worker(folder, "--slots", str(slots), *options, env=env)
        local.scheduler.allowed_failures = 10_000
        if workers:
            local.wait_for_workers(workers, timeout=60)
        yield cluster


def end_all(cluster: Cluster) -> None:
    """End all workers, and wait for that."""
    for command in cluster.commands:
        command.terminate()
    for command in cluster.commands:
        assert command.wait(30) in {0, -signal.SIGTERM, -signal.SIGKILL}  # SIGTERM: it was still starting


@contextmanager
def plain_cluster(folder: Path, *, workers: int = 1, processes: bool = True) -> Iterator[str]:
    """Yield the address of a cluster whose workers are dask's own, not those of `orch23 worker`."""
    silence_dask()
    # Dask sets variables for the processes that it starts.
    with patch.dict(os.environ):
        local = LocalCluster(
            n_workers=workers,
            threads_per_worker=2,
            processes=processes,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            protocol="tcp://",
            local_directory=str(folder),
            silence_logs=logging.CRITICAL,
        )
    with local:
        yield local.scheduler_address
