"""Builds on clusters whose workers are dask's own: they get what `orch23 worker` has with their first action."""

from pathlib import Path

import pytest

from tests.e2e.test_remote_builds import builds_as_here
from tests.project import Outcome, Project
from tests.unit.execute.remote.clusters import plain_cluster

pytestmark = pytest.mark.slow


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
