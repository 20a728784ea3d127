"""Whole builds on a server of the Remote Execution API: the same results and records as on this machine."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.features.remote.test_remote_builds import (
    builds_as_here,
    cancels_a_found_step,
    cancels_steps_by_ctrl_c,
    finds_a_step_of_a_killed_build,
    shows_lines_live_and_redacted,
)
from tests.project import Project
from tests.reapi_workers import ExecutionServer, scheduler_of, serving_executions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutionServer]:
    with serving_executions(tmp_path_factory.mktemp("server")) as made:
        yield made


def remote(project: Project, server: ExecutionServer, *words: str) -> Any:
    return project.build("--executor", "reapi", "--scheduler", scheduler_of(server), *words)


def one_stage(**given: Any) -> dict[str, str]:
    stages = {"a": {"shell": "echo a > a", "outputs": ["a"], **given}}
    return {"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})}


def test_a_build_on_a_server_is_the_same_as_one_on_this_machine(tmp_path: Path, server: ExecutionServer) -> None:
    builds_as_here(tmp_path, lambda project: remote(project, server))


def test_lines_are_reported_while_a_step_runs_and_without_secrets(project: Project, server: ExecutionServer) -> None:
    shows_lines_live_and_redacted(project, "reapi", scheduler_of(server))


def test_a_stage_without_a_sandbox_needs_permission(project: Project, server: ExecutionServer) -> None:
    project.write(one_stage(sandbox="off"))
    refused = remote(project, server)
    assert (refused.code, "E484" in refused.err) == (78, True), refused.err
    assert remote(project, server, "--allow-unsandboxed").code == 0


def test_workers_without_orch23_run_steps_without_a_sandbox_only(project: Project, server: ExecutionServer) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    scheduler = f"{server.url}?orch23=none&orch23-python={version}"
    options = ("--executor", "reapi", "--allow-unsandboxed", "--scheduler")
    project.write(one_stage())
    refused = project.build(*options, scheduler)
    assert (refused.code, "E488" in refused.err, "needs a sandbox" in refused.err) == (78, True, True), refused.err
    project.write(one_stage(sandbox="off"))
    refused = project.build(*options, f"{server.url}?orch23=none")
    assert (refused.code, f"orch23-python={version}" in refused.err) == (78, True), refused.err
    done = project.build(*options, scheduler)
    assert (done.code, (project.root / "a").read_text()) == (0, "a\n"), done.err


def test_a_fault_of_the_server_is_no_attempt_of_a_stage(project: Project, server: ExecutionServer) -> None:
    project.write(one_stage(retry=3))
    done = project.build("--executor", "reapi", "--scheduler", f"{server.url}?orch23=/no/such/program")
    assert (done.code, "E487" in done.err) == (78, True), done.err
    assert len(project.events_of("attempt_started")) == 1
    assert project.build().code == 0


@pytest.mark.parametrize("scheduler", ["", "grpc://build.example:8980", "tcp://127.0.0.1:1"])
def test_a_server_that_must_not_be_used_is_refused(project: Project, scheduler: str) -> None:
    project.write(one_stage())
    done = project.build("--executor", "reapi", "--scheduler", scheduler)
    assert (done.code, "E488" in done.err) == (78, True), done.err
    assert not (project.root / "a").exists()


def options_of(server: ExecutionServer, kind: str) -> tuple[str, ...]:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    plain = f"{server.url}?orch23=none&orch23-python={version}"
    scheduler = scheduler_of(server) if kind == "orch23" else plain
    return ("--executor", "reapi", "--scheduler", scheduler)


def test_ctrl_c_kills_the_steps_on_the_workers(project: Project, server: ExecutionServer) -> None:
    cancels_steps_by_ctrl_c(project, *options_of(server, "orch23"))


@pytest.mark.stride(2)
@pytest.mark.parametrize("kind", ["orch23", "plain"])
def test_a_step_of_a_killed_build_is_found_by_the_next_one(
    project: Project, server: ExecutionServer, kind: str
) -> None:
    finds_a_step_of_a_killed_build(project, *options_of(server, kind))


def test_ctrl_c_kills_a_step_of_an_earlier_build_too(project: Project, server: ExecutionServer) -> None:
    cancels_a_found_step(project, *options_of(server, "orch23"))


def test_the_options_of_a_worker_must_fit(project: Project) -> None:
    done = project.run("worker", "--once", "x/1", "--scheduler", "tcp://127.0.0.1:1")
    assert (done.code, "E641" in done.err) == (64, True), done.err
    done = project.run("worker")
    assert (done.code, "E488" in done.err) == (78, True), done.err
