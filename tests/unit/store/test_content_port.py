"""What every content store promises: the one on disk, and one in memory."""

import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.model.ports import FileContentStore
from orch23.store.content_store import DiskContentStore
from orch23.store.file_copy import CHUNK_BYTES
from tests.doubles import MemoryContents

SIZES = [0, 1, 1000, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 7]
Damage = Callable[[Digest, bytes], None]


def on_disk(folder: Path) -> tuple[FileContentStore, Damage]:
    contents = DiskContentStore(folder / "cas")

    def damage(digest: Digest, data: bytes) -> None:
        path = contents.path_of(digest)
        path.chmod(0o644)
        path.write_bytes(data)

    return contents, damage


def in_memory(_folder: Path) -> tuple[FileContentStore, Damage]:
    contents = MemoryContents()

    def damage(digest: Digest, data: bytes) -> None:
        contents.blobs[digest.sha256] = data

    return contents, damage


@pytest.mark.parametrize("made", [on_disk, in_memory])
class TestContentStore:
    """The same promises for each of them."""

    kept: ClassVar[bytes] = b"some bytes" * 300

    @pytest.fixture
    def store(self, made: Callable[[Path], tuple[FileContentStore, Damage]], tmp_path: Path) -> FileContentStore:
        self.damage: Damage
        found, self.damage = made(tmp_path)
        return found

    def test_bytes_are_there_under_their_digest_once_they_were_put(self, store: FileContentStore) -> None:
        digest = digest_bytes(self.kept)
        assert not store.has(digest)
        assert store.put(self.kept) == store.put(self.kept) == digest
        assert store.has(digest)
        assert store.get(digest) == self.kept
        assert not store.has(Digest(digest.sha256, digest.size_bytes + 1))
        store.check(digest)
        store.sync()

    def test_no_bytes_are_bytes(self, store: FileContentStore) -> None:
        assert not store.has(digest_bytes(b""))
        assert store.get(store.put(b"")) == b""
        assert list(store.get_chunks(store.put_chunks([]))) == []

    def test_the_size_is_not_needed_to_read(self, store: FileContentStore) -> None:
        unsized = Digest(store.put(self.kept).sha256, 0)
        assert store.get(unsized) == b"".join(store.get_chunks(unsized)) == self.kept

    @pytest.mark.parametrize("size", SIZES)
    def test_chunks_are_the_bytes_whatever_their_sizes(self, store: FileContentStore, size: int) -> None:
        data = random.Random(size).randbytes(size)
        digest = store.put_chunks(data[at : at + 70_001] for at in range(0, size, 70_001))
        assert digest == digest_bytes(data)
        assert b"".join(store.get_chunks(digest)) == store.get(digest) == data

    def test_chunks_that_break_off_are_not_put(self, store: FileContentStore, tmp_path: Path) -> None:
        def breaking() -> Iterator[bytes]:
            yield b"first"
            raise ConnectionError

        with pytest.raises(ConnectionError):
            store.put_chunks(breaking())
        assert not store.has(digest_bytes(b"first"))
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    @pytest.mark.parametrize("size", SIZES)
    def test_files_are_adopted_and_written(self, store: FileContentStore, tmp_path: Path, size: int) -> None:
        data = random.Random(size).randbytes(size)
        (tmp_path / "in").write_bytes(data)
        with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("x+b") as target:
            digest = store.adopt(source.fileno(), "in")
            store.copy_to(digest, target.fileno(), "out")
        assert digest == digest_bytes(data)
        assert (tmp_path / "out").read_bytes() == data
        assert len({os.stat(tmp_path / name).st_ino for name in ("in", "out")}) == 2
        (tmp_path / "in").write_bytes(b"changed")
        (tmp_path / "out").write_bytes(b"changed")
        assert store.get(digest) == data

    @pytest.mark.parametrize("damaged", [b"", b"x" * len(kept), kept + b"more"])
    @pytest.mark.parametrize("read", ["get", "get_chunks", "check", "copy_to"])
    def test_damaged_bytes_are_missing_until_they_are_put_again(
        self, store: FileContentStore, tmp_path: Path, damaged: bytes, read: str
    ) -> None:
        digest = store.put(self.kept)
        self.damage(digest, damaged)
        for _ in range(2):
            with pytest.raises(MissingBytesError), (tmp_path / "out").open("w+b") as target:
                self.read(store, digest, read, target.fileno())
        assert not store.has(digest)
        store.put(self.kept)
        assert store.get(digest) == self.kept

    @pytest.mark.parametrize("read", ["get", "get_chunks", "check", "copy_to"])
    def test_what_was_never_put_is_missing(self, store: FileContentStore, tmp_path: Path, read: str) -> None:
        with pytest.raises(MissingBytesError) as caught, (tmp_path / "out").open("x+b") as target:
            self.read(store, digest_bytes(b"never"), read, target.fileno())
        assert caught.value.sha256 == digest_bytes(b"never").sha256

    def read(self, store: FileContentStore, digest: Digest, how: str, descriptor: int) -> None:
        if how == "copy_to":
            store.copy_to(digest, descriptor)
        elif how == "get_chunks":
            for _ in store.get_chunks(digest):
                pass
        else:
            getattr(store, how)(digest)


def test_the_chunks_that_are_put_are_not_all_in_memory(tmp_path: Path) -> None:
    written: list[int] = []

    def chunks() -> Iterable[bytes]:
        for _ in range(3):
            temps = [path.stat().st_size for path in (tmp_path / "cas").iterdir() if path.is_file()]
            written.extend(temps)
            yield b"x" * 1000

    DiskContentStore(tmp_path / "cas").put_chunks(chunks())
    assert written == [0, 1000, 2000]
