"""Whole builds on a cluster of dask: the pipeline, the results and the records are those of a build on this machine."""

import datetime as dt
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest

from tests.e2e.test_ports import whole_build
from tests.features.remote.clusters import dask_cluster
from tests.features.remote.test_conformance import processes_with, wait_until
from tests.project import Outcome, Project

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with dask_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def remote(project: Project, cluster: Any, *words: str) -> Any:
    cache = project.root.parent / "cache"
    return project.build("--executor", "dask", "--scheduler", cluster.address, "--cache", str(cache), *words)


def lock_of(project: Project) -> str:
    return (project.root / "pipeline.lock").read_text()


def builds_as_here(tmp_path: Path, remote: Callable[[Project], Outcome]) -> None:
    """Build the same project here and with another executor, and compare files, lock files and what ran."""
    here, there = (Project(tmp_path / name / "project").write(whole_build()) for name in ("here", "there"))
    assert here.build().code == 0
    done = remote(there)
    assert done.code == 0, done.err
    assert there.ran() == here.ran() == ["code", "test", "copy"]
    assert lock_of(there) == lock_of(here)
    assert {p: b for p, b in there.files().items() if p != "report.json"} == {
        p: b for p, b in here.files().items() if p != "report.json"
    }
    # The first response of the model fails its tests: an attempt, with feedback, as on this machine.
    assert "passed at attempt 2" in done.err
    # The executor is in no key: nothing is left to do, wherever one builds.
    assert there.build().err.endswith("up to date (3 stages)\n")


def test_a_build_on_a_cluster_is_the_same_as_one_on_this_machine(tmp_path: Path, cluster: Any) -> None:
    builds_as_here(tmp_path, lambda project: remote(project, cluster))


def shows_lines_live_and_redacted(project: Project, executor: str, scheduler: str, *options: str) -> None:
    """Build a step that goes on only after its first line was reported, and prints a secret of this machine."""
    secret, go_on = "Qz7-very-secret-value-19", project.root.parent / "go-on"
    command = f"cat said; while [ ! -e {go_on} ]; do sleep 0.02; done; echo the end; touch a"
    stages = {"a": {"shell": command, "inputs": ["said"], "outputs": ["a"], "sandbox": "off"}}
    text = json.dumps({"version": 1, "name": "p", "stages": stages})
    project.write({"pipeline.yaml": text, "said": f"key {secret}\n"})
    words = ("--live", "--allow-unsandboxed", "--executor", executor, "--scheduler", scheduler, *options)

    def lines() -> list[str]:
        journals = sorted((project.root / "logs").glob("*.jsonl"))
        events = [json.loads(line) for line in journals[-1].read_text().splitlines()] if journals else []
        return [one["data"]["line"] for one in events if one["type"] == "step_output"]

    with started(project.root, "build", *words, env={"MY_API_KEY": secret}) as build:
        wait_until(lines)
        assert lines() == ["key [redacted MY_API_KEY]"]
        go_on.touch()
        assert build.wait(60) == 0
    assert lines() == ["key [redacted MY_API_KEY]", "the end"]


def test_lines_are_reported_while_a_step_runs_and_without_secrets(project: Project, tmp_path: Path) -> None:
    with dask_cluster(tmp_path / "workers", options=("--allow-unsandboxed",)) as cluster:
        shows_lines_live_and_redacted(project, "dask", cluster.address, "--cache", "cache")


@pytest.mark.needs("doctor")
def test_doctor_asks_the_scheduler(project: Project, cluster: Any) -> None:
    project.write({"pipeline.yaml": "version: 1\nexecutor: dask\nstages: {a: {shell: echo a > a, outputs: [a]}}\n"})
    env = {"ORCH23_BUILD_SCHEDULER": cluster.address, "ORCH23_BUILD_CACHE": "cache"}
    shown = project.run("doctor", "--online", env=env).out
    assert re.search(
        rf"executor +`dask`, with the scheduler {cluster.address}, whose workers have [1-9]\d* slots?\n", shown
    )


def test_a_stage_without_a_sandbox_needs_permission_on_both_sides(project: Project, cluster: Any) -> None:
    stages = {"a": {"shell": "echo a > a", "outputs": ["a"], "sandbox": "off"}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    refused = remote(project, cluster)
    assert (refused.code, "E484" in refused.err) == (78, True), refused.err
    allowed_here = remote(project, cluster, "--allow-unsandboxed")
    assert (allowed_here.code, "E484" in allowed_here.err) == (78, True), allowed_here.err
    assert "orch23 worker --allow-unsandboxed" in re.sub(r"\s+", " ", allowed_here.err)


def test_a_fault_of_the_cluster_is_no_attempt_of_a_stage(project: Project) -> None:
    stages = {"a": {"shell": "echo a > a", "outputs": ["a"], "retry": 3}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    done = project.build("--executor", "dask", "--scheduler", "tls://127.0.0.1:1", "--cache", "cache")
    assert done.code == 78
    assert "E488" in done.err
    assert len(project.events_of("attempt_started")) == 1
    assert project.build().code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--executor", "dask"), "E488"),
        (("--executor", "dask", "--scheduler", "tcp://127.0.0.1:1"), "E488"),
        (("--executor", "dask", "--scheduler", "tcp://10.0.0.1:8786", "--cache", "c"), "has no TLS"),
        (("--executor", "dask", "--scheduler", "tcp://[::]:8786", "--cache", "c"), "has no TLS"),
        (("--executor", "dask", "--scheduler", "10.0.0.1:8786", "--cache", "c"), "is not the address"),
        (("--executor", "dask", "--scheduler", "inproc://1", "--cache", "c"), "is not the address"),
    ],
)
def test_a_scheduler_that_must_not_be_used_is_refused(project: Project, words: tuple[str, ...], code: str) -> None:
    stages = {"a": {"shell": "echo a > a", "outputs": ["a"]}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    done = project.build(*words)
    assert (done.code, code in done.err) == (78, True), done.err
    assert not (project.root / "a").exists()


def test_the_executor_of_a_plugin_is_not_replaced(project: Project) -> None:
    stages = {"a": {"shell": "echo a > a", "outputs": ["a"]}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "executor": "acme", "stages": stages})})
    done = project.build("--executor", "dask")
    assert (done.code, "E641" in done.err) == (64, True), done.err


def cancels_steps_by_ctrl_c(project: Project, *options: str) -> None:
    """Build until a step runs, and send SIGINT: no process of the step is left, and no build looks for it."""
    seconds = f"700.{os.getpid()}{len(options)}"
    stages = {"a": {"shell": f"setsid sleep {seconds} & sleep {seconds}; touch a", "outputs": ["a"]}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    with started(project.root, "build", *options) as build:
        wait_until(lambda: len(processes_with(seconds)) >= 2)
        wait_until(lambda: noted_actions(project))
        build.send_signal(signal.SIGINT)
        build.wait(50)
    wait_until(lambda: not processes_with(seconds))
    assert noted_actions(project) == []


def finds_a_step_of_a_killed_build(project: Project, *options: str) -> None:
    """Kill a build with signal 9 while its step runs, and build again: the step is not started again."""
    beside = project.root.parent
    text = (
        f"echo started >> {beside}/starts; while [ ! -e {beside}/go-on ]; do sleep 0.02; done; echo the end; echo a > a"
    )
    stages = {"a": {"shell": text, "outputs": ["a"], "sandbox": "off"}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    words = ("build", "--allow-unsandboxed", "--live", *options)
    with started(project.root, *words) as build:
        wait_until(lambda: noted_actions(project))
        build.kill()
        build.wait(50)
    assert len(noted_actions(project)) == 1
    with started(project.root, *words) as build:
        # It is killed too, while it waits for the same step.
        wait_until(lambda: len([*(project.root / "logs").glob("*.jsonl")]) == 2)
        wait_until(lambda: "attempt_started" in newest_journal(project))
        build.kill()
        build.wait(50)
    with started(project.root, *words) as build:
        wait_until(lambda: len([*(project.root / "logs").glob("*.jsonl")]) == 3)
        wait_until(lambda: "attempt_started" in newest_journal(project))
        (beside / "go-on").touch()
        assert build.wait(60) == 0
    assert (beside / "starts").read_text() == "started\n"
    assert (project.root / "a").read_text() == "a\n"
    assert '"line":"the end"' in newest_journal(project)
    assert noted_actions(project) == []


def cancels_a_found_step(project: Project, *options: str) -> None:
    """Kill a build while its step runs, build again, and send SIGINT: no process of the step is left."""
    seconds = f"700.{os.getpid()}{len(options)}9"
    text = f"setsid sleep {seconds} & sleep {seconds} & while true; do echo tick; sleep 0.2; done; touch a"
    stages = {"a": {"shell": text, "outputs": ["a"]}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    words = ("build", "--live", *options)
    with started(project.root, *words) as build:
        wait_until(lambda: len(processes_with(seconds)) >= 2)
        wait_until(lambda: noted_actions(project))
        build.kill()
        build.wait(50)
    before = processes_with(seconds)
    with started(project.root, *words) as build:
        wait_until(lambda: len([*(project.root / "logs").glob("*.jsonl")]) == 2)
        # It hears the lines of the step that it has found.
        wait_until(lambda: '"line":"tick"' in newest_journal(project))
        assert processes_with(seconds) == before
        build.send_signal(signal.SIGINT)
        build.wait(50)
    wait_until(lambda: not processes_with(seconds))
    assert noted_actions(project) == []


def newest_journal(project: Project) -> str:
    return max((project.root / "logs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns).read_text()


def noted_actions(project: Project) -> list[Path]:
    """Return the files of actions that run elsewhere."""
    return [*(project.root / ".orch23" / "running-actions").glob("*.json")]


@pytest.fixture
def permissive(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the options for a cluster that runs steps without a sandbox."""
    with dask_cluster(tmp_path / "workers", options=("--allow-unsandboxed",)) as cluster:
        yield ("--executor", "dask", "--scheduler", cluster.address, "--cache", "cache")


def test_ctrl_c_kills_the_steps_on_the_workers(project: Project, permissive: tuple[str, ...]) -> None:
    cancels_steps_by_ctrl_c(project, *permissive)


def test_a_step_of_a_killed_build_is_found_by_the_next_one(project: Project, permissive: tuple[str, ...]) -> None:
    finds_a_step_of_a_killed_build(project, *permissive)


@pytest.mark.thorough  # that of test_reapi_builds.py stays
def test_ctrl_c_kills_a_step_of_an_earlier_build_too(project: Project, permissive: tuple[str, ...]) -> None:
    cancels_a_found_step(project, *permissive)


def started(folder: Path, *words: str, env: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start orch23 in a process of its own."""
    program = (sys.executable, "-c", "from orch23.entry import run; run()")
    return subprocess.Popen(
        (*program, *words), cwd=folder, env={**os.environ, **(env or {})}, stderr=subprocess.DEVNULL
    )


def test_a_worker_command_that_is_killed_leaves_no_process_and_the_next_one_no_folder(
    project: Project, tmp_path: Path
) -> None:
    folder, seconds, cache = tmp_path / "workers", f"700.{os.getpid()}77", str(tmp_path / "cache")
    stages = {"a": {"shell": f"setsid sleep {seconds} & sleep {seconds}; touch a", "outputs": ["a"]}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    with dask_cluster(folder) as cluster:
        options = ("--executor", "dask", "--scheduler", cluster.address, "--cache", cache)
        with started(project.root, "build", *options) as build:
            wait_until(lambda: len(processes_with(seconds)) >= 2)
            cluster.commands[0].kill()
            wait_until(lambda: not processes_with(seconds))
            # No one was left to remove it.
            assert len([*folder.glob("orch23-worker-*")]) == 1
            second = cluster.start_worker(folder)
            # The same action runs again, and does not count as an attempt of the stage.
            wait_until(lambda: len(processes_with(seconds)) >= 2)
            assert len([*folder.glob("orch23-worker-*")]) == 1
            build.send_signal(signal.SIGINT)
            build.wait(50)
        second.terminate()
        assert second.wait(50) == 0
    assert [*folder.glob("orch23-worker-*")] == []
    assert len(project.events_of("attempt_started")) == 1


def test_a_worker_that_is_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    with dask_cluster(tmp_path) as cluster:
        for _ in range(3):
            wait_until(cluster.worker_pids)
            (pid,) = cluster.worker_pids()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: pid not in cluster.worker_pids())  # noqa: B023 - called here
        wait_until(lambda: cluster.local.scheduler.workers)
        cluster.local.close()
        # It ends with its scheduler.
        assert cluster.commands[0].wait(50) == 0


def test_a_worker_that_waits_for_its_scheduler_can_be_ended(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with started(tmp_path, "worker", "--scheduler", address, "--folder", str(tmp_path / "workers")) as command:
            silent.settimeout(30)
            connection, _ = silent.accept()
            command.terminate()
            assert command.wait(50) == 0
            connection.close()
    assert [*(tmp_path / "workers").glob("orch23-worker-*")] == []


def test_the_scheduler_of_a_worker_must_be_on_this_machine_or_have_tls(project: Project) -> None:
    done = project.run("worker", "--scheduler", "tcp://10.1.1.1:8786")
    assert (done.code, "has no TLS" in done.err) == (78, True), done.err


def test_workers_that_are_killed_cost_no_attempt_and_leave_nothing(tmp_path: Path) -> None:
    """Sixteen steps, while one worker after the other is killed with signal 9."""
    folder, project = tmp_path / "workers", Project(tmp_path / "project")
    stages = {f"s{n:02}": {"shell": f"sleep 0.3; echo {n} > {n}.txt", "outputs": [f"{n}.txt"]} for n in range(16)}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    killed: list[int] = []
    ended, pause = threading.Event(), threading.Event()
    with dask_cluster(folder, workers=2) as cluster:

        def kill() -> None:
            while not ended.is_set() and len(killed) < 2:
                pause.wait(0.7)
                living = cluster.worker_pids()
                if living and not ended.is_set():
                    killed.append(living[len(killed) % len(living)])
                    os.kill(killed[-1], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            done = remote(project, cluster, "-j", "4")
        finally:
            ended.set()
            killer.join()
    assert done.code == 0, done.err
    assert len(killed) >= 2
    assert [(project.root / f"{n}.txt").read_text() for n in range(16)] == [f"{n}\n" for n in range(16)]
    assert len(project.events_of("attempt_started")) == 16
    # The last kill may have come after the last start of a worker, which removes what others left.
    with dask_cluster(folder):
        pass
    assert [*folder.glob("orch23-worker-*")] == []


def test_a_cluster_with_tls_is_used_with_the_certificates_of_dask(project: Project, tmp_path: Path) -> None:
    files = certificates(tmp_path)
    tls = {
        "distributed.comm.tls.ca-file": files["ca"],
        **{
            f"distributed.comm.tls.{role}.{part}": files[part]
            for role in ("client", "worker", "scheduler")
            for part in ("cert", "key")
        },
    }
    stages = {"a": {"shell": "echo a > a", "outputs": ["a"]}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    from distributed import Security  # noqa: PLC0415

    with dask.config.set(tls):
        given = {"protocol": "tls://", "security": Security(require_encryption=True), "env": variables(files)}
        with dask_cluster(tmp_path / "workers", **given) as cluster:
            assert cluster.address.startswith("tls://127.0.0.1:")
            done = remote(project, cluster)
            assert done.code == 0, done.err
    assert (project.root / "a").read_text() == "a\n"


def variables(files: dict[str, str]) -> dict[str, str]:
    """Return the settings of dask for a worker."""
    prefix = "DASK_DISTRIBUTED__COMM__TLS__"
    worker = {f"{prefix}WORKER__{part.upper()}": files[part] for part in ("cert", "key")}
    return {f"{prefix}CA_FILE": files["ca"], **worker}


def certificates(folder: Path) -> dict[str, str]:
    """Return the files of a certificate that signs itself."""
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "orch23 test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = {name: folder / f"{name}.pem" for name in ("cert", "key")}
    paths["cert"].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    paths["key"].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return {"ca": str(paths["cert"]), **{name: str(path) for name, path in paths.items()}}


def test_a_worker_with_another_cache_fails_no_stage_while_there_are_others(project: Project, tmp_path: Path) -> None:
    stages = {f"s{n}": {"shell": f"sleep 0.2; echo {n} > s{n}", "outputs": [f"s{n}"]} for n in range(8)}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    with dask_cluster(tmp_path / "workers") as cluster:
        cluster.start_worker(tmp_path / "workers", "--slots", "2", "--cache", str(tmp_path / "another"))
        cluster.local.wait_for_workers(2, timeout=60)
        done = project.build("--executor", "dask", "--scheduler", cluster.address, "--cache", "cache", "-j", "4")
    assert done.code == 0, done.err
    assert "8 built" in done.err


@pytest.mark.parametrize(
    ("scheduler", "code"),
    [("tcp://127.0.0.1:1", "E487"), ("tls://127.0.0.1:1", "E488")],
    ids=["gone", "no certificate"],
)
def test_no_model_is_called_if_the_cluster_cannot_be_used(
    project: Project, monkeypatch: pytest.MonkeyPatch, scheduler: str, code: str
) -> None:
    monkeypatch.setattr("orch23.features.remote.dask_engine._CONNECT_S", 1)
    project.write(whole_build())
    done = project.build("--executor", "dask", "--scheduler", scheduler, "--cache", "cache")
    assert (done.code, code in done.err) == (78, True), done.err
    assert project.journals() == []


def test_a_scheduler_without_an_executor_is_reported_unless_a_variable_names_it(project: Project) -> None:
    project.write({"pipeline.yaml": "version: 1\nname: p\nstages: {a: {shell: echo a > a, outputs: [a]}}\n"})
    done = project.build("--scheduler", "tcp://127.0.0.1:1")
    assert (done.code, "`--scheduler` has no effect" in re.sub(r"\s+", " ", done.err)) == (0, True), done.err
    (project.root / "a").unlink()
    done = project.build("--force", "a", env={"ORCH23_BUILD_SCHEDULER": "tcp://127.0.0.1:1"})
    assert (done.code, "no effect" in done.err) == (0, False), done.err
