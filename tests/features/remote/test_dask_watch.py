"""Workers of dask that are frozen, not dead: their actions run elsewhere, and nothing is left when they go on."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from orch23.features.remote.dask_engine import FROZEN_S, DaskEngine, WorkerWatch
from orch23.features.remote.dask_submission import FoundSubmission, Place
from orch23.features.remote.running_actions import ActionFiles
from orch23.model.action import Action, Completed
from tests.features.remote.clusters import Cluster, dask_cluster
from tests.features.remote.engines import Rig, remote_rig
from tests.features.remote.test_conformance import processes_with, wait_until


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def looks(watch: WorkerWatch, clock: Clock, seconds: float, **heartbeats_s: float) -> tuple[str, ...]:
    """Look as often as an engine does, for some seconds, and return what the last look finds."""
    found: tuple[str, ...] = ()
    until_s = clock.now_s + seconds
    while clock.now_s < until_s:
        clock.now_s += watch.each_s
        found = watch.frozen(heartbeats_s)
    return found


def test_a_worker_without_heartbeats_is_frozen_after_a_minute_by_the_clock_of_the_client() -> None:
    clock = Clock()
    watch = WorkerWatch(clock=clock)
    assert looks(watch, clock, FROZEN_S, w1=7e9, w2=1.0) == ()
    assert looks(watch, clock, 10, w1=7e9, w2=2.0) == ("w1",)
    assert looks(watch, clock, 10, w1=7e9 + 1, w2=2.0) == (), "it goes on"
    assert looks(watch, clock, FROZEN_S - 15, w1=7e9 + 2, w2=2.0) == ()
    assert looks(watch, clock, 10, w1=7e9 + 3, w2=2.0) == ("w2",)


def test_how_long_nothing_was_heard_of_a_worker_is_known() -> None:
    clock = Clock()
    watch = WorkerWatch(clock=clock)
    assert watch.silent_s("w1") == 0
    looks(watch, clock, 50, w1=7.0)
    assert watch.silent_s("w1") == 45
    looks(watch, clock, 5, w1=8.0)
    assert watch.silent_s("w1") == 0
    engine = DaskEngine("tcp://nowhere", watch=watch)
    found = FoundSubmission(Place("w1", "key"), threading.Event().wait, lambda: pytest.fail("submitted"))  # type: ignore[arg-type]
    assert engine.known(found) == ""
    looks(watch, clock, 45, w1=8.0)
    assert engine.known(found) == "no word from its worker for 45.0s"
    found.worker = ""
    assert engine.known(found) == "waiting for a worker"
    found.is_unwanted.set()


def test_time_without_looks_is_not_that_of_a_worker() -> None:
    clock = Clock()
    watch = WorkerWatch(clock=clock)
    watch.frozen({"w1": 1.0})
    clock.now_s += 10 * FROZEN_S  # this process was stopped, or the scheduler did not reply
    assert watch.frozen({"w1": 1.0}) == ()


def test_a_worker_that_is_gone_is_forgotten() -> None:
    clock = Clock()
    watch = WorkerWatch(clock=clock)
    looks(watch, clock, FROZEN_S, w1=1.0)
    watch.frozen({})
    assert looks(watch, clock, 10, w1=1.0) == ()


def freeze_and_replace(rig: Rig, cluster: Cluster, action: Action, folder: Path, seconds: str) -> None:
    """Freeze a worker while it runs an action, with another one beside it, and let the first go on afterwards."""
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(rig.executor.run(action)))
    thread.start()
    wait_until(lambda: processes_with(seconds))
    wait_until(lambda: any(one.worker for one in [*rig.engine._submitted.values()]))
    (frozen,) = cluster.worker_pids()
    cluster.start_worker(folder, "--slots", "2", "--allow-unsandboxed")
    wait_until(lambda: len(cluster.local.scheduler.workers) == 2)
    os.kill(frozen, signal.SIGSTOP)
    try:
        thread.join(40)
        (outcome,) = outcomes
        assert isinstance(outcome, Completed), outcome
        assert rig.contents.get(outcome.result.written["x"].digest) == b"second\n"
        assert processes_with(seconds), "the frozen one cannot kill its step"
    finally:
        os.kill(frozen, signal.SIGCONT)
    wait_until(lambda: not processes_with(seconds))
    wait_until(lambda: not Path(f"/proc/{frozen}").exists())


@pytest.mark.slow
def test_the_action_of_a_frozen_worker_runs_elsewhere_and_nothing_is_left_when_it_goes_on(tmp_path: Path) -> None:
    seconds, workers, warnings = f"700.{id(tmp_path)}", tmp_path / "workers", list[str]()
    text = f"if mkdir {tmp_path}/first; then sleep {seconds}; echo first > x; else echo second > x; fi"
    action = Action(argv=("bash", "-c", text), inputs={}, sandbox=False)
    with dask_cluster(workers, options=("--allow-unsandboxed",)) as cluster:
        engine = DaskEngine(cluster.address, warn=warnings.append, watch=WorkerWatch(7.0))
        with remote_rig(tmp_path, engine) as rig:
            freeze_and_replace(rig, cluster, action, workers, seconds)
            assert rig.executor.submissions == 1
            assert ["is frozen" in one for one in warnings if "started again" not in one] == [True]
            # Its command starts it again, and it is used again.
            wait_until(lambda: len(cluster.local.scheduler.workers) == 2)
            assert isinstance(rig.executor.run(action), Completed)
            wait_until(lambda: not cluster.local.scheduler.tasks)
    assert [*workers.glob("orch23-worker-*")] == []


@pytest.mark.slow
def test_an_action_of_a_killed_build_on_a_frozen_worker_is_submitted_again(tmp_path: Path) -> None:
    seconds, workers, running = f"700.{id(tmp_path)}", tmp_path / "workers", tmp_path / "running"
    text = f"if mkdir {tmp_path}/first; then sleep {seconds}; echo first > x; else echo second > x; fi"
    action = Action(argv=("bash", "-c", text), inputs={}, sandbox=False)
    with dask_cluster(workers, options=("--allow-unsandboxed",)) as cluster:
        with remote_rig(tmp_path / "killed", DaskEngine(cluster.address, ActionFiles(running))) as killed:
            threading.Thread(target=lambda: killed.executor.run(action), daemon=True).start()
            wait_until(lambda: [*running.glob("*.json")])
            # As the kill of its process: the connection ends, and nothing is cancelled.
            kept = {path: path.read_bytes() for path in running.iterdir()}
            killed.engine.cancel = lambda _submission: None
            killed.engine._client().close()
        for path, data in kept.items():
            path.write_bytes(data)
        engine = DaskEngine(cluster.address, ActionFiles(running), watch=WorkerWatch(3.0))
        with remote_rig(tmp_path / "next", engine) as rig:
            rig.executor._cache_url = str(tmp_path / "next" / "cache")
            freeze_and_replace(rig, cluster, action, workers, seconds)
            assert [*running.iterdir()] == []
