import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.store.content_store import DiskContentStore
from orch23.store.input_files import InputFiles
from orch23.store.workspace import Workspace

PROMISED = FileEntry(digest_bytes(b"data"))


class Place:
    """A project with its store and a sandbox directory beside it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.target = folder / "room" / "deep" / "a"
        self.contents = DiskContentStore(folder / "cas")
        self.sources = InputFiles(self.contents, Workspace(self.root, None))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_bytes_come_from_the_store(place: Place) -> None:
    place.contents.put(b"data")
    assert place.sources.copy_into("a", PROMISED, str(place.target))
    assert place.target.read_bytes() == b"data"
    assert place.sources.read("a", PROMISED) == b"data"


def test_bytes_come_from_the_workspace_where_the_store_has_none(place: Place) -> None:
    (place.root / "a").write_bytes(b"data")
    assert place.sources.copy_into("a", PROMISED, str(place.target))
    assert place.target.read_bytes() == b"data"
    assert place.target.stat().st_ino != (place.root / "a").stat().st_ino
    assert place.sources.read("a", PROMISED) == b"data"


def test_bytes_come_from_the_workspace_where_the_store_is_damaged(place: Place, damage: Callable[[Path], None]) -> None:
    damage(place.contents.path_of(place.contents.put(b"data")))
    with pytest.raises(MissingBytesError):
        place.sources.read("a", PROMISED)
    assert not place.sources.copy_into("a", PROMISED, str(place.target))
    (place.root / "a").write_bytes(b"data")
    assert place.sources.copy_into("a", PROMISED, str(place.target))
    assert place.target.read_bytes() == b"data"


@pytest.mark.parametrize("kind", ["missing", "changed", "link", "mode", "pipe"])
def test_what_is_not_as_promised_is_not_given(place: Place, tmp_path: Path, kind: str) -> None:
    here = place.root / "a"
    match kind:
        case "changed":
            here.write_bytes(b"DATA")
        case "link":
            (tmp_path / "elsewhere").write_bytes(b"data")
            here.symlink_to(tmp_path / "elsewhere")
        case "mode":
            here.write_bytes(b"data")
            here.chmod(0o755)
        case "pipe":
            os.mkfifo(here)
        case _:
            pass
    assert not place.sources.copy_into("a", PROMISED, str(place.target))
    assert not place.target.exists()
    if kind != "mode":
        with pytest.raises(MissingBytesError):
            place.sources.read("a", PROMISED)


@pytest.mark.parametrize("stored", [True, False])
def test_a_program_stays_a_program(place: Place, *, stored: bool) -> None:
    entry = FileEntry(digest_bytes(b"data"), executable=True)
    if stored:
        place.contents.put(b"data")
    else:
        (place.root / "a").write_bytes(b"data")
        (place.root / "a").chmod(0o755)
    assert place.sources.copy_into("a", entry, str(place.target))
    assert place.target.stat().st_mode & 0o100
