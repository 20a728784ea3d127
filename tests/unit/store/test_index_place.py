"""The index is in the store, or in the user's cache directory if the store is on a network file system."""

import os
import pwd
from pathlib import Path

import pytest

from orch23.store import index
from orch23.store.index import NETWORK_FILE_SYSTEMS, file_system_type, index_folder


def mounts(folder: Path, *lines: str) -> str:
    """Write a mountinfo file. In a line, DEVICE stands for the device that the folder is on."""
    device = folder.stat().st_dev
    text = "".join(f"{line}\n" for line in lines).replace("DEVICE", f"{os.major(device)}:{os.minor(device)}")
    (folder / "mountinfo").write_text(text)
    return str(folder / "mountinfo")


@pytest.fixture
def on_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "file_system_type", lambda _path: "nfs4")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("36 35 DEVICE / / rw,noatime master:1 - ext4 /dev/root rw,errors=continue", "ext4"),
        ("36 35 DEVICE / /mnt/a rw - nfs4 server:/a rw", "nfs4"),
        ("36 35 DEVICE / /mnt/a\\040b rw shared:1 master:2 propagate_from:3 - fuse.sshfs host:/b rw", "fuse.sshfs"),
        ("36 35 0:999999 / / rw - nfs4 server:/a rw", ""),
        ("36 35 DEVICE / / rw ext4", ""),
        ("36 35", ""),
        ("", ""),
    ],
)
def test_the_type_of_a_file_system_is_the_one_that_the_kernel_names(tmp_path: Path, line: str, found: str) -> None:
    assert file_system_type(tmp_path, mounts(tmp_path, "1 1 0:999998 / /proc rw - proc proc rw", line)) == found


def test_what_is_not_there_yet_is_on_the_file_system_of_the_folder_above(tmp_path: Path) -> None:
    place = mounts(tmp_path, "36 35 DEVICE / / rw - cifs //server/a rw")
    assert file_system_type(tmp_path / "a" / ".orch23", place) == "cifs"


def test_without_mountinfo_the_type_is_not_known(tmp_path: Path) -> None:
    assert file_system_type(tmp_path, str(tmp_path / "none")) == ""


def test_mountinfo_of_this_machine_can_be_read(tmp_path: Path) -> None:
    assert file_system_type(tmp_path) not in NETWORK_FILE_SYSTEMS


def test_on_a_local_file_system_the_index_is_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("ext4", "overlay", ""):
        monkeypatch.setattr(index, "file_system_type", lambda _path, kind=kind: kind)
        assert index_folder(tmp_path / ".orch23") == tmp_path / ".orch23"


@pytest.mark.usefixtures("on_network")
def test_on_a_network_file_system_it_is_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/one")
    one, other = index_folder(tmp_path / "one"), index_folder(tmp_path / "other")
    assert one.parent == other.parent == Path("/home/one/.cache/orch23/indexes")
    assert one != other
    (tmp_path / "alias").symlink_to(tmp_path / "one")
    assert index_folder(tmp_path / "alias") == one
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert index_folder(tmp_path / "one").parent == Path("/cache/orch23/indexes")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert index_folder(tmp_path / "one") == one


@pytest.mark.usefixtures("on_network")
def test_without_a_home_directory_it_stays_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert index_folder(tmp_path / ".orch23") == tmp_path / ".orch23"
    monkeypatch.setenv("HOME", "relative")
    assert index_folder(tmp_path / ".orch23") == tmp_path / ".orch23"
