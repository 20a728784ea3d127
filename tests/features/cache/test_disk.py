"""A shared cache in a directory: Bazel's layout, permissions, and what other users put into it."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orch23.features.cache.bounds import MAX_ENTRY_BYTES, BlobFault, FileFault
from orch23.features.cache.client import CacheClient
from orch23.features.cache.disk import DiskCache
from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import CacheFault
from tests.cache_conformance import ACTION, CacheConformance, Served, put, read

DATA = b"some bytes"
DIGEST = digest_bytes(DATA)


def path_of(root: Path, kind: str, digest: Digest) -> Path:
    return root / kind / digest.sha256[:2] / digest.sha256


def replace_blob(root: Path, digest: Digest, data: bytes) -> None:
    path = path_of(root, "cas", digest)
    path.unlink(missing_ok=True)
    path.write_bytes(data)


class TestDirectory(CacheConformance):
    """A directory, by its path."""

    @pytest.fixture
    def served(self, tmp_path: Path) -> Iterator[Served]:
        root = tmp_path / "deep" / "cache"
        yield Served(
            str(root),
            lambda digest, data: replace_blob(root, digest, data),
            lambda digest: path_of(root, "cas", digest).unlink(),
        )
        assert not list(root.glob("**/.orch23-*")), "no temporary file stays"


class TestWithoutLinks(TestDirectory):
    """A directory on a file system that has no hard links."""

    @pytest.fixture(autouse=True)
    def no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_args: object, **_more: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(root: Path) -> DiskCache:
    return DiskCache(root)


def test_the_layout_is_that_of_bazel(cache: DiskCache, root: Path) -> None:
    put(cache, DATA)
    cache.put_entry(ACTION, b"entry")
    assert path_of(root, "cas", DIGEST).read_bytes() == DATA
    assert path_of(root, "ac", ACTION).read_bytes() == b"entry"
    assert sorted(path.name for path in root.iterdir()) == ["ac", "cas", "tmp"]
    assert list((root / "tmp").iterdir()) == []


@pytest.mark.parametrize("mode", [0o2770, 0o700, 0o755, 0o1777])
def test_files_have_the_permissions_of_the_directory(cache: DiskCache, root: Path, mode: int) -> None:
    root.mkdir()
    root.chmod(mode)
    old = os.umask(0o077)
    try:
        put(cache, DATA)
        cache.put_entry(ACTION, b"entry")
    finally:
        os.umask(old)
    for path in root.rglob("*"):
        expected = mode if path.is_dir() else mode & 0o666
        assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(expected), path


def test_a_file_that_is_read_becomes_newer(cache: DiskCache, root: Path) -> None:
    put(cache, DATA)
    cache.put_entry(ACTION, b"entry")
    paths = [path_of(root, "cas", DIGEST), path_of(root, "ac", ACTION)]
    for path in paths:
        os.utime(path, (1e9, 1e9))
    assert (read(cache, DIGEST), cache.entry(ACTION)) == (DATA, b"entry")
    assert all(path.stat().st_mtime > 1e9 for path in paths)


def test_a_file_of_another_size_is_replaced(cache: DiskCache, root: Path) -> None:
    put(cache, DATA)
    for damage in (b"", DATA[:-1], DATA + b"more"):
        replace_blob(root, DIGEST, damage)
        assert list(cache.missing([DIGEST])) == [DIGEST]
        assert read(cache, DIGEST) == damage[: len(DATA) + 1]
        put(cache, DATA)
        assert path_of(root, "cas", DIGEST).read_bytes() == DATA


def test_temporary_files_of_killed_processes_are_removed_after_a_day(cache: DiskCache, root: Path) -> None:
    (root / "tmp").mkdir(parents=True)
    old, new, other = (root / "tmp" / name for name in (".orch23-1-1.tmp", ".orch23-1-2.tmp", "of-bazel"))
    for path in (old, new, other):
        path.write_bytes(b"part")
    for path in (old, other):
        os.utime(path, (1e9, 1e9))
    put(cache, DATA)
    assert sorted(path.name for path in (root / "tmp").iterdir()) == [".orch23-1-2.tmp", "of-bazel"]


def a_link(path: Path, elsewhere: Path) -> None:
    elsewhere.write_bytes(DATA)
    path.symlink_to(elsewhere)


def a_pipe(path: Path, _elsewhere: Path) -> None:
    os.mkfifo(path)


def a_huge_file(path: Path, _elsewhere: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


def a_directory(path: Path, _elsewhere: Path) -> None:
    path.mkdir()


Hostile = Callable[[Path, Path], None]


@pytest.mark.parametrize("kind", ["ac", "cas"])
@pytest.mark.parametrize("make", [a_link, a_pipe, a_huge_file, a_directory])
def test_what_is_no_file_of_the_cache_is_a_miss(
    cache: DiskCache, root: Path, tmp_path: Path, make: Hostile, kind: str
) -> None:
    digest = ACTION if kind == "ac" else DIGEST
    path = path_of(root, kind, digest)
    path.parent.mkdir(parents=True)
    make(path, tmp_path / "elsewhere")
    client = CacheClient(cache, pytest.fail)
    assert (client.entry(ACTION) if kind == "ac" else client.get(DIGEST, 1000)) is None
    assert client.fault_of(digest)
    client.close()
    assert list(cache.missing([DIGEST])) == [DIGEST]
    put(cache, DATA) if kind == "cas" else cache.put_entry(ACTION, DATA)
    assert (read(cache, DIGEST) if kind == "cas" else cache.entry(ACTION)) == DATA
    assert not (tmp_path / "elsewhere").exists() or (tmp_path / "elsewhere").read_bytes() == DATA


@pytest.mark.parametrize("below", ["cas", "tmp", f"cas/{DIGEST.sha256[:2]}"])
@pytest.mark.parametrize("make", [a_link, a_pipe])
def test_nothing_is_written_outside_of_the_directory(root: Path, tmp_path: Path, below: str, make: Hostile) -> None:
    (root / below).parent.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    if make is a_link:
        (root / below).symlink_to(outside)
    else:
        os.mkfifo(root / below)
    with pytest.raises(CacheFault) as raised:
        put(DiskCache(root), DATA)
    assert not raised.value.transient
    assert list(outside.iterdir()) == []
    (outside / DIGEST.sha256).write_bytes(DATA)
    if make is a_link and below == "cas":
        with pytest.raises(CacheFault):
            DiskCache(root).missing([DIGEST])
    elif make is a_link and below != "tmp":
        assert list(DiskCache(root).missing([DIGEST])) == [DIGEST]
        assert isinstance(raised.value, FileFault), "other blobs can be stored"
    DiskCache(root).discard(DIGEST)
    assert (outside / DIGEST.sha256).exists()


def test_a_link_to_a_file_elsewhere_is_not_changed_by_a_put(cache: DiskCache, root: Path, tmp_path: Path) -> None:
    path = path_of(root, "cas", DIGEST)
    path.parent.mkdir(parents=True)
    (tmp_path / "precious").write_bytes(b"precious")
    path.symlink_to(tmp_path / "precious")
    put(cache, DATA)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not path.is_symlink()


def test_an_entry_that_is_too_large_is_replaced(cache: DiskCache, root: Path) -> None:
    cache.put_entry(ACTION, b"entry")
    with path_of(root, "ac", ACTION).open("r+b") as stream:
        stream.truncate(MAX_ENTRY_BYTES + 1)
    with pytest.raises(BlobFault, match="16 MiB"):
        cache.entry(ACTION)
    cache.put_entry(ACTION, b"small")
    assert cache.entry(ACTION) == b"small"


def test_a_file_that_shrinks_or_grows_while_it_is_read_ends_there(cache: DiskCache, root: Path) -> None:
    data = bytes(3 << 20)
    digest = put(cache, data)
    for size in (1 << 20, 9 << 20):
        chunks = cache.blob(digest)
        assert chunks is not None
        found = len(next(chunks))
        os.truncate(path_of(root, "cas", digest), size)
        assert found + sum(map(len, chunks)) == min(size, len(data) + 1)
        os.truncate(path_of(root, "cas", digest), len(data))


def test_a_file_in_place_of_the_directory_is_a_fault(root: Path) -> None:
    root.write_bytes(b"a file")
    assert DiskCache(root).entry(ACTION) is None
    with pytest.raises(CacheFault):
        put(DiskCache(root), DATA)


def test_a_share_that_is_gone_for_a_moment_is_a_transient_fault(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, DATA)

    def stale(*_args: object, **_more: object) -> int:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "open", stale)
    with pytest.raises(CacheFault, match="Stale file handle") as raised:
        cache.entry(ACTION)
    assert raised.value.transient


def test_wrong_bytes_of_the_right_size_are_removed_where_they_are_found(cache: DiskCache, root: Path) -> None:
    put(cache, DATA)
    replace_blob(root, DIGEST, b"SOME BYTES")
    assert not cache.missing([DIGEST]), "their size is right"
    reader = CacheClient(cache, pytest.fail)
    assert reader.get(DIGEST, 1000) is None
    assert not path_of(root, "cas", DIGEST).exists()
    # Another build, which has not seen the damage, repairs it with its next upload.
    writer = CacheClient(DiskCache(root), pytest.fail)
    writer.upload(ACTION, b"entry", {DIGEST: lambda: [DATA]})
    assert writer.flush(10) == ()
    assert read(cache, DIGEST) == DATA
    for client in (reader, writer):
        client.close()


@pytest.mark.parametrize("number", [0, 1], ids=["at once", "after a part"])
def test_a_full_disk_leaves_no_half_file_and_one_warning(
    cache: DiskCache, root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    whole = os.write
    warnings: list[str] = []

    def full(descriptor: int, data: bytes) -> int:
        nonlocal number
        if not number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        number -= 1
        return whole(descriptor, data[:4])

    monkeypatch.setattr(os, "write", full)
    client = CacheClient(cache, warnings.append)
    for action in (ACTION, digest_bytes(b"another")):
        client.upload(action, b"entry", {DIGEST: lambda: [DATA]})
    assert set(client.flush(10)) == {ACTION, digest_bytes(b"another")}
    assert warnings == [
        "results are not uploaded to the shared cache for the rest of this run: No space left on device"
    ]
    # It can still be read.
    assert client.entry(ACTION) is None
    assert len(warnings) == 1
    client.close()
    assert not [path for path in root.rglob("*") if path.is_file()]


def full(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def upload_each(root: Path, count: int) -> tuple[tuple[Digest, ...], str]:
    """Upload so many results, each with a blob of its own; return those that were not stored, and why."""
    client = CacheClient(DiskCache(root), pytest.fail)
    for number in range(count):
        data = b"of stage %d" % number
        client.upload(digest_bytes(b"stage %d" % number), b"entry", {digest_bytes(data): lambda data=data: [data]})  # type: ignore[misc]
    unsent = client.flush(30)
    client.close()
    return unsent, client.refusal


@pytest.mark.parametrize("kind", ["cas", "ac"])
def test_a_directory_in_place_of_a_file_stops_one_result(root: Path, kind: str) -> None:
    assert upload_each(root, 20) == ((), "")
    digest = digest_bytes(b"of stage 0" if kind == "cas" else b"stage 0")
    full(path_of(root, kind, digest))
    unsent, why = upload_each(root, 20)
    assert unsent == (digest_bytes(b"stage 0"),)
    assert digest.sha256 in why
    assert "directory" in why.lower() or "not empty" in why


def test_any_number_of_files_that_cannot_be_replaced_stop_only_their_results(root: Path) -> None:
    upload_each(root, 15)
    for number in range(13):
        full(path_of(root, "cas", digest_bytes(b"of stage %d" % number)))
    unsent, _ = upload_each(root, 20)
    assert set(unsent) == {digest_bytes(b"stage %d" % number) for number in range(13)}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_an_error_of_the_disk_is_one_of_the_cache(
    root: Path, cache: DiskCache, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    for name in ("link", "rename"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(CacheFault) as raised:
        put(cache, DATA)
    assert not isinstance(raised.value, FileFault)


@pytest.fixture
def shared() -> Iterator[Path]:
    """Yield a directory in which each user may create files, and replace only those of their own."""
    folder = Path(tempfile.mkdtemp(prefix="orch23-shared-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody() -> Iterator[Callable[[], None]]:
    """Yield a function that makes this process one of another user until the test ends."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")

    def become() -> None:
        os.setegid(65534)
        os.seteuid(65534)

    yield become
    os.seteuid(0)
    os.setegid(0)


def wrong_size(path: Path) -> None:
    path.write_bytes(b"wrong")


def no_permission(path: Path) -> None:
    path.chmod(0)


@pytest.mark.parametrize("kind", ["cas", "ac"])
@pytest.mark.parametrize("damage", [wrong_size, no_permission, full])
def test_a_file_of_another_user_that_is_damaged_stops_one_result(
    shared: Path, as_nobody: Callable[[], None], damage: Callable[[Path], None], kind: str
) -> None:
    upload_each(shared, 3)
    digest = digest_bytes(b"of stage 0" if kind == "cas" else b"stage 0")
    damage(path_of(shared, kind, digest))
    as_nobody()
    for _ in range(2):
        unsent, why = upload_each(shared, 20)
        if kind == "ac" and damage is wrong_size:
            assert unsent == (), "an entry can have any size"
        else:
            assert unsent == (digest_bytes(b"stage 0"),)
            assert digest.sha256 in why


def test_wrong_bytes_in_a_file_of_another_user_do_not_count_as_stored(
    shared: Path, as_nobody: Callable[[], None]
) -> None:
    put(DiskCache(shared), DATA)
    replace_blob(shared, DIGEST, b"SOME BYTES")
    as_nobody()
    client = CacheClient(DiskCache(shared), pytest.fail)
    assert client.get(DIGEST, 1000) is None
    client.upload(ACTION, b"entry", {DIGEST: lambda: [DATA]})
    assert client.flush(10) == (ACTION,)
    client.close()


def test_a_directory_of_others_that_cannot_be_read_hides_only_its_files(
    shared: Path, as_nobody: Callable[[], None]
) -> None:
    upload_each(shared, 5)
    (shared / "cas" / digest_bytes(b"of stage 0").sha256[:2]).chmod(0)
    as_nobody()
    with pytest.raises(FileFault, match="Permission denied"):
        DiskCache(shared).blob(digest_bytes(b"of stage 0"))
    assert upload_each(shared, 20)[0] == (digest_bytes(b"stage 0"),)
