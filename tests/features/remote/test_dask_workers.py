"""Builds on clusters with workers of dask itself, and builds and workers that log in to their cache."""

import json
from pathlib import Path

import pytest

from orch23.model.shared_cache import HELPER_VARIABLE
from tests.cache_server import serving_cache
from tests.environments import executable
from tests.features.remote.clusters import dask_cluster, plain_cluster
from tests.features.remote.test_remote_builds import builds_as_here
from tests.project import Outcome, Project

pytestmark = pytest.mark.slow


@pytest.mark.stride(2)
@pytest.mark.parametrize("processes", [True, False])
def test_a_build_on_the_workers_of_dask_is_the_same_and_leaves_nothing(tmp_path: Path, processes: bool) -> None:
    scratch = tmp_path / "scratch"
    made: list[Path] = []

    def build(project: Project) -> Outcome:
        with plain_cluster(scratch, workers=2, processes=processes) as address:
            options = ("--executor", "dask", "--scheduler", address, "--cache", str(tmp_path / "cache"))
            done = project.build(*options)
            made.extend(scratch.glob("orch23-worker-*"))
            return done

    builds_as_here(tmp_path, build)
    assert made
    assert [*scratch.glob("orch23-worker-*")] == []


def test_worker_and_build_log_in_to_a_cache_each_with_their_own_helper(tmp_path: Path, project: Project) -> None:
    def helper(name: str) -> dict[str, str]:
        script = f'#!/bin/sh\necho \'{{"headers": {{"Authorization": ["Bearer of-{name}"]}}}}\'\n'
        return {HELPER_VARIABLE: str(executable(tmp_path / name, script.encode()))}

    stages = {"a": {"shell": "cat in.txt > a", "inputs": ["in.txt"], "outputs": ["a"]}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages}), "in.txt": "some text\n"})
    with serving_cache() as server:
        server.accepted = {"Bearer of-worker", "Bearer of-build"}
        options = ("--cache", server.url)
        with dask_cluster(tmp_path / "workers", options=options, env=helper("worker")) as cluster:
            words = ("--executor", "dask", "--scheduler", cluster.address, *options)
            done = project.build(*words, env=helper("build"))
        assert done.code == 0, done.err
        assert {one.get("authorization") for one in server.headers} == server.accepted
    assert (project.root / "a").read_text() == "some text\n"


def test_a_worker_whose_helper_fails_does_not_start(project: Project, tmp_path: Path) -> None:
    words = ("worker", "--scheduler", "tcp://127.0.0.1:1", "--cache", "http://127.0.0.1:1/c", "--folder", str(tmp_path))
    failing = executable(tmp_path / "helper", b"#!/bin/sh\necho s3cret; exit 3\n")
    for program, why in ((tmp_path / "absent", "is not a program"), (failing, "exited with status 3")):
        done = project.run(*words, env={HELPER_VARIABLE: str(program)})
        assert (done.code, why in done.err) == (78, True), done.err
        assert "s3cret" not in done.err
