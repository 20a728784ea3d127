"""The folders of a sandbox directory are reused for the next step if the step did not change them."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import SANDBOX_EPOCH, SandboxDir, open_tree
from orch23.model.digest import FileEntry, digest_bytes

FILES = {"src/a.txt": b"alpha", "src/deep/b.txt": b"beta", "other/c.txt": b"gamma"}
FIRST = ("src/a.txt", "src/deep/b.txt")
SECOND = ("src/a.txt", "other/c.txt")


class Source:
    """The bytes of FILES."""

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        del entry
        Path(target).write_bytes(FILES[path])
        return True


@pytest.fixture
def sandbox_dirs(tmp_path: Path) -> SandboxDirs:
    return SandboxDirs(tmp_path / "rooms", Source())


def stage(sandbox_dirs: SandboxDirs, paths: tuple[str, ...]) -> SandboxDir:
    sandbox_dir = sandbox_dirs.stage({path: FileEntry(digest_bytes(FILES[path])) for path in paths}, ".", ("out/",))
    assert isinstance(sandbox_dir, SandboxDir)
    return sandbox_dir


def recycle(sandbox_dirs: SandboxDirs, sandbox_dir: SandboxDir) -> bool:
    """Scan a sandbox directory, as the executor does, and recycle it."""
    inputs = {path: FileEntry(digest_bytes(FILES[path])) for path in FIRST}
    with open_tree(sandbox_dir) as opened:
        sandbox_dirs.scan_open(opened, inputs, ("*.tmp",))
    return sandbox_dirs.recycle(sandbox_dir)


def tree(sandbox_dir: SandboxDir) -> set[str]:
    return {str(path.relative_to(sandbox_dir.root)) for path in sandbox_dir.root.rglob("*")}


def test_reused_folders_hold_what_new_ones_would(sandbox_dirs: SandboxDirs) -> None:
    first = stage(sandbox_dirs, FIRST)
    (first.work / "out/made.txt").write_text("x")
    (first.work / "stray.txt").write_text("x")
    os.utime(first.work / "src", (1, 1))
    inode = first.root.stat().st_ino
    assert recycle(sandbox_dirs, first)
    second = stage(sandbox_dirs, SECOND)
    assert second.root.stat().st_ino == inode
    assert second.marker != first.marker
    alone = SandboxDirs(sandbox_dirs.folder.parent / "others", Source())
    assert tree(second) == tree(stage(alone, SECOND))
    times = {path.stat().st_mtime_ns for path in (second.work, *second.work.rglob("*"))}
    assert times == {SANDBOX_EPOCH * 10**9}
    sandbox_dirs.discard(second)
    sandbox_dirs.close()
    assert list(sandbox_dirs.folder.iterdir()) == []


def _link(sandbox_dir: SandboxDir) -> None:
    (sandbox_dir.work / "src").rename(sandbox_dir.work / "src2")
    (sandbox_dir.work / "src").symlink_to("src2")


def _link_home(sandbox_dir: SandboxDir) -> None:
    sandbox_dir.home.rmdir()
    (sandbox_dir.root.parent / "elsewhere").mkdir()
    sandbox_dir.home.symlink_to("../elsewhere")


def _link_settings(sandbox_dir: SandboxDir) -> None:
    (sandbox_dir.root / "pytest.ini").unlink()
    (sandbox_dir.root / "pytest.ini").symlink_to("/dev/null")


@pytest.mark.parametrize("times_restored", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda sandbox_dir: (sandbox_dir.home / ".cache").write_text("x"),
        lambda sandbox_dir: (sandbox_dir.tmp / "x").mkdir(),
        lambda sandbox_dir: (sandbox_dir.root / "pytest.ini").write_text("[pytest]\n"),
        lambda sandbox_dir: (sandbox_dir.root / "pytest.ini").unlink(),
        lambda sandbox_dir: (sandbox_dir.root / "mypy.ini").write_text("[pypy]\n"),
        lambda sandbox_dir: (sandbox_dir.root / "conftest.py").write_text(""),
        lambda sandbox_dir: (sandbox_dir.work / "src").chmod(0o500),
        lambda sandbox_dir: sandbox_dir.work.chmod(0o755),
        lambda sandbox_dir: sandbox_dir.home.chmod(0o755),
        lambda sandbox_dir: (sandbox_dir.work / "more").mkdir(),
        lambda sandbox_dir: (sandbox_dir.work / "out").rmdir(),
        lambda sandbox_dir: (sandbox_dir.work / "out/scratch.tmp").touch(),
        lambda sandbox_dir: os.mkfifo(sandbox_dir.work / "out/pipe"),
        _link,
        _link_home,
        _link_settings,
    ],
)
def test_folders_that_a_step_changed_are_not_reused(
    sandbox_dirs: SandboxDirs, change: Callable[[SandboxDir], object], times_restored: bool
) -> None:
    first = stage(sandbox_dirs, FIRST)
    before = {path: path.lstat() for path in (first.root, *first.root.rglob("*"))}
    change(first)
    if times_restored:
        for path, found in before.items():
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)
    assert not recycle(sandbox_dirs, first)
    sandbox_dirs.discard(first)
    assert [path.name for path in sandbox_dirs.folder.iterdir() if path.name != "elsewhere"] == []
    second = stage(sandbox_dirs, FIRST)
    assert tree(second) == tree(stage(SandboxDirs(sandbox_dirs.folder.parent / "others", Source()), FIRST))


def test_two_sandbox_directories_at_once_never_share_a_folder(sandbox_dirs: SandboxDirs) -> None:
    assert recycle(sandbox_dirs, stage(sandbox_dirs, FIRST))
    one, other = stage(sandbox_dirs, FIRST), stage(sandbox_dirs, FIRST)
    assert one.root != other.root
    assert tree(one) == tree(other)


def test_a_skeleton_that_was_filled_meanwhile_is_not_used(sandbox_dirs: SandboxDirs) -> None:
    first = stage(sandbox_dirs, FIRST)
    assert recycle(sandbox_dirs, first)
    (first.work / "src/deep/late.txt").write_text("x")
    second = stage(sandbox_dirs, SECOND)
    assert second.root != first.root
    assert not first.root.exists()
    assert "work/src/deep" not in tree(second)


def test_folders_with_many_files_are_not_reused(sandbox_dirs: SandboxDirs) -> None:
    first = stage(sandbox_dirs, FIRST)
    for number in range(501):
        (first.work / "out" / f"{number}.txt").touch()
    assert not recycle(sandbox_dirs, first)


def test_folders_are_reused_for_one_step_after_the_other(sandbox_dirs: SandboxDirs) -> None:
    roots = set()
    for name in ("a", "b", "c"):
        sandbox_dir = stage(sandbox_dirs, FIRST)
        (sandbox_dir.work / f"out/{name}").write_text("x")
        assert recycle(sandbox_dirs, sandbox_dir)
        roots.add(sandbox_dir.root)
    assert len(roots) == 1
