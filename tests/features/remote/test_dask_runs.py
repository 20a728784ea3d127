"""Actions on a dask worker whose client is gone: they go on for a lease, for the next client, and not longer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from orch23.features.remote import dask_runs
from orch23.features.remote.dask_engine import DaskEngine, silence_dask
from orch23.features.remote.dask_runs import LEASE_S, RUNNING, WorkerRuns
from orch23.features.remote.dask_submission import Place
from orch23.features.remote.dask_worker import ActionSlots
from orch23.features.remote.engine import Work
from orch23.features.remote.running_actions import ActionFiles
from orch23.model.action import Action, Completed
from orch23.model.digest import digest_bytes
from tests.features.remote.engines import remote_rig
from tests.features.remote.test_conformance import processes_with, wait_until


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def runs(clock: Clock) -> WorkerRuns:
    return WorkerRuns(clock)


def test_an_action_goes_on_for_a_lease_after_dask_has_forgotten_it(runs: WorkerRuns, clock: Clock) -> None:
    runs.begin("k", "topic")
    clock.now_s += 5 * LEASE_S
    assert runs.is_wanted("k", by_dask=True), "for any time while its client is there"
    clock.now_s += LEASE_S - 1
    assert runs.is_wanted("k", by_dask=False)
    clock.now_s += 2
    assert not runs.is_wanted("k", by_dask=False)


def test_a_client_that_asks_again_and_again_renews_the_lease_and_gets_lines_and_reply(
    runs: WorkerRuns, clock: Clock
) -> None:
    runs.begin("k", "topic")
    for _ in range(3):
        clock.now_s += LEASE_S - 1
        assert runs.join("k", "other") == RUNNING
        assert runs.is_wanted("k", by_dask=False)
    assert runs.topic("k") == "other"
    runs.end("k", b"reply")
    clock.now_s += LEASE_S - 1
    assert runs.join("k", "other") == b"reply"
    clock.now_s += LEASE_S + 1
    runs.remove_old()
    assert runs.join("k", "other") is None
    assert runs._runs == {}


def test_a_cancelled_action_ends_at_once_also_if_dask_wants_it_or_starts_it_later(runs: WorkerRuns) -> None:
    runs.begin("k", "topic")
    runs.cancel(["k", "later"])
    runs.begin("later", "topic")
    assert not runs.is_wanted("k", by_dask=True)
    assert not runs.is_wanted("later", by_dask=True)
    assert runs.join("k", "topic") is None


def test_a_worker_keeps_a_limited_number_of_replies(runs: WorkerRuns) -> None:
    runs.begin("running", "topic")
    for number in range(2000):
        runs.begin(str(number), "topic")
        runs.end(str(number), b"reply")
    assert len(runs._runs) <= 1 + dask_runs._MAX_KEPT
    assert runs.join("running", "topic") == RUNNING
    assert runs.join("1999", "topic") == b"reply"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    """Run a scheduler and a worker in threads of this process."""
    silence_dask()
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=False,
        local_directory=str(tmp_path),
        plugins=(ActionSlots(folder=str(tmp_path / "worker"), allowed=True),),
    ) as made:
        yield made


@pytest.mark.slow
def test_without_a_client_the_processes_are_killed_after_the_lease(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_runs, "LEASE_S", 1.5)
    seconds = f"700.{id(tmp_path)}"
    with remote_rig(tmp_path, DaskEngine(cluster.scheduler_address)) as rig:
        digest = rig.contents.put(Action(argv=("sleep", seconds), inputs={}, sandbox=False).to_bytes())
        rig.executor._transfers.upload([digest])
        rig.engine.submit(Work(str(rig.cache), digest), None)
        wait_until(lambda: processes_with(seconds))
        # As after the kill of a build: its connection ends, and it has cancelled nothing.
        rig.engine._client().close()
        wait_until(lambda: not processes_with(seconds))
    assert cluster.scheduler.tasks == {}


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
def test_an_action_that_is_not_found_is_submitted(cluster: Any, tmp_path: Path, is_there: bool) -> None:
    worker = cluster.workers[0].address if is_there else "tcp://127.0.0.1:1"
    action = Action(argv=("bash", "-c", "echo x > x"), inputs={}, sandbox=False)
    digest, place = digest_bytes(action.to_bytes()), Place(worker, "no-such-key").to_text()
    ActionFiles(tmp_path / "running").note(cluster.scheduler_address, digest, place)
    engine = DaskEngine(cluster.scheduler_address, ActionFiles(tmp_path / "running"))
    with remote_rig(tmp_path, engine) as rig:
        outcome = rig.executor.run(action)
        assert isinstance(outcome, Completed), outcome
        assert (rig.executor.submissions, [*outcome.result.written]) == (1, ["x"])
    assert [*(tmp_path / "running").iterdir()] == []
