"""The folders of a room serve the next one, if the step has left them as they were."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import SANDBOX_EPOCH, SandboxDir
from orch23.model.digest import FileEntry, digest_bytes

FILES = {"src/a.txt": b"alpha", "src/deep/b.txt": b"beta", "other/c.txt": b"gamma"}
FIRST = ("src/a.txt", "src/deep/b.txt")
SECOND = ("src/a.txt", "other/c.txt")


class Source:
    """The bytes of FILES."""

    def copy_into(self, path: str, entry: FileEntry, target: Path) -> bool:
        del entry
        target.write_bytes(FILES[path])
        return True


@pytest.fixture
def rooms(tmp_path: Path) -> SandboxDirs:
    return SandboxDirs(tmp_path / "rooms", Source())


def lay(rooms: SandboxDirs, paths: tuple[str, ...]) -> SandboxDir:
    room = rooms.stage({path: FileEntry(digest_bytes(FILES[path])) for path in paths}, ".", ("out/",))
    assert isinstance(room, SandboxDir)
    return room


def tree(room: SandboxDir) -> set[str]:
    return {str(path.relative_to(room.root)) for path in room.root.rglob("*")}


def test_the_next_room_stands_in_the_folders_of_the_last_and_holds_what_a_new_one_would(rooms: SandboxDirs) -> None:
    first = lay(rooms, FIRST)
    (first.work / "out/made.txt").write_text("x")
    (first.work / "stray.txt").write_text("x")
    os.utime(first.work / "src", (1, 1))
    inode = first.root.stat().st_ino
    rooms.recycle(first)
    second = lay(rooms, SECOND)
    assert second.root.stat().st_ino == inode
    assert second.marker != first.marker
    alone = SandboxDirs(rooms.folder.parent / "others", Source())
    assert tree(second) == tree(lay(alone, SECOND))
    times = {path.stat().st_mtime_ns for path in (second.work, *second.work.rglob("*"))}
    assert times == {SANDBOX_EPOCH * 10**9}
    rooms.discard(second)
    rooms.close()
    assert list(rooms.folder.iterdir()) == []


def _link(room: SandboxDir) -> None:
    (room.work / "src").rename(room.work / "src2")
    (room.work / "src").symlink_to("src2")


@pytest.mark.parametrize(
    "change",
    [
        lambda room: (room.home / ".cache").write_text("x"),
        lambda room: (room.tmp / "x").mkdir(),
        lambda room: (room.root / "pytest.ini").write_text("[pytest]\n"),
        lambda room: (room.root / "pytest.ini").unlink(),
        lambda room: (room.root / "conftest.py").write_text(""),
        lambda room: (room.work / "src").chmod(0o500),
        lambda room: room.work.chmod(0o755),
        lambda room: room.home.chmod(0o755),
        lambda room: (room.work / "more").mkdir(),
        lambda room: (room.work / "out").rmdir(),
        _link,
    ],
)
def test_folders_that_a_step_changed_serve_nobody_any_more(
    rooms: SandboxDirs, change: Callable[[SandboxDir], object]
) -> None:
    first = lay(rooms, FIRST)
    change(first)
    rooms.recycle(first)
    assert list(rooms.folder.iterdir()) == []
    second = lay(rooms, FIRST)
    assert tree(second) == tree(lay(SandboxDirs(rooms.folder.parent / "others", Source()), FIRST))


def test_two_rooms_at_once_never_share_a_folder(rooms: SandboxDirs) -> None:
    rooms.recycle(lay(rooms, FIRST))
    one, other = lay(rooms, FIRST), lay(rooms, FIRST)
    assert one.root != other.root
    assert tree(one) == tree(other)


def test_a_frame_that_somebody_filled_meanwhile_is_not_used(rooms: SandboxDirs) -> None:
    first = lay(rooms, FIRST)
    rooms.recycle(first)
    (first.work / "src/deep/late.txt").write_text("x")
    second = lay(rooms, SECOND)
    assert second.root != first.root
    assert not first.root.exists()
    assert "work/src/deep" not in tree(second)
