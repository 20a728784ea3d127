"""Which entries were missing a moment ago."""

from orch23.features.cache.batches import RECENT_S, RecentMisses
from orch23.model.digest import digest_bytes

ONE, TWO = digest_bytes(b"one"), digest_bytes(b"two")


def test_a_miss_counts_for_some_seconds_and_once() -> None:
    now_s = [0.0]
    misses = RecentMisses(lambda: now_s[0])
    misses.note(ONE)
    misses.note(TWO)
    assert not misses.take(digest_bytes(b"other"))
    assert misses.take(ONE)
    assert not misses.take(ONE)
    now_s[0] = RECENT_S + 0.1
    assert not misses.take(TWO)
    misses.note(TWO)
    assert misses.take(TWO), "it was asked for again"


def test_too_many_misses_are_forgotten() -> None:
    misses = RecentMisses(lambda: 0.0)
    digests = [digest_bytes(b"%d" % number) for number in range(10_005)]
    for digest in digests:
        misses.note(digest)
        assert len(misses._noted_s) <= 10_000
    assert not misses.take(digests[0])
    assert misses.take(digests[-1])
