"""The time that a shared cache may lose in a build, by a clock that the test sets."""

import threading
from functools import partial

import pytest

from orch23.features.cache.availability import CacheLimits, Patience
from orch23.features.cache.client import CacheClient
from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import CacheFault
from tests.cache_conformance import LIMIT
from tests.doubles import MemoryCache, MemoryContents

LIMITS = CacheLimits()
TEXTS = [b"text %d" % number for number in range(40)]
DIGESTS = [digest_bytes(text) for text in TEXTS]


class Clock:
    """A clock that the test sets. With `ticks_s`, it also goes on with each look at it."""

    def __init__(self, ticks_s: float = 0.0) -> None:
        self.now_s, self._ticks_s = 0.0, ticks_s
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            self.now_s += self._ticks_s
            return self.now_s

    def wait(self, seconds: float) -> None:
        with self._lock:
            self.now_s += seconds


def lost_s(patience: Patience) -> float:
    return LIMITS.patience_s - patience.left_s()


@pytest.mark.parametrize(("took_s", "found"), [(0.02, None), (0.4, None), (0.9, True), (30, b"")])
def test_each_call_loses_its_time_but_that_of_a_fast_reply(took_s: float, found: object) -> None:
    clock = Clock()
    patience = Patience(LIMITS, clock)

    def call() -> object:
        clock.wait(took_s)
        assert lost_s(patience) == pytest.approx(took_s)
        return found

    assert patience.timed(call) is found
    assert lost_s(patience) == pytest.approx(max(0, took_s - LIMITS.usual_s))


def test_what_a_result_saved_pays_back_what_was_lost_and_no_more() -> None:
    clock = Clock()
    patience = Patience(LIMITS, clock)
    patience.timed(lambda: clock.wait(5))
    patience.saved(2)
    assert lost_s(patience) == pytest.approx(3 - LIMITS.usual_s)
    for seconds in (-9, float("nan")):  # of a forged entry
        patience.saved(seconds)
    assert lost_s(patience) == pytest.approx(3 - LIMITS.usual_s)
    patience.saved(1000)
    assert lost_s(patience) == 0


@pytest.mark.parametrize(("reply_s", "at_once", "lost"), [(0.02, 1, 0), (0.15, 8, 0), (0.6, 1, 575)])
def test_replies_at_once_are_as_good_as_fast_ones(reply_s: float, at_once: int, lost: float) -> None:
    clock = Clock()
    patience = Patience(LIMITS, clock)

    def together(left: int) -> None:
        if left:
            patience.timed(partial(together, left - 1))
        else:
            clock.wait(reply_s)

    for _ in range(1000):
        together(at_once)
    assert lost_s(patience) == pytest.approx(lost)


def test_the_bytes_of_a_download_give_time_only_when_they_have_come() -> None:
    clock = Clock()
    patience = Patience(LIMITS, clock)

    def download(size_bytes: int, pieces: int, rest_s: float) -> bool:
        for _ in range(pieces):
            clock.wait(1)
            patience.moved(size_bytes // pieces)
        clock.wait(rest_s)
        return True

    assert patience.timed(partial(download, 100 << 20, 60, 0))
    assert lost_s(patience) == 0
    assert patience.timed(partial(download, 8, 8, 0))
    assert lost_s(patience) == pytest.approx(8 - LIMITS.usual_s, abs=0.01)


def test_what_several_calls_lose_at_once_counts_once() -> None:
    clock = Clock()
    patience = Patience(LIMITS, clock)

    def inner() -> None:
        clock.wait(2)

    def outer() -> None:
        clock.wait(1)
        patience.timed(inner)
        clock.wait(1)

    patience.timed(outer)
    assert lost_s(patience) == pytest.approx(4 - 2 * LIMITS.usual_s)
    clock.wait(100)
    patience.timed(inner)
    assert lost_s(patience) == pytest.approx(6 - 3 * LIMITS.usual_s)


@pytest.mark.parametrize(("each_s", "lost"), [(0.14, 0), (0.6, 45)])
def test_uploads_are_slow_together(each_s: float, lost: float) -> None:
    clock = Clock()
    patience = Patience(LIMITS, clock)

    def flush() -> None:
        for _ in range(100 * LIMITS.uploads):
            clock.wait(each_s / LIMITS.uploads)
            patience.moved(10, 1)

    patience.timed(flush)
    assert lost_s(patience) == pytest.approx(lost, abs=0.1)


@pytest.mark.parametrize("each_s", [0.1, 0.3, 0.5, 0.6, 0.9, 2.0, 4.4, 8.9, 10.0, 3600.0])
@pytest.mark.parametrize("fault", ["", "lasting", "transient"])
def test_a_build_loses_less_than_ten_seconds_whatever_its_cache_does(each_s: float, fault: str) -> None:
    clock, cache, warnings = Clock(), MemoryCache(), list[str]()
    # No call takes longer: the build gives it up, as the next test shows.
    took_s = min(each_s, LIMITS.patience_s + LIMITS.usual_s)

    def slow(_name: str, _digest: Digest | None) -> None:
        clock.wait(took_s)
        if fault:
            raise CacheFault(fault, transient=fault == "transient")

    client = CacheClient(cache, warnings.append, LIMITS, clock=clock, pause=clock.wait)
    cache.before = slow
    cache.entries = dict.fromkeys(DIGESTS, b"entry")
    cache.blobs = dict(zip(DIGESTS, TEXTS, strict=True))
    for digest in DIGESTS:
        client.entry(digest)
        client.fetch([digest], MemoryContents(), LIMIT)
        client.missing([digest])
        client.upload(digest, b"entry", {}) if clock.now_s >= LIMITS.patience_s else None
    client.flush(300)
    client.close()
    assert len(warnings) == 1
    # The last call may have begun just before.
    assert clock.now_s < 10 + took_s * (took_s < LIMITS.patience_s)


@pytest.mark.stride(3)
@pytest.mark.parametrize("name", ["entry", "blob", "missing", "put_blob", "put_entry"])
def test_a_call_that_never_ends_is_given_up_in_less_than_ten_seconds(name: str) -> None:
    clock, cache, warnings = Clock(0.01), MemoryCache(), list[str]()
    released = threading.Event()
    limits = CacheLimits(check_each_s=0.001)

    def hang(called: str, _digest: Digest | None) -> None:
        if called == name:
            released.wait(30)

    cache.before = hang
    client = CacheClient(cache, warnings.append, limits, clock=clock, pause=clock.wait)
    client.entry(DIGESTS[0])
    cache.blobs[DIGESTS[0]] = TEXTS[0]
    client.fetch(DIGESTS[:1], MemoryContents(), LIMIT)
    client.missing(DIGESTS[:1])
    client.upload(DIGESTS[1], b"entry", {DIGESTS[1]: lambda: (TEXTS[1],)})
    client.flush(300)
    assert (len(warnings), clock.now_s < 10) == (1, True), clock.now_s
    client.close()
    released.set()
