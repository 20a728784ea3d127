import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.store.content_store import DiskContentStore
from orch23.store.file_copy import CHUNK_BYTES
from orch23.store.input_files import new_file
from orch23.store.safe_files import sweep_temps


@pytest.fixture
def contents(tmp_path: Path) -> DiskContentStore:
    return DiskContentStore(tmp_path / "cas")


def test_bytes_come_back_under_their_digest(contents: DiskContentStore) -> None:
    digest = contents.put(b"hello")
    assert digest == digest_bytes(b"hello")
    assert contents.has(digest)
    assert contents.get(digest) == b"hello"
    assert contents.path_of(digest).stat().st_mode & 0o777 == 0o444


def test_asking_makes_no_folder(contents: DiskContentStore, tmp_path: Path) -> None:
    assert not contents.has(digest_bytes(b"x"))
    with pytest.raises(MissingBytesError):
        contents.get(digest_bytes(b"x"))
    contents.sync()
    sweep_temps(contents.folder)
    assert list(tmp_path.iterdir()) == []


def copy(contents: DiskContentStore, digest: Digest, target: Path, *, executable: bool = False) -> None:
    with new_file(str(target), executable=executable) as descriptor:
        contents.copy_to(digest, descriptor)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7])
def test_a_file_is_kept_whole_whatever_its_size(contents: DiskContentStore, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    for _ in range(2):
        with (tmp_path / "file").open("rb") as stream:
            assert contents.adopt(stream.fileno()) == digest_bytes(data)
    assert contents.get(digest_bytes(data)) == data
    assert [p for p in (tmp_path / "cas").iterdir() if p.is_file()] == []


def test_damaged_bytes_are_never_given_out_and_can_be_put_again(
    contents: DiskContentStore, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    digest = contents.put(b"precious bytes")
    damage(contents.path_of(digest))
    target = tmp_path / "room" / "file"
    with pytest.raises(MissingBytesError):
        copy(contents, digest, target)
    assert not target.exists()
    assert not contents.has(digest)
    assert len(contents.damaged) == 1
    contents.put(b"precious bytes")
    assert contents.get(digest) == b"precious bytes"


def test_who_only_looks_leaves_damaged_bytes_where_they_are(contents: DiskContentStore, tmp_path: Path) -> None:
    digest = contents.put(b"data")
    path = contents.path_of(digest)
    path.chmod(0o644)
    path.write_bytes(b"atad")
    reading = DiskContentStore(path.parents[1])
    for _ in range(2):
        with pytest.raises(MissingBytesError):
            reading.get(digest)
    assert not reading.has(digest)
    assert len(reading.damaged) == 1
    assert path.read_bytes() == b"atad"


def test_the_absent_of_many_blobs_are_found(contents: DiskContentStore) -> None:
    digests = [contents.put(b"%d" % number) for number in range(250)]
    assert contents.absent(digests) == []
    contents.path_of(digests[7]).unlink()
    contents.path_of(digests[120]).chmod(0o644)
    contents.path_of(digests[120]).write_bytes(b"another size")
    contents.path_of(digests[230]).chmod(0o644)
    contents.path_of(digests[230]).write_bytes(b"xyz")
    with pytest.raises(MissingBytesError):
        contents.get(digests[230])
    assert contents.absent(digests) == [digests[7], digests[120], digests[230]]


def test_a_put_by_a_new_process_replaces_a_damaged_blob_of_the_right_size(
    contents: DiskContentStore, tmp_path: Path
) -> None:
    digest = contents.put(b"precious")
    path = contents.path_of(digest)
    path.chmod(0o644)
    path.write_bytes(b"\0" * 8)
    fresh = DiskContentStore(tmp_path / "cas")
    fresh.put(b"precious")
    assert fresh.get(digest) == b"precious"


def test_a_put_notices_that_a_blob_it_knew_is_gone(contents: DiskContentStore) -> None:
    digest = contents.put(b"data")
    contents.path_of(digest).unlink()
    contents.put(b"data")
    assert contents.get(digest) == b"data"


def test_a_copy_is_a_file_of_its_own(contents: DiskContentStore, tmp_path: Path) -> None:
    digest = contents.put(b"data")
    plain, program = tmp_path / "a" / "plain", tmp_path / "a" / "program"
    copy(contents, digest, plain)
    copy(contents, digest, program, executable=True)
    assert plain.stat().st_nlink == 1
    assert not plain.stat().st_mode & 0o100
    assert program.stat().st_mode & 0o100
    plain.write_bytes(b"other")
    assert contents.get(digest) == b"data"


def test_a_copy_replaces_a_link_and_does_not_write_through_it(contents: DiskContentStore, tmp_path: Path) -> None:
    digest = contents.put(b"data")
    (tmp_path / "victim").write_bytes(b"victim")
    (tmp_path / "target").symlink_to(tmp_path / "victim")
    copy(contents, digest, tmp_path / "target")
    assert (tmp_path / "victim").read_bytes() == b"victim"
    assert (tmp_path / "target").read_bytes() == b"data"


def test_a_digest_of_another_size_is_not_there(contents: DiskContentStore) -> None:
    digest = contents.put(b"data")
    assert not contents.has(Digest(digest.sha256, 5))


def test_after_a_fault_at_any_call_no_blob_is_torn(tmp_path: Path, disk: Any, fault: int | None) -> None:
    folder = tmp_path / "cas"
    data = b"some bytes" * 50

    def make(at: int) -> Callable[[], object]:
        contents = DiskContentStore(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return lambda: contents.put(data)

    def check() -> None:
        contents = DiskContentStore(folder)
        if contents.has(digest_bytes(data)):
            assert contents.get(digest_bytes(data)) == data
        sweep_temps(contents.folder)
        assert contents.put(data) == digest_bytes(data)
        assert contents.get(digest_bytes(data)) == data
        assert not [p for p in folder.iterdir() if p.is_file()]

    assert disk.every_point(make, fault, check) >= 5


@pytest.mark.slow  # without coverage, whose tracing of starting threads fails now and then in CPython 3.11
def test_many_threads_may_put_and_read_the_same(contents: DiskContentStore) -> None:
    pieces = [str(n % 7).encode() * 1000 for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(contents.put, pieces))
        assert list(pool.map(contents.get, digests)) == pieces
    assert contents.damaged == []


@pytest.mark.parametrize("size", [0, 10, CHUNK_BYTES, CHUNK_BYTES + 1])
@pytest.mark.parametrize("change", [-7, 1, 5000, "rewritten"])
def test_a_file_that_changes_while_it_is_stored_has_the_digest_of_its_blob(
    contents: DiskContentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, change: int | str
) -> None:
    """A process that was left may still write: the blob must be what its name says."""
    file = tmp_path / "file"
    file.write_bytes(os.urandom(size))

    def changing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if change == "rewritten":
                file.write_bytes(os.urandom(size))
            else:
                os.truncate(file, max(0, size + int(change)))
            done = real(*arguments)
            file.write_bytes(os.urandom(size))
            return done

        return call

    for name in ("pread", "preadv", "copy_file_range"):
        monkeypatch.setattr(os, name, changing(getattr(os, name)))
    with file.open("rb") as stream:
        digest = contents.adopt(stream.fileno())
    monkeypatch.undo()
    found = contents.path_of(digest).read_bytes()
    assert digest_bytes(found) == digest
    assert DiskContentStore(contents.folder).get(digest) == found
