import os
import subprocess
import sys
from pathlib import Path

import pytest

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import CorruptStateError, ExitCode, SafetyError
from orch23.model.record import Record
from orch23.store.json_text import TRUSTED
from orch23.store.project_store import open_store
from tests.sandbox.users import ROOT


def test_opening_and_looking_write_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.records.labelled("code") == ()
    assert store.exchanges.get("0" * 64, None) is None
    assert store.workspace.listing("**") == ()
    assert store.promoter.recover() is None
    assert not store.contents.has(digest_bytes(b""))
    assert store.repairs() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_store_has_the_layout_that_is_promised(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.build_lock():
        store.sweep()
        digest = store.contents.put(b"data")
        store.contents.sync()
        store.records.put(Record(stage="s", key="ab" * 32, manifest={}, outputs={"a": FileEntry(digest)}))
    folder = tmp_path / ".orch23"
    assert (folder / "VERSION").read_text() == "1\n"
    assert (folder / "lock").is_file()
    assert (folder / "cas" / digest.sha256[:2] / digest.sha256).read_bytes() == b"data"
    assert (folder / "records" / "ab" / ("ab" * 32)).is_file()
    assert (folder / ".gitignore").read_text() == "*\n"
    assert open_store(tmp_path).records.labelled("s") != ()


@pytest.mark.parametrize("text", ["2\n", "99\n", "123456789\n"])
def test_a_store_of_an_unknown_version_is_refused_with_a_way_out(tmp_path: Path, text: str) -> None:
    with open_store(tmp_path).build_lock():
        (tmp_path / ".orch23" / "VERSION").write_text(text)
    with pytest.raises(CorruptStateError) as caught:
        open_store(tmp_path)
    assert caught.value.exit_code == ExitCode.CORRUPT
    [found] = caught.value.diagnostics
    assert found.code == "E705"
    assert found.hint
    assert "reset" in found.hint


@pytest.mark.parametrize("text", ["", "1", "1\x0b", "garbage\0", "9" * 1000])
def test_an_invalid_version_is_damage_and_is_written_again(tmp_path: Path, text: str) -> None:
    open_store(tmp_path).sweep()
    (tmp_path / ".orch23" / "VERSION").write_text(text)
    store = open_store(tmp_path)
    store.sweep()
    assert (tmp_path / ".orch23" / "VERSION").read_text() == "1\n"
    assert store.repairs() == ("VERSION: was damaged",)


@pytest.mark.parametrize("folder", [".orch23", "logs"])
def test_a_file_in_the_place_of_the_store_is_reported_and_left(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).write_text("mine\n")
    with pytest.raises(CorruptStateError) as caught:
        open_store(tmp_path)
    [found] = caught.value.diagnostics
    assert (found.code, caught.value.exit_code) == ("E692", ExitCode.CORRUPT)
    assert str(tmp_path / folder) in (found.hint or "")
    assert (tmp_path / folder).read_text() == "mine\n"


@pytest.mark.parametrize(
    "place",
    ["index.sqlite", "generation", "promote.json", "VERSION", "cas/ab/blob", "records/ab/key", "exchanges/ab/x.json"],
)
@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_anything_but_a_file_in_a_files_place_is_deleted_and_reported(tmp_path: Path, place: str, kind: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine\n")
    path = tmp_path / ".orch23" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        (path / "inner").mkdir(parents=True)
    elif kind == "link":
        path.symlink_to(outside)
    else:
        os.mkfifo(path)
    store = open_store(tmp_path)
    store.sweep()
    assert store.repairs() == (f"{place}: was not a file",)
    assert not path.exists() or path.read_text() == "1\n"
    assert outside.read_text() == "mine\n"


@pytest.mark.parametrize("place", ["cas", "records", "rooms", "cas/ab", "exchanges/ab"])
def test_a_file_in_a_folders_place_is_deleted_and_reported(tmp_path: Path, place: str) -> None:
    path = tmp_path / ".orch23" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    store = open_store(tmp_path)
    store.sweep()
    assert store.repairs() == (f"{place}: was not a folder",)
    assert not path.is_file()
    assert store.contents.get(store.contents.put(b"data")) == b"data"


def test_a_sweep_removes_what_killed_processes_left_and_nothing_else(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.sweep()
    digest = store.contents.put(b"data")
    temps = [tmp_path / ".orch23" / part / ".orch23-9-9.tmp" for part in ("cas", "records", "exchanges", ".")]
    for temp in temps:
        temp.parent.mkdir(exist_ok=True)
        temp.write_text("torn")
    (tmp_path / ".orch23-mine.tmp").write_text("a person's")
    store.sweep()
    assert not any(temp.exists() for temp in temps)
    assert store.contents.get(digest) == b"data"
    assert (tmp_path / ".orch23-mine.tmp").exists()


KILLED = """
import os, sys
from pathlib import Path
from orch23.store import safe_files
from orch23.store.project_store import open_store
store = open_store(Path(sys.argv[1]))
with store.build_lock(), store.writing_into({"a/b", ""}):
    os.rename = lambda *_, **__: os._exit(9)
    safe_files.replace_file(Path(sys.argv[1]), sys.argv[2], b"torn", 0o644)
"""


@pytest.mark.parametrize("path", ["a/b/file", "file"])
def test_what_was_half_written_in_a_noted_folder_is_removed(tmp_path: Path, path: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/.orch23-mine.tmp").write_text("in a folder that was not noted")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), path], cwd=ROOT, check=False)
    assert killed.returncode == 9
    folder = (tmp_path / path).parent
    assert len([name for name in os.listdir(folder) if name.endswith(".tmp")]) == 1
    open_store(tmp_path).sweep()
    assert [name for name in os.listdir(folder) if name.endswith(".tmp")] == []
    assert (tmp_path / "a/.orch23-mine.tmp").exists()
    assert not (tmp_path / ".orch23/writing.json").exists()


def test_a_note_that_is_damaged_or_leads_outside_removes_nothing(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (tmp_path / ".orch23-1-1.tmp").write_text("outside")
    (project / ".orch23").mkdir(parents=True)
    (project / "link").symlink_to(tmp_path)
    for note in (
        b"{",
        TRUSTED.encode([1]),
        TRUSTED.encode(["..", "link", "a/../..", str(tmp_path), "nowhere"]),
    ):
        (project / ".orch23/writing.json").write_bytes(note)
        open_store(project).sweep()
        assert (tmp_path / ".orch23-1-1.tmp").exists()
        assert not (project / ".orch23/writing.json").exists()


def test_repairs_are_reported(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    digest = store.contents.put(b"data")
    store.local.contents.path_of(digest).unlink()
    store.local.contents.path_of(digest).write_bytes(b"DATA")
    store.local.contents._verified.clear()  # as a new process would begin
    store.contents.put(b"data")
    assert len(store.repairs()) == 1
    assert digest.sha256 in store.repairs()[0]


def test_a_file_of_the_project_is_taken_in_and_no_link_or_pipe_is(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"data")
    digest = store.add_file("sub/file")
    assert store.contents.get(digest) == b"data"
    (tmp_path / "link").symlink_to(tmp_path / "sub" / "file")
    (tmp_path / "folder").symlink_to(tmp_path / "sub")
    os.mkfifo(tmp_path / "pipe")
    for path in ("link", "folder/file", "pipe"):
        with pytest.raises(SafetyError):
            store.add_file(path)
    with pytest.raises(FileNotFoundError):
        store.add_file("nothing")


def test_a_sync_makes_records_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("orch23.store.content_store.sync_filesystem", synced.append)
    store = open_store(tmp_path)
    store.sync()
    assert synced == [], "there is nothing yet"
    store.contents.put(b"data")
    store.records.put(Record(stage="s", key="ab" * 32, manifest={}, outputs={}), durable=False)
    store.sync()
    assert synced == [tmp_path / ".orch23/cas"]
