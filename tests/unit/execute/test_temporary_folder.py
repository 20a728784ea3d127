"""Folders beside projects: of the processes that were killed, and nobody else's, they are removed by the next one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orch23.execute.cleanup import temporary_folder
from tests.sandbox.users import NOBODY, ROOT

HOLDING = """
import os, signal
from orch23.execute.cleanup import temporary_folder
with temporary_folder("sandbox") as folder:
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep").chmod(0)
    print(folder, flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def holding(tmp_path: Path) -> tuple["subprocess.Popen[bytes]", Path]:
    environ = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", HOLDING], env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().decode().strip())


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder))


def test_a_folder_is_gone_at_the_end(tmp_path: Path) -> None:
    with temporary_folder("template") as folder:
        (folder / "x").write_text("x")
        assert names(tmp_path) == {folder.name}
        assert folder.stat().st_mode & 0o777 == 0o700
    assert names(tmp_path) == set()


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    (killed, left), (living, kept) = holding(tmp_path), holding(tmp_path)
    try:
        killed.kill()
        killed.communicate()
        assert names(tmp_path) == {left.name, kept.name}
        with temporary_folder("template") as folder:
            assert names(tmp_path) == {kept.name, folder.name}
    finally:
        living.send_signal(signal.SIGKILL)
        living.communicate()


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    others = ["orch23-mine", "orch23-sandbox-0qr7tqo4", "orch23-other-0123456789abcdef", "sandbox-0123456789abcdef"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / "orch23-sandbox-0123456789abcdef").symlink_to(tmp_path / "orch23-mine")
    (tmp_path / "orch23-mine/file").write_text("kept")
    (tmp_path / "orch23-template-0123456789abcdef").write_text("a file")
    if os.getuid() == 0:
        (tmp_path / "orch23-sandbox-fedcba9876543210").mkdir()
        os.chown(tmp_path / "orch23-sandbox-fedcba9876543210", NOBODY, NOBODY)
    before = names(tmp_path)
    with temporary_folder("sandbox"):
        pass
    assert names(tmp_path) == before
    assert (tmp_path / "orch23-mine/file").read_text() == "kept"
