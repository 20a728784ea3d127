import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orch23.model.digest import FileEntry
from orch23.store import file_copy
from orch23.store.content_store import DiskContentStore
from orch23.store.file_copy import CHUNK_BYTES, copy_and_hash, hash_file, no_progress
from orch23.store.input_files import InputFiles
from orch23.store.workspace import Workspace

pytestmark = pytest.mark.slow  # file systems are made, or memory is measured

TAIL = b"the end"
FAR = 8 << 20


@contextmanager
def opened(source: Path, target: Path) -> Iterator[tuple[int, int]]:
    one = os.open(source, os.O_RDONLY)
    other = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        yield one, other
    finally:
        os.close(one)
        os.close(other)


def copied(source: Path, target: Path) -> tuple[str, int]:
    reported: list[int] = []
    with opened(source, target) as (one, other):
        found = copy_and_hash(one, other, reported.append)
    assert sum(reported) == found[1]
    return found


def hashed(path: Path) -> tuple[str, int]:
    reported: list[int] = []
    with path.open("rb") as stream:
        found = hash_file(stream.fileno(), reported.append)
    assert sum(reported) == found[1]
    return found


def expected(path: Path) -> tuple[str, int]:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest(), path.stat().st_size


def sparse(path: Path) -> Path:
    """Make a file of 24 MB that begins with a hole, has data in the middle and near the end, and ends in a hole."""
    with path.open("wb") as stream:
        stream.seek(FAR)
        stream.write(b"middle" * 1000)
        stream.seek(2 * FAR + 5)
        stream.write(TAIL)
        stream.truncate(3 * FAR + 7)
    return path


SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7]


@pytest.mark.parametrize("size", SIZES)
def test_a_copy_holds_the_bytes_and_tells_their_digest(tmp_path: Path, size: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(size))
    assert copied(source, tmp_path / "copy") == hashed(source) == expected(source)
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert (tmp_path / "copy").stat().st_ino != source.stat().st_ino


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_the_kernel_cannot_copy_it_is_done_by_hand(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    monkeypatch.setattr(os, "copy_file_range", refuse)
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 * CHUNK_BYTES + 7))
    assert copied(source, tmp_path / "copy") == expected(source)
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    sparse(tmp_path / "holes")
    assert copied(tmp_path / "holes", tmp_path / "same") == expected(tmp_path / "holes")


def test_a_full_disk_does_not_lead_to_a_copy_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", refuse)
    (tmp_path / "source").write_bytes(bytes(3 * CHUNK_BYTES))
    with pytest.raises(OSError, match="No space"):
        copied(tmp_path / "source", tmp_path / "copy")


def test_a_sparse_file_keeps_its_meaning_and_its_holes(tmp_path: Path) -> None:
    source = sparse(tmp_path / "source")
    if source.stat().st_blocks * 512 > CHUNK_BYTES:
        pytest.skip("this file system has no holes")
    assert copied(source, tmp_path / "copy") == hashed(source) == expected(source)
    assert (tmp_path / "copy").stat().st_blocks * 512 <= CHUNK_BYTES
    contents = DiskContentStore(tmp_path / "cas")
    with source.open("rb") as stream:
        digest = contents.adopt(stream.fileno())
    assert (digest.sha256, digest.size_bytes) == expected(source)
    assert contents.path_of(digest).stat().st_blocks * 512 <= CHUNK_BYTES
    with (tmp_path / "back").open("x+b") as stream:
        contents.copy_to(digest, stream.fileno())
    assert expected(tmp_path / "back") == expected(source)
    assert (tmp_path / "back").stat().st_blocks * 512 <= CHUNK_BYTES


def test_a_file_of_nothing_but_a_hole(tmp_path: Path) -> None:
    with (tmp_path / "source").open("wb") as stream:
        stream.truncate(FAR)
    assert copied(tmp_path / "source", tmp_path / "copy") == expected(tmp_path / "source")


def test_what_is_cut_off_while_it_is_copied_has_the_digest_of_what_was_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, real = tmp_path / "source", os.copy_file_range
    source.write_bytes(os.urandom(4 * CHUNK_BYTES))

    def cut(*arguments: int) -> int:
        os.truncate(source, 2 * CHUNK_BYTES + 3)
        return real(*arguments)

    monkeypatch.setattr(os, "copy_file_range", cut)
    assert copied(source, tmp_path / "copy") == expected(tmp_path / "copy")


def test_what_changes_right_after_it_was_copied_has_the_digest_of_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, real = tmp_path / "source", os.copy_file_range
    source.write_bytes(bytes(2 * CHUNK_BYTES))

    def copy_and_change(*arguments: int) -> int:
        size = real(*arguments)
        with source.open("r+b") as stream:
            stream.write(b"x" * 2 * CHUNK_BYTES)
        return size

    monkeypatch.setattr(os, "copy_file_range", copy_and_change)
    found = copied(source, tmp_path / "copy")
    assert found == expected(tmp_path / "copy") != expected(source)


def test_a_blob_is_checked_in_bounded_memory(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from orch23.store.content_store import DiskContentStore\n"
        "contents = DiskContentStore(Path(sys.argv[1])); source = open(sys.argv[2], 'rb')\n"
        "digest = contents.adopt(source.fileno()); target = open(sys.argv[3], 'x+b')\n"
        "contents.check(digest); contents.copy_to(digest, target.fileno())\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for size in (2 << 20, 64 << 20):
        with (tmp_path / f"{size}").open("wb") as stream:
            stream.writelines(bytes([number]) * (1 << 20) for number in range(size >> 20))
        arguments = [str(tmp_path / f"cas{size}"), str(tmp_path / f"{size}"), str(tmp_path / f"{size}.copy")]
        reported = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=True, text=True)
        peaks.append(int(reported.stdout) * 1024)
    assert peaks[1] - peaks[0] < 16 << 20


# ---- file systems that can share blocks ---------------------------------------------------------------


@pytest.fixture(params=["btrfs", "xfs"])
def sharing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Give a folder of a file system that shares blocks, mounted from a file."""
    make = shutil.which(f"mkfs.{request.param}", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if make is None or os.geteuid() != 0:
        pytest.skip(f"needs root and mkfs.{request.param}")
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as stream:
        stream.truncate(400 << 20)
    subprocess.run([make, "-q", image], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, folder], check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def free_bytes(folder: Path) -> int:
    subprocess.run(["sync", "-f", folder], check=True)
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@pytest.mark.slow
def test_copies_share_blocks_where_the_file_system_can_and_never_an_inode(sharing: Path) -> None:
    size = 32 << 20
    source = sharing / "in.bin"
    source.write_bytes(os.urandom(size))
    workspace = Workspace(sharing, None)
    contents = DiskContentStore(sharing / "cas")
    sources = InputFiles(contents, workspace)
    before = free_bytes(sharing)
    entry = workspace.entry("in.bin")
    assert entry is not None
    assert sources.copy_into("in.bin", entry, f"{sharing}/room")
    with source.open("rb") as stream:
        assert contents.adopt(stream.fileno()) == entry.digest
    assert sources.copy_into("in.bin", entry, f"{sharing}/again")
    assert before - free_bytes(sharing) < size // 2, "three copies took the space of one at least"
    inodes = {
        path.stat().st_ino for path in (source, sharing / "room", sharing / "again", contents.path_of(entry.digest))
    }
    assert len(inodes) == 4
    with (sharing / "room").open("r+b") as stream:
        stream.write(b"changed by a step")
    assert expected(source)[0] == entry.digest.sha256
    contents.check(entry.digest)
    assert (sharing / "again").read_bytes() == source.read_bytes()


@pytest.mark.slow
def test_a_sparse_file_is_shared_as_it_is(sharing: Path) -> None:
    source = sparse(sharing / "source")
    with opened(source, sharing / "copy") as (one, other):
        assert file_copy.share_blocks(one, other)
    assert expected(sharing / "copy") == expected(source)
    assert hashed(sharing / "copy") == expected(source)


def test_an_entry_is_that_of_the_whole_file(tmp_path: Path) -> None:
    sparse(tmp_path / "file")
    entry = Workspace(tmp_path, None, meter=no_progress).entry("file")
    assert isinstance(entry, FileEntry)
    assert (entry.digest.sha256, entry.digest.size_bytes) == expected(tmp_path / "file")
