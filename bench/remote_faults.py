"""Measure a cluster of dask on this machine while its workers are killed.

`python -m bench.remote_faults [ACTIONS]`

Prints how often actions were submitted and started, the time in comparison with this machine, and what was left behind.
"""

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from orch23.features.cache.registry import open_shared_cache
from orch23.features.remote.dask_engine import DaskEngine
from orch23.features.remote.executor import RemoteExecutor
from orch23.model.action import Action, ActionOutcome, Completed
from orch23.model.digest import FileEntry
from orch23.store.content_store import DiskContentStore
from tests.features.remote.clusters import dask_cluster
from tests.features.remote.engines import local_rig

ACTIONS = 1000
KILL_EACH_S = 2.5
"""The mean time between two kills. A worker starts in about two seconds."""
WORKERS, SLOTS = 3, 2
ALLOW = ("--allow-unsandboxed",)
_SEED = 23
# Without a sandbox, so that each start leaves a line outside.
_COMMAND = "echo $0 >> $1; sleep 0.2 & wait; { cat in.txt; seq 200; } > out.txt"


def main(count: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as name:
        folder = Path(name)
        with local_rig(folder / "local", WORKERS * SLOTS, allowed=True) as rig:
            here, local_s, _ = measured(rig.executor.run, rig.contents, folder / "local-starts", count)
        with dask_cluster(folder / "calm-workers", workers=WORKERS, slots=SLOTS, options=ALLOW) as cluster:
            calm, calm_s, starts, submissions = remote(folder / "calm", cluster, count)
        print(f"local: {count} actions in {local_s:.1f} s")
        print(f"dask, {WORKERS} workers with {SLOTS} slots: {calm_s:.1f} s, {submissions} submissions, {starts} starts")
        ended = threading.Event()
        with dask_cluster(folder / "workers", workers=WORKERS, slots=SLOTS, options=ALLOW) as cluster:
            killed: list[int] = []
            killer = threading.Thread(target=kill_workers, args=(cluster, ended, killed))
            killer.start()
            try:
                there, faulty_s, starts, submissions = remote(folder / "faulty", cluster, count)
            finally:
                ended.set()
                killer.join()
        # The next worker removes what the last kill may have left.
        with dask_cluster(folder / "workers"):
            pass
        left = [*(folder / "workers").glob("orch23-worker-*")]
        print(
            f"dask, {len(killed)} workers killed: {faulty_s:.1f} s, {submissions} submissions, {starts} starts; "
            f"outputs identical: {here == calm == there}; folders left: {len(left)}; processes left: {orphans(folder)}"
        )


def remote(folder: Path, cluster: Any, count: int) -> tuple[list[str], float, int, int]:
    """Return the outputs of all actions on a cluster, the time, and how many were started and submitted."""
    contents, cache = DiskContentStore(folder / "contents"), str(folder / "cache")
    executor = RemoteExecutor(
        DaskEngine(cluster.address),
        open_shared_cache(cache),
        cache_url=cache,
        contents=contents,
        workers=WORKERS * SLOTS,
        on_fault=lambda reason: print(f"submitted again: {reason}"),
    )
    try:
        found, duration_s, starts = measured(executor.run, contents, folder / "starts", count)
    finally:
        executor.close()
    return found, duration_s, starts, executor.submissions


def measured(
    run: Callable[[Action], ActionOutcome], contents: DiskContentStore, starts: Path, count: int
) -> tuple[list[str], float, int]:
    """Return the digests of all outputs, the time in seconds, and how many actions were started."""

    def one(number: int) -> str:
        entry = FileEntry(contents.put(f"{number}\n".encode()))
        argv = ("bash", "-c", _COMMAND, str(number), str(starts))
        outcome = run(Action(argv=argv, inputs={"in.txt": entry}, sandbox=False))
        assert isinstance(outcome, Completed), outcome
        return outcome.result.written["out.txt"].digest.sha256

    began = time.monotonic()
    with ThreadPoolExecutor(WORKERS * SLOTS) as threads:
        found = list(threads.map(one, range(count)))
    return found, time.monotonic() - began, len(starts.read_text().splitlines())


def kill_workers(cluster: Any, ended: threading.Event, killed: list[int]) -> None:
    """Kill a random worker, again and again."""
    numbers = random.Random(_SEED)  # noqa: S311 - the same kills each time
    while not ended.wait(KILL_EACH_S * numbers.uniform(0.5, 1.5)):
        living = cluster.worker_pids()
        if living:
            killed.append(numbers.choice(living))
            os.kill(killed[-1], signal.SIGKILL)


def orphans(folder: Path) -> int:
    """Count the processes of actions that still run."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += os.fsencode(folder) in (process / "cmdline").read_bytes()
        except OSError:
            continue
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else ACTIONS)
