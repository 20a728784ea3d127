"""Removing trees that were made to resist."""

import errno
import fcntl
import os
import struct
import time
from pathlib import Path

import pytest

from orch23.store.tree_removal import make_accessible, remove_path, remove_tree
from tests.sandbox.users import run_as

IMMUTABLE, APPEND_ONLY = 0x10, 0x20


def flagged(path: Path, flag: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, 0x4008_6602, struct.pack("l", flag))
    except OSError as refused:
        pytest.skip(f"this file system, or this user, sets no attributes: {refused}")
    finally:
        os.close(descriptor)


def test_what_is_not_there_is_gone_already(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")
    remove_tree(tmp_path / "nothing/below")


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_what_is_no_directory_is_removed_itself(tmp_path: Path, kind: str) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    outside.mkdir()
    {"file": place.touch, "link": lambda: place.symlink_to(outside), "pipe": lambda: os.mkfifo(place)}[kind]()
    remove_tree(place)
    assert list(tmp_path.iterdir()) == [outside]


@pytest.mark.parametrize("flag", [IMMUTABLE, APPEND_ONLY])
@pytest.mark.parametrize("path", ["x", "inner", "inner/y"])
def test_attributes_that_forbid_a_removal_are_taken_away(tmp_path: Path, path: str, flag: int) -> None:
    (tmp_path / "tree/inner").mkdir(parents=True)
    for name in ("x", "inner/y", "z"):
        (tmp_path / "tree" / name).touch()
    flagged(tmp_path / "tree" / path, flag)
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_one_that_resists_keeps_none_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.unlink

    def unlink(name: str, *, dir_fd: int) -> None:
        if name == "resists":
            raise OSError(errno.EBUSY, "busy")
        real(name, dir_fd=dir_fd)

    for name in ("a/1", "a/resists", "b/c/2", "3", "resists"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).touch()
    monkeypatch.setattr(os, "unlink", unlink)
    remove_tree(tmp_path / "tree")
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in left] == ["resists", "resists"]
    monkeypatch.undo()
    for path in list(tmp_path.iterdir()):
        remove_tree(path)
    assert list(tmp_path.iterdir()) == []


def test_a_tree_without_rights_is_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    inside = tmp_path / "tree" / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "file").write_text("x")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (inside / "link").symlink_to(tmp_path / "kept")
    inside.chmod(0)
    inside.parent.chmod(0o500)
    remove_path(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert (tmp_path / "kept" / "file").exists()
    remove_path(tmp_path / "tree")


def test_a_path_that_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unlink(name: str, *, dir_fd: int) -> None:
        raise OSError(errno.EBUSY, "busy")

    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(PermissionError):
        remove_path(tmp_path / "file")


def test_a_link_is_never_unlocked(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir(mode=0o500)
    (tmp_path / "link").symlink_to("outside")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            make_accessible("link", folder)
    finally:
        os.close(folder)
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o500


AS_NO_ONE = """
import os, sys, tempfile
from pathlib import Path
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import open_tree
from orch23.store.tree_removal import remove_path
with tempfile.TemporaryDirectory() as folder:
    sandbox_dirs = SandboxDirs(Path(folder), None)
    sandbox_dir = sandbox_dirs.stage({})
    for path in ("locked/inner/x", "read_only/y"):
        (sandbox_dir.work / path).parent.mkdir(parents=True)
        (sandbox_dir.work / path).write_text("x")
        (sandbox_dir.work / path).chmod(0)
    for path in ("locked/inner", "locked", "read_only"):
        (sandbox_dir.work / path).chmod(0 if path != "read_only" else 0o500)
    sandbox_dir.work.chmod(0)
    sandbox_dir.root.chmod(0)
    with open_tree(sandbox_dir) as tree:
        found = sandbox_dirs.scan_open(tree, {}, ())
    assert sorted(found.written) == ["locked/inner/x", "read_only/y"], found
    assert found.violations == (), found
    for path in ("locked/inner", "locked", "."):
        (sandbox_dir.work / path).chmod(0)
    sandbox_dir.root.chmod(0)
    sandbox_dirs.discard(sandbox_dir)
    assert os.listdir(folder) == [], os.listdir(folder)
    (inner := Path(folder, "tree/a/b")).mkdir(parents=True)
    inner.chmod(0)
    inner.parent.chmod(0o500)
    remove_path(Path(folder, "tree"))
    assert os.listdir(folder) == [], os.listdir(folder)
"""


def test_a_user_without_privileges_reads_and_removes_what_was_locked() -> None:
    done = run_as("nobody", "-c", AS_NO_ONE)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_folder_of_a_million_files_is_removed_without_holding_its_names(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    for number in range(1_000_000):
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    began = time.monotonic()
    remove_tree(folder)
    assert time.monotonic() - began < 120
    assert list(tmp_path.iterdir()) == []
