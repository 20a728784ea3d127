"""A tree that its process may not write, where no sandbox keeps it so."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orch23.execute.sandbox_tree import (
    SANDBOX_EPOCH,
    SandboxDir,
    make_writable_files,
    stamp_tree,
    touched_paths,
    unused_files,
)
from orch23.model.action import required_folders

WRITABLE = ("out/", "logs/a.log")


@pytest.fixture
def sandbox_dir(tmp_path: Path) -> SandboxDir:
    sandbox_dir = SandboxDir(tmp_path / "room", "feed")
    for folder in ("tests", "logs", "out"):
        (sandbox_dir.work / folder).mkdir(parents=True)
    (sandbox_dir.work / "tests/test_a.py").write_text("assert 1 == 2")
    return sandbox_dir


def rewrite(test: Path) -> None:
    test.write_text("assert 1 == 1")


def rewrite_and_put_back(test: Path) -> None:
    text, times = test.read_text(), (test.stat().st_atime_ns, test.stat().st_mtime_ns)
    test.write_text("assert 1 == 1")
    test.write_text(text)
    os.utime(test, ns=times)


def replace(test: Path) -> None:
    other = test.with_name("other")
    other.write_text(test.read_text())
    other.rename(test)


def remove(test: Path) -> None:
    test.unlink()


def make_and_remove(test: Path) -> None:
    test.with_name("x").touch()
    test.with_name("x").unlink()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "rewritten": (rewrite, "tests/test_a.py"),
    "rewritten and put back": (rewrite_and_put_back, "tests/test_a.py"),
    "replaced by the same bytes": (replace, "tests/test_a.py"),
    "removed": (remove, "tests/test_a.py"),
    "made": (lambda test: test.with_name("conftest.py").touch(), "tests/conftest.py"),
    "made and removed": (make_and_remove, "tests"),
    "a folder is made": (lambda test: test.with_name("__pycache__").mkdir(), "tests/__pycache__"),
    "the modes are changed": (lambda test: test.chmod(0o777), "tests/test_a.py"),
}


def changed(sandbox_dir: SandboxDir, act: Callable[[Path], object]) -> tuple[str, ...]:
    before = stamp_tree(sandbox_dir, WRITABLE)
    test = sandbox_dir.work / "tests/test_a.py"
    while test.stat().st_ctime_ns == _now(sandbox_dir):  # the clock of the file system may stand still for some ms
        pass
    act(test)
    return touched_paths(sandbox_dir, before, WRITABLE)


def _now(sandbox_dir: SandboxDir) -> int:
    probe = sandbox_dir.root / "probe"
    probe.touch()
    stamp = probe.stat().st_ctime_ns
    probe.unlink()
    return stamp


@pytest.mark.parametrize("how", CHANGES)
def test_what_is_changed_is_noticed_also_where_it_was_put_back(sandbox_dir: SandboxDir, how: str) -> None:
    act, path = CHANGES[how]
    assert path in changed(sandbox_dir, act)


def test_what_is_writable_may_change(sandbox_dir: SandboxDir) -> None:
    make_writable_files(sandbox_dir, WRITABLE)

    def act(_: Path) -> None:
        (sandbox_dir.work / "out/a/b").mkdir(parents=True)
        (sandbox_dir.work / "out/a/b/c").write_text("x")
        (sandbox_dir.work / "logs/a.log").write_text("x")

    assert changed(sandbox_dir, act) == ()


def test_a_tree_that_is_gone_was_changed_as_a_whole(sandbox_dir: SandboxDir) -> None:
    assert changed(sandbox_dir, lambda _: sandbox_dir.work.rename(sandbox_dir.root / "moved")) == (".",)


def test_missing_files_are_created_and_reported_if_they_stay_empty(sandbox_dir: SandboxDir) -> None:
    (sandbox_dir.work / "logs/b.log").touch()
    made = make_writable_files(sandbox_dir, ("logs/a.log", "logs/b.log", "logs/c.log", "out/"))
    assert made == ("logs/a.log", "logs/c.log")
    assert int((sandbox_dir.work / "logs/a.log").stat().st_mtime) == SANDBOX_EPOCH
    (sandbox_dir.work / "logs/c.log").write_text("")
    assert unused_files(sandbox_dir, made) == ("logs/a.log",)


def test_folders_are_needed_for_what_is_writable() -> None:
    assert required_folders(("a/", "b/c/", "d/e.txt", "f.txt")) == ("a", "b/c", "d")
