"""What every backend of a shared cache promises. A backend's tests inherit from `CacheConformance`."""

import contextlib
import hashlib
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass

import pytest

from orch23.features.cache.client import CacheClient
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import CacheFault, MissingBytesError
from orch23.model.ports import SharedCache
from tests.doubles import MemoryContents

MIB = 1 << 20
LIMIT = 1 << 30
ACTION = digest_bytes(b"an action")
WRITER = """
import sys
from functools import partial
from orch23.features.cache.client import CacheClient
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import digest_bytes
url, entry, *texts = sys.argv[1:]
client = CacheClient(open_shared_cache(url), print)
data = [text.encode() * 5000 for text in texts]
sources = {digest_bytes(one): partial(map, bytes, [one[:7000], one[7000:]]) for one in data}
client.upload(digest_bytes(b"an action"), bytes.fromhex(entry), sources)
unsent = client.flush(30)
client.close()
sys.exit(len(unsent))
"""


@dataclass(frozen=True)
class Served:
    """A cache for one test: its URL, and how to change its blobs behind the backend (None: a test cannot)."""

    url: str
    damage: Callable[[Digest, bytes], None] | None = None
    evict: Callable[[Digest], None] | None = None


def put(cache: SharedCache, data: bytes) -> Digest:
    digest = digest_bytes(data)
    cache.put_blob(digest, lambda: (data[at : at + MIB] for at in range(0, len(data), MIB)))
    return digest


def read(cache: SharedCache, digest: Digest, offset: int = 0) -> bytes | None:
    chunks = cache.blob(digest, offset)
    return None if chunks is None else b"".join(chunks)


def make_entry(blobs: Iterable[Digest], text: str = "") -> bytes:
    """Return an entry that names blobs, for caches that do not know ActionResults."""
    return "\n".join([text, *(f"{digest.sha256}/{digest.size_bytes}" for digest in blobs)]).encode()


class CacheConformance:
    """The promises. A subclass overrides the fixture `served`, and `entry_of` if its cache checks ActionResults."""

    entry_of = staticmethod(make_entry)
    keeps_first_entry = True
    is_in_this_process = False
    """Whether the server is: it has all blobs in memory."""

    @pytest.fixture
    def served(self) -> Iterator[Served]:
        raise NotImplementedError

    @pytest.fixture
    def cache(self, served: Served) -> Iterator[SharedCache]:
        with contextlib.closing(open_shared_cache(served.url)) as cache:
            yield cache

    @pytest.fixture
    def client(self, served: Served) -> Iterator[CacheClient]:
        warnings: list[str] = []
        with contextlib.closing(CacheClient(open_shared_cache(served.url), warnings.append)) as client:
            yield client
        assert warnings == []

    def test_an_empty_cache_has_nothing(self, cache: SharedCache) -> None:
        digest = digest_bytes(b"absent")
        assert (cache.entry(ACTION), cache.blob(digest), list(cache.missing([digest]))) == (None, None, [digest])
        cache.discard(digest)
        assert list(cache.missing([])) == []

    @pytest.mark.parametrize("data", [b"", b"x", random.Random(1).randbytes(3 * MIB + 7)], ids=len)
    def test_blobs_are_there_once_they_were_put(self, cache: SharedCache, data: bytes) -> None:
        for _ in range(2):
            digest = put(cache, data)
            assert list(cache.missing([digest])) == []
            assert read(cache, digest) == data

    def test_an_entry_is_there_once_it_was_put(self, cache: SharedCache) -> None:
        entry = self.entry_of([put(cache, b"one"), put(cache, b"two")])
        cache.put_entry(ACTION, entry)
        assert cache.entry(ACTION) == entry
        assert cache.entry(digest_bytes(b"another")) is None
        assert cache.blob(ACTION) is None, "an entry is not a blob"

    @pytest.mark.parametrize("size_bytes", [10, 5 * MIB + 3])
    def test_a_blob_is_read_from_an_offset_on(self, cache: SharedCache, size_bytes: int) -> None:
        data = random.Random(size_bytes).randbytes(size_bytes)
        digest = put(cache, data)
        for offset in (1, size_bytes // 2, size_bytes - 1):
            assert read(cache, digest, offset) == data[offset:]

    def test_the_first_entry_stays_unless_it_is_replaced(self, cache: SharedCache) -> None:
        first, second = self.entry_of([put(cache, b"one")]), self.entry_of([put(cache, b"two")])
        cache.put_entry(ACTION, first)
        cache.put_entry(ACTION, second)
        if self.keeps_first_entry:
            assert cache.entry(ACTION) == first
        cache.put_entry(ACTION, second, replace=True)
        assert cache.entry(ACTION) == second

    def test_the_first_entry_stays_after_a_lookup(self, cache: SharedCache) -> None:
        first, second = self.entry_of([put(cache, b"one")]), self.entry_of([put(cache, b"two")])
        assert cache.entry(ACTION) is None
        for entry in (first, second, second):
            cache.put_entry(ACTION, entry)
        if self.keeps_first_entry:
            assert cache.entry(ACTION) == first

    def test_missing_blobs_are_found_in_one_call(self, cache: SharedCache) -> None:
        there = [put(cache, b"%d" % number) for number in range(9)]
        absent = [digest_bytes(b"absent %d" % number) for number in range(60)]
        assert sorted(cache.missing([*absent, *there])) == sorted(absent)

    def test_a_digest_of_another_size_is_missing(self, cache: SharedCache) -> None:
        other = Digest(put(cache, b"some bytes").sha256, 3)
        with contextlib.suppress(CacheFault):  # a server that verifies digests may refuse the question
            assert list(cache.missing([other])) == [other]
            # What there is must not count: its bytes are wrong.
            assert read(cache, other) != b"some bytes"[:3]

    def test_nothing_is_stored_if_the_bytes_cannot_be_read(self, cache: SharedCache) -> None:
        data = random.Random(2).randbytes(2 * MIB)

        def broken() -> Iterator[bytes]:
            yield data[:MIB]
            raise MissingBytesError("0" * 64)

        with pytest.raises((MissingBytesError, CacheFault)):
            cache.put_blob(digest_bytes(data), broken)
        assert list(cache.missing([digest_bytes(data)])) == [digest_bytes(data)]
        assert read(cache, put(cache, data)) == data

    @pytest.mark.slow
    def test_large_blobs_need_little_memory(self, cache: SharedCache) -> None:
        piece, count = random.Random(3).randbytes(MIB), 14
        digest = Digest(hashlib.sha256(piece * count).hexdigest(), count * MIB)
        tracemalloc.start()
        try:
            cache.put_blob(digest, lambda: (piece for _ in range(count)))
            found = hashlib.sha256()
            for chunk in cache.blob(digest) or ():
                assert len(chunk) <= 8 * MIB
                found.update(chunk)
            assert found.hexdigest() == digest.sha256
            if not self.is_in_this_process:
                assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        finally:
            tracemalloc.stop()

    def test_blobs_that_are_not_read_to_their_end_keep_nothing_open(self, cache: SharedCache) -> None:
        data = random.Random(4).randbytes(2 * MIB)
        digest = put(cache, data)
        for number in range(25):
            chunks = cache.blob(digest)
            assert chunks is not None
            if number % 2:
                assert data.startswith(next(chunks))
            assert isinstance(chunks, Generator)
            chunks.close()
        assert read(cache, digest) == data

    @pytest.mark.slow
    def test_several_processes_write_the_same(self, cache: SharedCache, served: Served) -> None:
        texts = [f"text {number}" for number in range(12)]
        blobs = {digest_bytes(text.encode() * 5000): text.encode() * 5000 for text in texts}
        entries = [self.entry_of(list(blobs)[:1]), self.entry_of(list(blobs)[1:2])]
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, served.url, entry.hex(), *texts]) for entry in entries
        ]
        assert [writer.wait(30) for writer in writers] == [0, 0]
        assert list(cache.missing(blobs)) == []
        assert {digest: read(cache, digest) for digest in blobs} == blobs
        assert cache.entry(ACTION) in entries

    @pytest.mark.parametrize("sha256", ["../../secret", "", "A" * 64, "a" * 63 + "/", "a" * 64 + "\n"])
    def test_digests_that_could_be_paths_are_refused(self, cache: SharedCache, sha256: str) -> None:
        digest = Digest(sha256, 1)
        for call in (cache.entry, cache.blob, lambda one: cache.missing([one, one])):
            with pytest.raises(CacheFault):
                call(digest)
        with pytest.raises(CacheFault):
            cache.put_blob(digest, lambda: [b"x"])

    def test_wrong_bytes_are_refused_and_sent_again(self, client: CacheClient, served: Served) -> None:
        if served.damage is None:
            pytest.skip("the blobs of this cache cannot be changed")
        data = random.Random(5).randbytes(MIB + 9)
        digest = digest_bytes(data)
        for number, damage in enumerate((data, data[:-1] + b"!", data[:-5], data + b"more")):
            there = MemoryContents()
            if damage != data:
                served.damage(digest, damage)
                assert not client.fetch([digest], there, LIMIT)
                assert client.fault_of(digest) == "wrong bytes"
                assert client.get(digest, LIMIT) is None
                assert not there.has(digest)
            client.upload(digest_bytes(b"%d" % number), self.entry_of([digest]), {digest: lambda: [data]})
            assert client.flush(30) == ()
            assert client.fetch([digest], there, LIMIT)
            assert there.get(digest) == data

    def test_an_entry_without_its_blobs_is_replaced(self, client: CacheClient, served: Served) -> None:
        if served.evict is None:
            pytest.skip("the blobs of this cache cannot be removed")
        old, new, contents = digest_bytes(b"old"), digest_bytes(b"new"), MemoryContents()
        client.upload(ACTION, self.entry_of([old]), {old: lambda: [b"old"]})
        assert client.flush(30) == ()
        served.evict(old)
        assert client.entry(ACTION) == self.entry_of([old])
        assert not client.fetch([old], contents, LIMIT)
        client.reject(ACTION)
        client.upload(ACTION, self.entry_of([new]), {new: lambda: [b"new"]})
        assert client.flush(30) == ()
        assert client.entry(ACTION) == self.entry_of([new])
        assert client.fetch([new], contents, LIMIT)

    def test_it_can_be_closed_twice(self, served: Served) -> None:
        cache = open_shared_cache(served.url)
        cache.close()
        cache.close()
