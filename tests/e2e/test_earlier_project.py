"""A project that commit 1ea159c built is up to date: no key, record or lock file became stale."""

import tarfile
from pathlib import Path

import pytest

from tests.project import Project

BUILT = Path(__file__).parent.parent / "corpus" / "earlier" / "built_by_1ea159c.tar.gz"


@pytest.fixture
def earlier(tmp_path: Path) -> Project:
    """Give the project as that commit left it: a pattern, slices, foreach, a chain, recorded answers, a listing."""
    root = tmp_path / "project"
    root.mkdir()
    with tarfile.open(BUILT) as archive:
        archive.extractall(root, filter="data")
    return Project(root)


@pytest.mark.slow
def test_it_is_up_to_date_once_it_is_trusted(earlier: Project) -> None:
    untrusted = {"ORCH23_TRUST": "0"}
    lock = earlier.read("pipeline.lock")
    said = earlier.run("plan", env=untrusted)
    assert "W693" in said.err
    assert "7 of 7 stages" in said.out
    assert earlier.run("trust", env=untrusted).code == 0
    assert "up to date (7 stages)" in earlier.run("plan", env=untrusted).out
    built = earlier.run("build", env=untrusted)
    assert built.code == 0
    assert "up to date (7 stages)" in built.err
    assert earlier.read("pipeline.lock") == lock
    assert "up to date (7 stages)" in earlier.run("build", env=untrusted).err


def test_an_edit_of_it_runs_what_it_reaches_and_nothing_else(earlier: Project) -> None:
    earlier.write({"src/a.txt": "other\n"})
    outcome = earlier.run("build")
    assert outcome.code == 0
    assert "7 stages: 3 built, 4 fresh" in outcome.err


def test_its_results_are_restored_from_its_store(earlier: Project) -> None:
    before = earlier.files()
    for path in ("out/page.txt", "out/chain.txt", "out/said.txt"):
        earlier.delete(path)
    outcome = earlier.run("build")
    assert outcome.code == 0
    assert "3 restored, 4 fresh" in outcome.err
    assert earlier.files() == before
