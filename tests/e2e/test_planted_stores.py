"""Stories of stores and lock files that came with a clone: what they say is not believed."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from orch23.entry import main
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.record import LockFile
from orch23.snapshot.store_registry import registered_stores
from orch23.store.lock_file import read_lock, write_lock
from tests.project import Outcome, Project
from tests.repository import Repository, green, up_to_date

PIPELINE = {
    "version": 1,
    "stages": {
        "copy": {"inputs": ["in.txt"], "outputs": ["out.txt"], "shell": "cp in.txt out.txt"},
        "test": {"inputs": ["out.txt"], "shell": "grep good out.txt"},
    },
}


class Untrusting(Project):
    """A project whose user trusts nothing beforehand."""

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> Outcome:
        return super().run(*argv, env={"ORCH23_TRUST": "0", **(env or {})})


def made(root: Path, text: str = "good\n") -> Project:
    project = Untrusting(root)
    project.write({"pipeline.yaml": json.dumps(PIPELINE), "in.txt": text})
    green(project.run("build"))
    return project


def planted(project: Project, root: Path) -> Project:
    """Copy a project as a clone would bring it, with its store and logs, but without the id of the user's own."""
    shutil.copytree(project.root, root, symlinks=True)
    (root / ".orch23/id").unlink()
    return Untrusting(root)


@pytest.mark.slow
def test_a_planted_store_answers_nothing_and_is_set_aside(tmp_path):
    clone = planted(made(tmp_path / "a"), tmp_path / "b")
    (clone.root / "pipeline.lock").unlink()
    clone.edit("in.txt", "bad\n")
    looked = clone.run("plan")
    assert "W693" in looked.err
    assert not (clone.root / ".orch23-aside").exists(), "plan writes nothing"
    built = clone.run("build")
    assert built.code == 6, "out.txt is nobody's: without the store nothing says that a stage made it"
    assert ".orch23-aside/1" in built.err
    assert (clone.root / ".orch23-aside/1/records").is_dir()
    assert (clone.root / ".orch23-aside/.gitignore").read_text() == "*\n"
    assert clone.run("build", "--overwrite-edited").code == 1, "the failing test runs"


@pytest.mark.slow
@pytest.mark.stride(4)
@pytest.mark.parametrize("aside", ["link", "dangling", "file", "pipe", "inner link", "inner folder", "numbers"])
@pytest.mark.parametrize("command", ["build", pytest.param("gc", marks=pytest.mark.slow)])
def test_a_store_is_not_moved_out_of_the_project(tmp_path, aside, command):
    clone = planted(made(tmp_path / "a"), tmp_path / "b")
    outside, place = tmp_path / "outside", clone.root / ".orch23-aside"
    outside.mkdir()
    (outside / ".gitignore").write_text("my own rules\n")
    match aside:
        case "link" | "dangling":
            place.symlink_to(outside if aside == "link" else tmp_path / "nothing")
        case "file":
            place.write_text("a file\n")
        case "pipe":
            os.mkfifo(place)
        case "inner link":
            place.mkdir()
            (place / ".gitignore").symlink_to(outside / ".gitignore")
        case "inner folder":
            (place / ".gitignore").mkdir(parents=True)
        case "numbers":
            place.mkdir()
            (place / "1").symlink_to(outside)
            (place / "2").symlink_to("nothing")
    ended = clone.run(command)
    assert (os.listdir(outside), (outside / ".gitignore").read_text()) == ([".gitignore"], "my own rules\n")
    assert not (tmp_path / "nothing").exists()
    if aside in ("inner link", "numbers"):
        green(ended)
        assert (place / ("3" if aside == "numbers" else "1") / "records").is_dir()
        return
    assert ended.code in (2, 74)
    assert ".orch23-aside" in ended.err
    assert "help: replace the link" in ended.err or "help: move away what is at" in ended.err
    shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    green(clone.run(command))


@pytest.mark.parametrize("trusted", ["0", "1"])
def test_a_store_that_is_a_link_is_not_used_even_if_nothing_is_to_do(tmp_path, trusted):
    project = made(tmp_path / "p")
    (project.root / ".orch23").rename(tmp_path / "store")
    (project.root / ".orch23").symlink_to(tmp_path / "store")
    here = Untrusting(project.root, main=lambda argv: main([*argv[2:]]))
    refused = here.run("build", env={"ORCH23_TRUST": trusted})
    assert (refused.code, "E691" in refused.err) == (2, True)


@pytest.mark.slow
def test_a_planted_snapshot_is_not_believed(tmp_path):
    root = tmp_path / "p"
    project = made(root)
    up_to_date(project.run("build"))
    number = (root / ".orch23/id").read_text()
    (root / ".orch23/id").write_text("0" * 32 + "\n")
    built = project.run("build")
    assert built.code == 0
    assert "W693" in built.err
    (root / ".orch23/id").write_text(number)


@pytest.mark.parametrize("identity", ["", "x" * 32 + "\n", "0" * 32, "../" * 10 + "ab\n", "0" * 33 + "\n"])
def test_an_id_that_no_store_has_registers_nothing(tmp_path, identity):
    project = made(tmp_path / "p")
    (project.root / ".orch23/id").write_text(identity)
    assert "W693" in project.run("plan").err


def test_trust_takes_a_store_for_the_users_own(tmp_path):
    clone = planted(made(tmp_path / "a"), tmp_path / "b")
    assert clone.run("trust").code == 0
    up_to_date(clone.run("build"))
    assert "is trusted from now on" not in clone.run("trust").out
    assert not (clone.root / ".orch23-aside").exists()


@pytest.mark.slow
def test_a_store_that_was_set_aside_can_be_taken_back(tmp_path):
    clone = planted(made(tmp_path / "a"), tmp_path / "b")
    green(clone.run("build"))
    shutil.rmtree(clone.root / ".orch23")
    (clone.root / ".orch23-aside/1").rename(clone.root / ".orch23")
    green(clone.run("trust"))
    assert "W693" not in clone.run("build").err


def test_a_variable_trusts_for_one_command(tmp_path):
    clone = planted(made(tmp_path / "a"), tmp_path / "b")
    with_trust = clone.run("build", env={"ORCH23_TRUST": "1"})
    up_to_date(with_trust)
    assert "W693" not in with_trust.err
    assert "W693" in clone.run("plan").err


def test_a_store_of_another_user_is_not_believed(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    project = made(tmp_path / "p")
    os.chown(project.root / ".orch23", 65534, 65534)
    assert "W693" in project.run("plan").err


def test_a_project_that_was_moved_keeps_its_store(tmp_path):
    project = made(tmp_path / "a")
    project.root.rename(tmp_path / "b")
    outcome = Untrusting(tmp_path / "b").run("build")
    assert outcome.code == 0
    assert "W693" not in outcome.err


def test_a_new_store_is_registered_before_it_has_an_id(tmp_path):
    with patch("orch23.store.access.write_atomic", side_effect=OSError(30, "Read-only file system")):
        project = Untrusting(tmp_path / "p")
        project.write({"pipeline.yaml": json.dumps(PIPELINE), "in.txt": "good\n"})
        refused = project.run("build")
    assert refused.code == 78
    assert "XDG_STATE_HOME" in refused.err
    assert not (project.root / ".orch23/id").exists()
    green(project.run("build"))
    number = (project.root / ".orch23/id").read_text().strip()
    assert (Path(registered_stores()) / number).read_text().endswith(f"\n{project.root}/.orch23\n")


# ---- lock files ----------------------------------------------------------------------------------


def forged(project: Project, stage: str, path: str, into: str) -> None:
    """Give the record of a stage in the lock file another name, and a file of the project as its output."""
    found = read_lock(project.root / "pipeline.lock")
    entry = FileEntry(digest_bytes((project.root / path).read_bytes()))
    record = replace(found.records[stage], stage=into, outputs={path: entry})
    write_lock(project.root, "pipeline.lock", LockFile({**found.records, into: record}), "pipeline")


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("path", ["README.md", "pipeline.yaml", ".git/HEAD", "src/deep/a.py"])
@pytest.mark.parametrize("into", ["former", "copy"])
def test_a_forged_lock_file_removes_nothing(tmp_path, path, into):
    maker = Repository(tmp_path / "maker")
    maker.init()
    maker.write({"README.md": "x\n", "src/deep/a.py": "x\n", "pipeline.yaml": json.dumps(PIPELINE), "in.txt": "good\n"})
    green(maker.run("build"))
    forged(maker, "copy", path, into)
    maker.commit()
    victim = maker.clone(tmp_path / "victim")
    before = (victim.root / path).read_bytes()
    planned = victim.run("plan").out
    for command in (["clean"], ["clean", "--force"], ["build"]):
        victim.run(*command, env={"ORCH23_TRUST": "0"})
        assert (victim.root / path).read_bytes() == before, (command, planned)
    victim.edit("in.txt", "good, too\n")
    victim.run("build", "--overwrite-edited")
    victim.run("clean")
    assert (victim.root / path).read_bytes() == before, planned
