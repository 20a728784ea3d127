"""What git has of a project: HEAD, the index and objects, without running anything that a repository configures."""

import os
import subprocess
from pathlib import Path

import pytest

from orch23.execute.git_repository import GitRepository
from orch23.model.digest import digest_bytes, git_blob_id, lfs_digest
from orch23.model.errors import InvalidInputError

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


# ---- what git left out, and what it converts ------------------------------------------------------

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12\n".encode()


def committed(here: GitRepository, path: str) -> bytes | None:
    descriptor = os.open(here.root / path, os.O_RDONLY)
    try:
        return here.as_committed(path, descriptor)
    finally:
        os.close(descriptor)


def test_a_pointer_has_the_digest_of_its_file() -> None:
    found = lfs_digest(POINTER)
    assert found is not None
    assert (found.sha256, found.size_bytes) == ("a" * 64, 12)
    assert lfs_digest(POINTER.replace(b"git-lfs.github.com", b"hawser.github.com")) == found
    assert lfs_digest(POINTER.replace(b"oid", b"ext-0-x sha256:1\noid")) == found
    for other in (b"", POINTER + b"more", b" " + POINTER, POINTER.replace(b"size", b"sizes")):
        assert lfs_digest(other) is None


def test_a_pointer_is_refused_if_its_path_is_in_lfs(repository: Path) -> None:
    for name in ("x.bin", "x.txt"):
        (repository / "sub" / name).write_bytes(POINTER)
    (repository / "sub" / ".gitattributes").write_text("*.bin filter=lfs\n")
    git(repository, "add", "-A")
    here = GitRepository(root=repository)
    assert committed(here, "sub/x.txt") is None
    with pytest.raises(InvalidInputError, match="Git LFS"):
        committed(here, "sub/x.bin")
    assert not here.was_used


@pytest.mark.parametrize(
    ("attributes", "data", "expected"),
    [
        ("", b"a\r\n", None),
        ("* text=auto", b"a\r\nb\n", b"a\nb\n"),
        ("* text=auto", b"a\r\n\0", None),
        ("* text=auto", b"a\r\n\r", None),
        ("* text", b"a\r\n\r", b"a\n\r"),
        ("* eol=crlf", b"a\r\n", b"a\n"),
        ("* -text", b"a\r\n", None),
        ("* text=auto", b"a\n", None),
    ],
)
def test_line_ends_are_those_that_git_commits(
    repository: Path, attributes: str, data: bytes, expected: bytes | None
) -> None:
    (repository / ".gitattributes").write_text(f"{attributes}\n")
    (repository / "sub" / "b.txt").write_bytes(data)
    (repository / "sub" / "new.txt").write_bytes(data)
    for here in (GitRepository(root=repository), GitRepository(root=repository / "sub")):
        place = "sub/" if here.root == repository else ""
        assert committed(here, f"{place}b.txt") == expected
        assert committed(here, f"{place}new.txt") == expected
    git(repository, "add", "sub/b.txt")
    stored = next(GitRepository(root=repository).bytes_at("sub/b.txt"), b"")
    assert stored == b"below"
    assert [*GitRepository(root=repository).bytes_at("sub/b.txt")][1] == (data if expected is None else expected)


def test_bytes_that_the_lock_file_records_are_not_converted(repository: Path) -> None:
    (repository / ".gitattributes").write_text("* text=auto\n")
    (repository / "a.txt").write_bytes(b"a\r\n")
    (repository / "x.lock").write_text(digest_bytes(b"a\r\n").sha256)
    assert committed(GitRepository(root=repository), "a.txt") == b"a\n"
    assert committed(GitRepository(repository, "", lambda: repository / "x.lock"), "a.txt") is None


@pytest.mark.parametrize("value", ["true", "input", "false"])
def test_the_users_configuration_decides_too(repository: Path, tmp_path: Path, value: str) -> None:
    (tmp_path / ".gitconfig").write_text(f"[core]\nautocrlf = {value}\n")
    (repository / "a.txt").write_bytes(b"a\r\n")
    assert committed(GitRepository(repository, str(tmp_path)), "a.txt") == (None if value == "false" else b"a\n")
    git(repository, "config", "core.autocrlf", "false")
    assert committed(GitRepository(repository, str(tmp_path)), "a.txt") is None


def test_what_is_left_out_has_a_command(repository: Path, tmp_path: Path) -> None:
    assert GitRepository(root=repository).left_out == {}
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository), "a b")
    git(repository, "commit", "-qm", "two")
    git(tmp_path, "clone", "-q", str(repository), "clone")
    assert GitRepository(root=repository).left_out == {}
    assert GitRepository(root=tmp_path / "clone").left_out == {"a b/": "git submodule update --init 'a b'"}
    git(tmp_path / "clone", "sparse-checkout", "set", "--no-cone", "/*", "!/sub/")
    assert list(GitRepository(root=tmp_path / "clone").left_out) == ["a b/", "sub/b.txt"]
    (tmp_path / "clone/sub").mkdir()
    (tmp_path / "clone/sub/b.txt").write_text("there")
    assert list(GitRepository(root=tmp_path / "clone").left_out) == ["a b/"]
