import _ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.errors import SafetyError
from orch23.store.json_text import TRUSTED
from orch23.store.safe_files import (
    NOT_A_FILE,
    c_function,
    is_temp,
    make_folder,
    make_subfolder,
    open_own,
    open_regular,
    sweep_temps,
    sync_filesystem,
    write_atomic,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
).filter(lambda value: "\\ud" not in ascii(value).lower())


@given(JSON)
def test_what_was_sealed_is_unsealed(value: Any) -> None:
    assert TRUSTED.decode(TRUSTED.encode(value), Any) == value
    assert TRUSTED.encode(value).count(b"\n") == 1


@given(JSON, st.data())
def test_every_changed_byte_breaks_the_seal(value: Any, data: st.DataObject) -> None:
    sealed = bytearray(TRUSTED.encode(value))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError):
        TRUSTED.decode(bytes(sealed), Any)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"body":', b"null\n", b'{"body":1,"sha256":""}\n'])
def test_what_was_never_sealed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        TRUSTED.decode(data, Any)


def test_a_write_replaces_the_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "file"
    write_atomic(target, b"one")
    write_atomic(target, b"two", mode=0o600)
    assert target.read_bytes() == b"two"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in target.parent.iterdir()] == ["file"]


def test_a_write_does_not_touch_the_inode_that_others_may_share(tmp_path: Path) -> None:
    target, other = tmp_path / "file", tmp_path / "other"
    target.write_bytes(b"old")
    other.hardlink_to(target)
    write_atomic(target, b"new")
    assert other.read_bytes() == b"old"


def test_after_a_fault_at_any_call_the_file_is_old_or_new(tmp_path: Path, disk: Any, fault: int | None) -> None:
    target = tmp_path / "place" / "file"

    def make(at: int) -> Callable[[], object]:
        make_folder(target.parent)
        target.write_bytes(b"old" * 100)
        return lambda: write_atomic(target, b"new" * 100)

    def check() -> None:
        assert target.read_bytes() in (b"old" * 100, b"new" * 100)
        left = [p for p in target.parent.iterdir() if p != target]
        assert all(is_temp(p.name) for p in left)
        sweep_temps(target.parent)
        assert list(target.parent.iterdir()) == [target]

    assert disk.every_point(make, fault, check) >= 4


def test_a_fault_that_does_not_kill_is_raised_and_leaves_no_temporary_file(tmp_path: Path, disk: Any) -> None:
    with disk.failing(2, 28), pytest.raises(OSError, match="No space"):
        write_atomic(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []


def test_a_filesystem_can_be_synced_by_any_path_of_it(tmp_path: Path) -> None:
    sync_filesystem(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_filesystem(tmp_path / "missing")


def test_bytes_are_on_the_disk_before_their_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def reported(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **names: object) -> object:
            calls.append(name)
            return real(*args, **names)

        return call

    for name in ("write", "fsync", "rename"):
        monkeypatch.setattr(os, name, reported(name, getattr(os, name)))
    write_atomic(tmp_path / "file", b"data")
    assert calls == ["write", "fsync", "rename", "fsync"]


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR])
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_only_a_regular_file_is_opened_and_no_pipe_is_waited_for(tmp_path: Path, flags: int, kind: str) -> None:
    path, other = tmp_path / "own", tmp_path / "other"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(other)
    if kind == "link":
        other.write_bytes(b"mine")
    with pytest.raises(OSError, match="own") as refused:
        open_own(path, flags)
    assert refused.value.errno in NOT_A_FILE
    assert open_regular(path) is None
    assert other.exists() == (kind == "link")


def test_a_folder_of_orch23_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "link").symlink_to("outside")
    (tmp_path / "dangling").symlink_to("nothing")
    for name in ("link", "dangling"):
        with pytest.raises(SafetyError, match=name):
            make_folder(tmp_path / name)
        with pytest.raises(SafetyError, match=name):
            make_subfolder(tmp_path / name, 0o700)
        with pytest.raises(SafetyError, match=name):
            write_atomic(tmp_path / name / "file", b"data")
    assert list((tmp_path / "outside").iterdir()) == []
    make_folder(tmp_path / "link/below")  # of the user, or checked before
    assert (tmp_path / "outside/below").is_dir()


def test_a_function_of_c_returns_its_result_and_its_error() -> None:
    assert c_function("syncfs")(-1) == -1
    assert _ctypes.get_errno() == errno.EBADF
    assert c_function("getpid")() == os.getpid()
