"""What git has of a project: HEAD, the index and objects, without running anything that a repository configures."""

import os
import subprocess
from pathlib import Path

import pytest

from orch23.execute.git_repository import GitRepository
from orch23.model.digest import git_blob_id

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *IDENTITY, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "r"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"committed")
    (root / "sub" / "b.txt").write_bytes(b"below")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


def test_head_is_read_by_paths_and_not_by_patterns(repository: Path) -> None:
    found = GitRepository(root=repository).committed(["a.txt", "sub/b.txt", "*.txt", "sub", "no.txt"])
    assert found == {"a.txt": git_blob_id(b"committed"), "sub/b.txt": git_blob_id(b"below")}


def test_paths_are_relative_to_the_root_of_the_project(repository: Path) -> None:
    here = GitRepository(root=repository / "sub")
    assert here.committed(["b.txt", "a.txt"]) == {"b.txt": git_blob_id(b"below")}
    assert list(here.bytes_at("b.txt")) == [b"below", b"below"]
    assert list(here.bytes_at("a.txt")) == []


def test_an_object_is_found_by_its_id_also_in_an_older_commit(repository: Path) -> None:
    (repository / "a.txt").write_bytes(b"newer")
    git(repository, "commit", "-qam", "two")
    here = GitRepository(root=repository)
    assert here.bytes_of(git_blob_id(b"committed")) == b"committed"
    assert here.bytes_of(git_blob_id(b"never there")) is None


def test_the_index_is_read_beside_head(repository: Path) -> None:
    (repository / "a.txt").write_bytes(b"staged")
    git(repository, "add", "a.txt")
    assert list(GitRepository(root=repository).bytes_at("a.txt")) == [b"committed", b"staged"]


@pytest.mark.parametrize("state", ["no repository", "no commit"])
def test_where_git_has_nothing_nothing_is_committed(tmp_path: Path, state: str) -> None:
    if state == "no commit":
        git(tmp_path, "init", "-q")
    here = GitRepository(root=tmp_path)
    assert not here.was_used
    assert here.committed(["a.txt"]) == {}
    assert list(here.bytes_at("a.txt")) == []
    assert here.bytes_of(git_blob_id(b"x")) is None
    assert here.was_used


@pytest.mark.slow
def test_many_paths_are_read(repository: Path) -> None:
    names = [f"{number}.txt" for number in range(1200)]
    for name in names:
        (repository / name).write_text(name)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "many")
    assert len(GitRepository(root=repository).committed(names)) == len(names)


def test_no_program_that_the_repository_configures_is_run(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {trap}\n")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "filter.x.smudge", "diff.x.textconv", "core.pager", "core.sshCommand"):
        git(repository, "config", name, str(program))
    (repository / ".gitattributes").write_text("* filter=x diff=x\n")
    here = GitRepository(root=repository)
    assert here.committed(["a.txt"])
    assert list(here.bytes_at("a.txt"))
    assert not trap.exists()


def test_nothing_is_fetched_for_an_object_that_a_partial_clone_lacks(repository: Path, tmp_path: Path) -> None:
    git(repository, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repository}", str(clone))
    assert GitRepository(root=clone).bytes_of(git_blob_id(b"committed")) is None


def test_a_repository_with_sha256_ids_is_understood(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    (tmp_path / "a.txt").write_bytes(b"x")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    blob = GitRepository(root=tmp_path).committed(["a.txt"])["a.txt"]
    assert git_blob_id(b"x", like=blob) == blob


def test_the_process_ends_with_the_repository(repository: Path) -> None:
    here = GitRepository(root=repository)
    assert list(here.bytes_at("a.txt"))
    process = here._process
    assert process is not None
    del here
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
