"""The client of shared caches: bounds, retries, verified reads, uploads in the background, and when it gives up."""

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import pytest

from orch23.features.cache.availability import CacheLimits
from orch23.features.cache.bounds import MAX_ENTRY_BYTES
from orch23.features.cache.client import CacheClient
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import CacheFault, MissingBytesError
from orch23.model.ports import ChunkSource, SharedCache
from tests.cache_conformance import ACTION, LIMIT
from tests.cache_server import CacheServer, Fault, serving_cache
from tests.doubles import MemoryCache, MemoryContents

DATA = b"some bytes" * 300
DIGEST = digest_bytes(DATA)
FAST = CacheLimits(patience_s=0.05, check_each_s=0.01, usual_s=0.01, slowest_bytes_per_s=1 << 30)
PATIENT = CacheLimits(check_each_s=0.01)
OTHER = digest_bytes(b"another action")


class Hanging:
    """Blocks calls of a cache until the test ends."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.ended = threading.Event()

    def __call__(self, name: str, _digest: Digest | None) -> None:
        if name in self.names:
            assert self.ended.wait(30)


class Failing:
    """Raises these exceptions, one for each call of a method, then none."""

    def __init__(self, name: str, *errors: Exception) -> None:
        self.name, self.errors = name, list(errors)

    def __call__(self, name: str, _digest: Digest | None) -> None:
        if name == self.name and self.errors:
            raise self.errors.pop(0)


def busy(number: int = 1) -> list[CacheFault]:
    return [CacheFault("busy", transient=True) for _ in range(number)]


class Rig:
    """A client with a cache in memory, and what it warned of."""

    def __init__(self, limits: CacheLimits | None = None, backend: SharedCache | None = None) -> None:
        self.cache = MemoryCache()
        self.warnings: list[str] = []
        self.pauses: list[float] = []
        self.now_s = 0.0
        self.client = CacheClient(
            backend or self.cache,
            self.warnings.append,
            limits or CacheLimits(),
            clock=time.monotonic if limits in (FAST, PATIENT) else lambda: self.now_s,
            pause=self.pauses.append,
        )


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.client.close()


def source(*texts: bytes) -> Mapping[Digest, ChunkSource]:
    return {digest_bytes(text): partial(tuple, (text,)) for text in texts}


# ---- lookups and downloads ----


def test_the_bytes_of_entries_are_counted(rig: Rig) -> None:
    rig.cache.entries[ACTION] = b"entry"
    assert (rig.client.entry(ACTION), rig.client.entry(OTHER), rig.client.entry(OTHER)) == (b"entry", None, None)
    assert rig.client.down_bytes == 5


def test_an_entry_that_is_too_large_is_a_miss(rig: Rig) -> None:
    rig.cache.entries[ACTION] = bytes(MAX_ENTRY_BYTES + 1)
    assert rig.client.entry(ACTION) is None
    assert rig.client.fault_of(ACTION) == "its entry has more than 16 MiB"


def test_blobs_are_copied_to_the_content_store_if_it_lacks_them(rig: Rig) -> None:
    contents = MemoryContents()
    here = contents.put(b"here")
    rig.cache.blobs[DIGEST] = DATA
    assert rig.client.fetch([DIGEST, here, DIGEST], contents, LIMIT)
    assert contents.get(DIGEST) == DATA
    assert rig.cache.asked == ["blob"]
    assert rig.client.get(DIGEST, LIMIT) == DATA
    assert rig.client.down_bytes == 2 * len(DATA)
    assert not rig.client.fetch([DIGEST, OTHER], MemoryContents(), LIMIT)


@pytest.mark.parametrize(
    "claimed", [Digest("a" * 64, 10**13), Digest("a" * 64, -1), Digest("../secret", 3), Digest("b" * 64, LIMIT)]
)
def test_nothing_is_read_if_the_claimed_sizes_do_not_fit(rig: Rig, claimed: Digest) -> None:
    rig.cache.blobs[DIGEST] = DATA
    assert not rig.client.fetch([DIGEST, claimed], MemoryContents(), LIMIT)
    assert claimed.size_bytes == LIMIT or rig.client.get(claimed, LIMIT) is None
    assert "blob" not in rig.cache.asked or claimed.size_bytes == LIMIT


@pytest.mark.parametrize("wrong", [b"", DATA[:-1], DATA + b"!", bytes(len(DATA))], ids=len)
def test_wrong_bytes_are_not_stored_and_removed_from_the_cache(rig: Rig, wrong: bytes) -> None:
    rig.cache.blobs[DIGEST] = wrong
    contents = MemoryContents()
    assert not rig.client.fetch([DIGEST], contents, LIMIT)
    assert contents.blobs == {}
    assert DIGEST not in rig.cache.blobs
    assert (rig.client.damaged, rig.warnings) == (1, [])
    assert rig.client.fault_of(DIGEST) == "wrong bytes"


def test_a_cache_with_many_wrong_blobs_is_switched_off() -> None:
    rig = Rig(CacheLimits(damaged=3))
    texts = [b"text %d" % number for number in range(5)]
    rig.cache.blobs.update({digest_bytes(text): b"wrong" for text in texts})
    for text in texts:
        assert rig.client.get(digest_bytes(text), LIMIT) is None
    assert rig.cache.asked.count("blob") == 3
    assert rig.warnings == ["the shared cache is not used for the rest of this run: it sent wrong bytes 3 times"]
    rig.client.close()


def test_no_more_is_read_than_the_digest_says(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def endless() -> Iterator[bytes]:
        for number in range(10**6):
            read.append(number)
            yield b"x" * 1000

    monkeypatch.setattr(rig.cache, "blob", lambda _digest: endless())
    assert rig.client.get(DIGEST, LIMIT) is None
    assert len(read) == 3


def test_an_error_of_the_content_store_is_raised(rig: Rig) -> None:
    class Full(MemoryContents):
        def put_chunks(self, chunks: Iterable[bytes]) -> Digest:
            raise OSError(28, "No space left on device")

    rig.cache.blobs[DIGEST] = DATA
    with pytest.raises(OSError, match="No space left"):
        rig.client.fetch([DIGEST], Full(), LIMIT)
    assert rig.warnings == []


def test_downloads_run_in_parallel_in_bounded_threads() -> None:
    limits = CacheLimits(downloads=3)
    rig = Rig(limits)
    together = threading.Barrier(3)
    at_once: list[int] = []
    running: set[int] = set()

    def note(_name: str, _digest: Digest | None) -> None:
        running.add(threading.get_ident())
        together.wait(20)  # only three at once get past it
        at_once.append(len(running))

    rig.cache.before = note
    texts = [b"text %d" % number for number in range(9)]
    rig.cache.blobs.update({digest_bytes(text): text for text in texts})
    contents = MemoryContents()
    assert rig.client.fetch([digest_bytes(text) for text in texts], contents, LIMIT)
    assert max(at_once) == 3
    rig.client.close()


# ---- faults ----


def test_a_transient_fault_is_tried_again_after_a_pause(rig: Rig) -> None:
    rig.cache.entries[ACTION] = b"entry"
    rig.cache.before = Failing("entry", *busy(2))
    assert rig.client.entry(ACTION) == b"entry"
    assert rig.pauses == [0.2, 1.0]
    assert rig.warnings == []


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        (busy(3), "busy (after 3 tries)"),
        ([CacheFault("the server refused the login")], "the server refused the login"),
        ([RuntimeError("https://name:password@host")], "unexpected RuntimeError"),
    ],
)
def test_the_first_lasting_fault_switches_the_cache_off(rig: Rig, errors: list[Exception], reason: str) -> None:
    rig.cache.entries[ACTION] = b"entry"
    rig.cache.before = Failing("entry", *errors)
    contents = MemoryContents()
    assert rig.client.entry(ACTION) is None
    asked = len(rig.cache.asked)
    assert rig.client.entry(ACTION) is None
    assert rig.client.get(DIGEST, LIMIT) is None
    assert not rig.client.fetch([DIGEST], contents, LIMIT)
    rig.client.upload(ACTION, b"entry", source(DATA))
    assert rig.client.flush(10) == (ACTION,)
    assert len(rig.cache.asked) == asked
    assert rig.warnings == [f"the shared cache is not used for the rest of this run: {reason}"]
    assert rig.client.fault == rig.warnings[0]


class Cut:
    """The blob of a cache whose connection breaks again and again; `asked` are the offsets."""

    def __init__(self, *parts: int | None) -> None:
        self.parts, self.asked = list(parts), list[int]()

    def __call__(self, _digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        self.asked.append(offset)
        size = self.parts.pop(0)
        return None if size is None else self._chunks(offset, size)

    def _chunks(self, offset: int, size: int) -> Iterator[bytes]:
        data = DATA[offset:]
        yield data[:size]
        if size < len(data):
            raise busy()[0]


def test_a_download_is_resumed_while_it_makes_progress(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut(1000, 1, 500, len(DATA))
    monkeypatch.setattr(rig.cache, "blob", cut)
    contents = MemoryContents()
    assert rig.client.fetch([DIGEST], contents, LIMIT)
    assert contents.get(DIGEST) == DATA
    assert cut.asked == [0, 1000, 1001, 1501]
    assert rig.pauses == [0.2, 0.2, 0.2]


def test_a_download_without_progress_starts_again_as_often_as_any_call(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Cut(1000, 0, 0, len(DATA))
    monkeypatch.setattr(rig.cache, "blob", cut)
    contents = MemoryContents()
    assert rig.client.fetch([DIGEST], contents, LIMIT)
    assert cut.asked == [0, 1000, 0, 0]
    assert contents.get(DIGEST) == DATA


def test_a_blob_that_is_evicted_during_its_download_is_missing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.cache, "blob", Cut(1000, None))
    contents = MemoryContents()
    assert not rig.client.fetch([DIGEST], contents, LIMIT)
    assert not contents.has(DIGEST)
    assert rig.warnings == []


def test_an_upload_that_is_refused_does_not_stop_lookups(rig: Rig) -> None:
    rig.cache.entries[ACTION] = b"entry"
    rig.cache.before = Failing("put_blob", CacheFault("the server replied 405"))
    rig.client.upload(OTHER, b"other", source(DATA))
    assert rig.client.flush(10) == (OTHER,)
    assert rig.client.entry(ACTION) == b"entry"
    (warning,) = rig.warnings
    assert warning == "results are not uploaded to the shared cache for the rest of this run: the server replied 405"


@pytest.mark.parametrize("name", ["entry", "blob"])
def test_a_cache_that_hangs_costs_a_bounded_time_once(name: str) -> None:
    rig = Rig(FAST)
    rig.cache.blobs[DIGEST] = DATA
    rig.cache.before = hanging = Hanging(name)
    contents = MemoryContents()
    calls: list[Callable[[], object]] = [
        lambda: rig.client.entry(ACTION),
        lambda: rig.client.fetch([DIGEST], contents, LIMIT),
    ]
    if name == "blob":
        calls.reverse()
    assert not calls[0]()
    off = "the shared cache is not used for the rest of this run"
    assert rig.warnings == [f"{off}: it is too slow, and has cost 0.05 s"]
    for call in calls * 10:
        assert not call()
    assert len(rig.cache.asked) == 1
    rig.client.close()
    hanging.ended.set()
    assert rig.cache.closed == 1
    assert contents.blobs == {}


def test_a_call_that_ends_after_the_client_has_given_up_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, ended = threading.Event(), threading.Event()

    class Watched(MemoryContents):
        def put_chunks(self, chunks: Iterable[bytes]) -> Digest:
            try:
                return super().put_chunks(chunks)
            finally:
                ended.set()

    def slow() -> Iterator[bytes]:
        yield DATA[:1000]
        assert goes_on.wait(20)
        yield DATA[1000:]

    rig, contents = Rig(FAST), Watched()
    monkeypatch.setattr(rig.cache, "blob", lambda _digest: slow())
    assert not rig.client.fetch([DIGEST], contents, LIMIT)
    goes_on.set()
    assert ended.wait(20)
    assert contents.blobs == {}
    rig.client.close()


def test_several_faults_at_once_are_one_warning(rig: Rig) -> None:
    together = threading.Barrier(3)

    def fail(_name: str, _digest: Digest | None) -> None:
        together.wait(20)
        raise CacheFault(DIGEST.sha256)

    rig.cache.before = fail
    assert not rig.client.fetch([DIGEST, ACTION, OTHER], MemoryContents(), LIMIT)
    assert len(rig.warnings) == 1


def test_a_slow_cache_is_switched_off_when_it_has_lost_the_time_of_a_run(rig: Rig) -> None:
    def slow(_name: str, _digest: Digest | None) -> None:
        rig.now_s += 0.9

    rig.cache.before = slow
    for _ in range(99):
        rig.client.entry(ACTION)
    assert rig.cache.asked == ["entry"] * 7
    assert rig.warnings == ["the shared cache is not used for the rest of this run: it is too slow, and has cost 6 s"]


def test_large_blobs_may_take_longer(rig: Rig) -> None:
    data = bytes(1 << 20)
    digest = digest_bytes(data)

    def slow(_name: str, _digest: Digest | None) -> None:
        rig.now_s += 5.5

    rig.cache.before = slow
    rig.cache.blobs[digest] = data
    for _ in range(9):
        assert rig.client.get(digest, LIMIT) == data
    assert rig.warnings == []


@pytest.mark.slow
def test_the_process_ends_although_a_call_hangs() -> None:
    script = """
import threading
from orch23.features.cache.availability import CacheLimits
from orch23.features.cache.client import CacheClient
from orch23.model.digest import digest_bytes
from tests.doubles import MemoryCache
cache = MemoryCache()
cache.before = lambda *_: threading.Event().wait()
client = CacheClient(cache, print, CacheLimits(patience_s=0.05, usual_s=0.01))
client.upload(digest_bytes(b""), b"", {digest_bytes(b""): lambda: [b""]})
print(client.entry(digest_bytes(b"")), len(client.flush(0.01)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[-1] == "None 1"


# ---- uploads ----


def test_blobs_are_uploaded_before_their_entry_and_only_if_they_are_missing(rig: Rig) -> None:
    rig.cache.blobs[digest_bytes(b"there")] = b"there"
    rig.client.upload(ACTION, b"entry", source(DATA, b"there", b""))
    assert rig.client.flush(10) == ()
    assert rig.cache.asked == ["missing", "put_blob", "put_blob", "put_entry"]
    assert rig.cache.entries == {ACTION: b"entry"}
    assert rig.cache.blobs == {digest_bytes(one): one for one in (DATA, b"there", b"")}
    rig.client.upload(OTHER, b"other", source(DATA, b"there"))
    assert rig.client.flush(10) == ()
    assert rig.cache.asked[4:] == ["put_entry"], "nothing is asked twice"
    assert rig.client.up_bytes == len(DATA) + len(b"entry") + len(b"other")


def test_a_blob_of_several_results_is_uploaded_once() -> None:
    rig = Rig(CacheLimits(uploads=4))
    rig.cache.before = hanging = Hanging("put_blob")
    actions = [digest_bytes(b"action %d" % number) for number in range(20)]
    for action in actions:
        rig.client.upload(action, b"entry", source(DATA))
    hanging.ended.set()
    assert rig.client.flush(10) == ()
    assert rig.cache.asked.count("put_blob") == 1
    assert sorted(rig.cache.entries) == sorted(actions)
    rig.client.close()


def test_questions_for_missing_blobs_have_a_bounded_size() -> None:
    rig = Rig(CacheLimits(batch=10))
    rig.client.upload(ACTION, b"entry", source(*(b"%d" % number for number in range(25))))
    assert rig.client.flush(10) == ()
    assert rig.cache.questions == [10, 10, 5]
    rig.client.close()


def test_results_that_come_during_a_question_are_in_the_next_one() -> None:
    rig = Rig()
    began, goes_on = threading.Event(), threading.Event()

    def before(name: str, _digest: Digest | None) -> None:
        if name == "missing":
            began.set()
            assert goes_on.wait(20)

    rig.cache.before = before
    for number in range(9):
        rig.client.upload(digest_bytes(b"action %d" % number), b"entry", source(b"%d" % number))
        assert began.wait(20)
    goes_on.set()
    assert rig.client.flush(10) == ()
    assert rig.cache.questions == [1, 8]
    rig.client.close()


def test_an_entry_is_sent_before_the_blobs_of_other_results() -> None:
    rig = Rig(CacheLimits(uploads=1))
    is_added = threading.Event()
    rig.cache.before = lambda name, _digest: name != "missing" or is_added.wait(20)
    for number in range(3):
        rig.client.upload(digest_bytes(b"action %d" % number), b"entry", source(b"%d" % number))
    is_added.set()
    assert rig.client.flush(10) == ()
    assert rig.cache.asked.count("missing") <= 2
    assert [name for name in rig.cache.asked if name != "missing"] == ["put_blob", "put_entry"] * 3
    rig.client.close()


def test_the_empty_blob_is_everywhere(rig: Rig) -> None:
    contents = MemoryContents()
    assert rig.client.fetch([digest_bytes(b"")], contents, 0)
    assert contents.get(digest_bytes(b"")) == b""
    assert rig.client.get(digest_bytes(b""), 0) == b""
    assert rig.cache.asked == []


def gone() -> Iterator[bytes]:
    yield b"some"
    raise MissingBytesError(DIGEST.sha256)


def unreadable() -> Iterable[bytes]:
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("broken", [gone, unreadable, lambda: [bytes(len(DATA))]])
def test_a_result_whose_bytes_are_gone_from_this_machine_is_not_uploaded(rig: Rig, broken: ChunkSource) -> None:
    rig.client.upload(ACTION, b"entry", {DIGEST: broken})
    assert rig.client.flush(10) == (ACTION,)
    assert (rig.cache.entries, rig.cache.blobs, rig.warnings) == ({}, {}, [])


def test_a_flush_ends_at_its_deadline_and_reports_what_is_left() -> None:
    rig = Rig(PATIENT)
    rig.cache.before = hanging = Hanging("put_blob")
    rig.client.upload(ACTION, b"entry", source(DATA))
    rig.client.upload(OTHER, b"other", {})
    while OTHER not in rig.cache.entries:
        assert ACTION in rig.client.flush(0.01)
    assert rig.client.flush(0.01) == (ACTION,)
    rig.client.close()
    hanging.ended.set()
    assert rig.warnings == []


def test_not_more_results_wait_than_the_limit() -> None:
    rig = Rig(CacheLimits(pending=2))
    rig.cache.before = hanging = Hanging("missing")
    actions = [digest_bytes(b"action %d" % number) for number in range(5)]
    for action in actions:
        rig.client.upload(action, b"entry", source(DATA))
    hanging.ended.set()
    assert rig.client.flush(10) == tuple(sorted(actions[2:]))
    assert sorted(rig.cache.entries) == sorted(actions[:2])
    rig.client.close()


def test_a_rejected_entry_is_replaced(rig: Rig) -> None:
    rig.cache.entries[ACTION] = b"garbage"
    assert rig.client.entry(ACTION) == b"garbage"
    rig.client.reject(ACTION)
    rig.client.upload(ACTION, b"entry", {})
    rig.client.upload(OTHER, b"other", {})
    assert rig.client.flush(10) == ()
    assert rig.cache.entries == {ACTION: b"entry", OTHER: b"other"}
    assert sorted(rig.cache.asked[1:]) == ["put_entry", "replace_entry"]


def test_an_upload_is_tried_again_from_the_beginning_of_the_bytes(rig: Rig) -> None:
    calls: list[int] = []

    def chunks() -> Iterator[bytes]:
        calls.append(1)
        yield from (DATA[:5], DATA[5:])

    stored = rig.cache.put_blob

    def cut(digest: Digest, chunks: ChunkSource) -> None:
        if len(calls) < 2:
            next(iter(chunks()))
            raise busy()[0]
        stored(digest, chunks)

    rig.cache.put_blob = cut  # type: ignore[method-assign]
    rig.client.upload(ACTION, b"entry", {DIGEST: chunks})
    assert rig.client.flush(10) == ()
    assert (rig.cache.blobs, rig.pauses) == ({DIGEST: DATA}, [0.2, 1.0])


# ---- with a server ----


@pytest.fixture
def server() -> Iterator[CacheServer]:
    with serving_cache() as server:
        yield server


@pytest.mark.parametrize("fault", ["truncate", "500", "reset", "404", "wrong"])
def test_one_fault_of_the_server_in_the_middle_of_a_build(server: CacheServer, fault: Fault) -> None:
    texts = [b"text %d" % number * 900 for number in range(12)]
    server.blobs.update({digest_bytes(text).sha256: text for text in texts})
    faults: list[Fault] = [fault]
    server.fault = lambda _method, path: faults.pop() if faults and path.endswith(digest_bytes(texts[5]).sha256) else ""
    rig = Rig(backend=open_shared_cache(server.url))
    contents = MemoryContents()
    is_complete = rig.client.fetch([digest_bytes(text) for text in texts], contents, LIMIT)
    assert is_complete is (fault not in {"404", "wrong"})
    assert rig.client.fetch([digest_bytes(text) for text in texts], contents, LIMIT)
    assert rig.warnings == []
    rig.client.close()


def test_what_the_server_always_cuts_is_named_and_nothing_else_is_lost(server: CacheServer) -> None:
    texts = [b"text %d" % number * 900 for number in range(3)]
    digests = [digest_bytes(text) for text in texts]
    server.blobs.update(zip((one.sha256 for one in digests), texts, strict=True))
    server.entries.update({ACTION.sha256: b"entry", OTHER.sha256: b"other"})
    cut = (digests[1].sha256, ACTION.sha256)
    server.fault = lambda _method, path: "truncate" if path.endswith(cut) else ""
    rig, contents = Rig(backend=open_shared_cache(server.url)), MemoryContents()
    assert not rig.client.fetch(digests, contents, LIMIT)
    assert [bool(rig.client.fault_of(one)) for one in digests] == [False, True, False]
    assert (rig.client.entry(ACTION), rig.client.entry(OTHER)) == (None, b"other")
    assert "without sending complete message" in rig.client.fault_of(ACTION)
    assert rig.client.fetch([digests[0], digests[2]], contents, LIMIT)
    assert rig.warnings == []
    rig.client.close()


@pytest.mark.parametrize("fault", ["drip", "hang"])
def test_a_server_that_sends_too_slowly_is_switched_off(server: CacheServer, fault: Fault) -> None:
    server.blobs[DIGEST.sha256] = DATA
    server.fault = lambda _method, _path: fault
    rig = Rig(FAST, open_shared_cache(server.url))
    contents = MemoryContents()
    with contextlib.closing(rig.client):
        assert not rig.client.fetch([DIGEST], contents, LIMIT)
        assert len(rig.warnings) == 1
        assert contents.blobs == {}


# ---- everything at once ----


class Chaos:
    """Does one of the things that caches do, at each call."""

    def __init__(self, seed: int, cache: MemoryCache) -> None:
        self.random, self.cache = random.Random(seed), cache
        self.lock = threading.Lock()

    def __call__(self, name: str, digest: Digest | None) -> None:
        with self.lock:
            chance = self.random.random()
            if chance < 0.1:
                raise busy()[0]
            if chance < 0.11:
                raise CacheFault(name)
            if chance < 0.15 and name == "blob" and digest is not None:
                self.cache.blobs.pop(digest, None)
            elif chance < 0.25 and name == "blob" and digest in self.cache.blobs:
                data = self.cache.blobs[digest]
                self.cache.blobs[digest] = self.random.choice([data[:-1], data + b"!", bytes(len(data))])


@pytest.mark.stride(3)
@pytest.mark.parametrize("seed", range(20))
def test_nothing_wrong_comes_from_a_cache_whatever_it_does(seed: int) -> None:
    rig = Rig()
    rig.cache.before = Chaos(seed, rig.cache)
    contents = MemoryContents()
    chosen = random.Random(seed)
    texts = [b"%d" % number * chosen.randrange(1, 2000) for number in range(12)]
    results = {digest_bytes(b"action %d" % number): chosen.sample(texts, 3) for number in range(8)}

    def build(action: Digest) -> None:
        entry = rig.client.entry(action)
        blobs = [digest_bytes(text) for text in results[action]]
        if entry is not None:
            assert entry == action.sha256.encode()
            if rig.client.fetch(blobs, contents, LIMIT):
                assert [contents.get(digest) for digest in blobs] == results[action]
                return
            rig.client.reject(action)
        rig.client.upload(action, action.sha256.encode(), source(*results[action]))

    for _ in range(6):
        builders = [threading.Thread(target=build, args=(action,)) for action in results]
        for builder in builders:
            builder.start()
        for builder in builders:
            builder.join()
        assert rig.client.flush(20) is not None
    assert all(digest_bytes(data).sha256 == sha256 for sha256, data in contents.blobs.items())
    assert set(rig.cache.entries.items()) <= {(action, action.sha256.encode()) for action in results}
    assert len(rig.warnings) <= 2
    rig.client.close()
