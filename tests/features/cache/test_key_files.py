"""The files of private keys: outside of the project, for this user only, and never replaced."""

import os
import stat
from pathlib import Path

import pytest

from orch23.features.cache.opening import create_key_file, key_file, read_key_file
from orch23.model.errors import ConfigurationError


def refused(call, *arguments) -> str:
    with pytest.raises(ConfigurationError) as error:
        call(*arguments)
    (found,) = error.value.diagnostics
    assert found.code == "E732"
    assert found.hint
    return found.message


def test_a_key_is_in_the_configuration_of_the_user(tmp_path: Path) -> None:
    root = tmp_path / "project"
    assert key_file("ci", root, {"HOME": "/home/a"}) == Path("/home/a/.config/orch23/keys/ci")
    assert key_file("ci", root, {"HOME": "/home/a", "XDG_CONFIG_HOME": "/c"}) == Path("/c/orch23/keys/ci")
    assert key_file("ci", root, {"HOME": "/home/a", "XDG_CONFIG_HOME": "c"}) == Path("/home/a/.config/orch23/keys/ci")
    for environ in ({}, {"HOME": ""}, {"HOME": "a"}, {"XDG_CONFIG_HOME": "a"}):
        assert "no directory" in refused(key_file, "ci", root, environ)


def test_a_key_is_never_in_the_project(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to(root / "inside")
    for folder in (root, root / "inside", tmp_path / "link", tmp_path / "x" / ".." / "project"):
        assert "in the project" in refused(key_file, "ci", root, {"XDG_CONFIG_HOME": str(folder)})
    assert key_file("ci", root, {"XDG_CONFIG_HOME": str(tmp_path)}).is_relative_to(tmp_path)


def test_only_the_user_can_read_a_key(tmp_path: Path) -> None:
    path = tmp_path / "new" / "keys" / "ci"
    before = os.umask(0)
    try:
        create_key_file(path, b"secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_key_file(path) == b"secret"


def test_an_existing_key_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ci"
    create_key_file(path, b"first")
    assert "exists" in refused(create_key_file, path, b"second")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    refused(create_key_file, tmp_path / "link", b"second")
    assert path.read_bytes() == b"first"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620])
def test_a_key_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "ci"
    create_key_file(path, b"secret")
    path.chmod(mode)
    assert "only you" in refused(read_key_file, path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ci"
    assert "does not exist" in refused(read_key_file, path)
    path.mkdir(mode=0o700)
    refused(read_key_file, path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    refused(read_key_file, tmp_path / "pipe")
    create_key_file(tmp_path / "real", b"x")
    (tmp_path / "link").symlink_to("real")
    refused(read_key_file, tmp_path / "link")
