"""Builds on jobs of Slurm, with the recipes of docs/workers.md, one of them cancelled in the middle of a build."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dask
import pytest

from tests.features.remote.clusters import dask_cluster
from tests.features.remote.test_conformance import processes_with, wait_until
from tests.features.remote.test_remote_builds import certificates, lock_of
from tests.project import Project
from tests.slurm import Slurm, running_slurm
from tests.walkthrough import blocks

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]
PAGE = Path(__file__).parents[3] / "docs" / "workers.md"
SECONDS = f"1.00{os.getpid()}"
STAGES = {f"s{n:02}": {"shell": f"sleep {SECONDS}; echo {n} > {n}.txt", "outputs": [f"{n}.txt"]} for n in range(24)}
ROLES = ("client", "worker", "scheduler")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running_slurm(tmp_path_factory.mktemp("slurm")) as made:
        yield made


def recipe(name: str, replaced: Mapping[str, str]) -> str:
    """Return a file of the page, with what differs on this machine."""
    (text,) = [block.body for block in blocks(PAGE) if block.path == name]
    for old, new in replaced.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def builds_while_a_job_is_cancelled(slurm: Slurm, folder: Path, address: str, scratch: Path) -> None:
    """Build a project here and on the jobs, of which one is cancelled with its steps, and compare all."""
    here, there = (Project(folder / name / "project") for name in ("here", "there"))
    for project in (here, there):
        project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": STAGES})})
    assert here.build("-j", "4").code == 0
    wait_until(lambda: len(slurm.jobs()) == 2)
    first, _ = slurm.jobs()
    with cancelling(slurm, first, lambda: len(processes_with(SECONDS)) == 4) as cancelled:
        options = ("--executor", "dask", "--scheduler", address, "--cache", str(folder / "cache"), "-j", "4")
        done = there.build(*options)
        assert cancelled == [first], "the build ended before"
    assert done.code == 0, done.err
    assert there.files() == here.files()
    assert lock_of(there) == lock_of(here)
    assert len(there.events_of("attempt_started")) == len(STAGES)
    # Slurm kills a job that does not end by itself; its files are removed, not those of the other one.
    wait_until(lambda: first not in slurm.run("squeue", "--noheader", "--format=%i").split())
    assert len([*scratch.glob("orch23-worker-*")]) <= len(slurm.jobs())
    assert processes_with(SECONDS) == []


@contextlib.contextmanager
def cancelling(slurm: Slurm, job: str, when: Callable[[], object]) -> Iterator[list[str]]:
    """Cancel a job as soon as something is so, in another thread."""
    cancelled: list[str] = []
    ended = threading.Event()

    def cancel() -> None:
        while not ended.wait(0.02):
            if when():
                slurm.run("scancel", job)
                cancelled.append(job)
                return

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        yield cancelled
    finally:
        ended.set()
        thread.join()


def test_a_build_on_jobs_of_dask_jobqueue_survives_scancel_and_is_the_same(slurm: Slurm, tmp_path: Path) -> None:
    if importlib.util.find_spec("dask_jobqueue") is None:
        pytest.skip("needs dask-jobqueue (pip install dask-jobqueue)")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = tmp_path / "slurm_cluster.py"
    replaced = {
        "cores=16": "cores=2",
        '"32GB"': '"500MB"',
        '"/scratch"': repr(str(scratch)),
        '"port": 8786,': '"host": "127.0.0.1",',
        "127.0.0.1:8787": "127.0.0.1:0",
        "minimum_jobs=4, maximum_jobs=4": "minimum_jobs=2, maximum_jobs=2",
    }
    program.write_text(recipe("slurm_cluster.py", replaced))
    files = certificates(tmp_path)
    tls = {f"{role}__{part}": files[part] for role in ROLES for part in ("cert", "key")} | {"ca_file": files["ca"]}
    settings = {f"DASK_DISTRIBUTED__COMM__TLS__{name.upper()}": path for name, path in tls.items()}
    settings["DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT"] = "1s"
    names = {f"distributed.comm.tls.{name.replace('__', '.').replace('_', '-')}": path for name, path in tls.items()}
    with started(program, tmp_path, {**slurm.environ, **settings}) as process, dask.config.set(names):
        address = process.stdout.readline().strip()
        assert address.startswith("tls://127.0.0.1:")
        builds_while_a_job_is_cancelled(slurm, tmp_path, address, scratch)
        # A third job takes the place of the one that was cancelled.
        wait_until(lambda: len(slurm.jobs()) == 2)
    wait_until(lambda: not slurm.run("squeue", "--noheader").strip())
    assert [*scratch.glob("orch23-worker-*")] == []


@contextlib.contextmanager
def started(program: Path, folder: Path, environ: Mapping[str, str]) -> Iterator[Any]:
    """Run a program of the page, until SIGTERM."""
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            (sys.executable, str(program)), cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def test_a_build_on_jobs_of_sbatch_survives_scancel_and_is_the_same(slurm: Slurm, tmp_path: Path) -> None:
    scratch, script = tmp_path / "scratch", tmp_path / "workers.sh"
    with dask_cluster(scratch, workers=0) as cluster:
        replaced = {
            "--array=1-4": "--array=1-2",
            "--cpus-per-task=16": "--cpus-per-task=2",
            "--mem=32G": "--mem=500M",
            "tls://scheduler.lan:8786": cluster.address,
            "/mnt/shared/cache": str(tmp_path / "cache"),
            "/scratch/orch23": str(scratch),
            "exec orch23": f"exec {Path(sys.executable).with_name('orch23')}",
        }
        script.write_text(recipe("workers.sh", replaced))
        slurm.run("sbatch", f"--output={tmp_path}/%A-%a.out", str(script))
        builds_while_a_job_is_cancelled(slurm, tmp_path, cluster.address, scratch)
        assert len(slurm.jobs()) == 1
    # A worker ends with its scheduler, and so does its job.
    wait_until(lambda: not slurm.run("squeue", "--noheader").strip())
    assert [*scratch.glob("orch23-worker-*")] == []
