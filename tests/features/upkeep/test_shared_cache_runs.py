"""Rows of `cache stats`: a clause for each count, and sums."""

from collections.abc import Callable

from orch23.features.upkeep.store import SharedCacheRun, shared_cache_rows, total_use
from orch23.model.event import SharedCacheUsed
from orch23.report.shared_cache import shared_cache_text

USED = SharedCacheUsed(
    restored=12, missing=3, stored=2, refused=1, down_bytes=3_100_000, up_bytes=40_500, waited_s=0.4, saved_s=250.1,
    saved="1.24",
)  # fmt: skip


def test_counts_are_words_and_their_total_is_exact(zone: Callable[[str], None]) -> None:
    zone("UTC")
    text = "12 restored (3.1 MB), 3 not found, 2 stored (40.5 kB), saved 4m 10s and $1.24"
    assert shared_cache_text(USED) == text
    assert shared_cache_text(SharedCacheUsed(not_stored=2, saved="x"), "a, b") == "2 not stored (a, b)"
    total = total_use((USED, USED, SharedCacheUsed(saved="0.10", saved_s=0.1, waited_s=0.2)))
    assert (total.restored, total.waited_s, total.saved_s, total.saved) == (24, 1.0, 500.3, "2.58")
    assert total_use(()) == SharedCacheUsed()
    run = SharedCacheRun("r1", "p.yaml", "2026-11-28T12:00:00.000Z", USED)
    one, two, sums = shared_cache_rows([run, run]).splitlines()
    row = text.replace(", saved", ", 1 not stored because of secrets, waited 0.4s, saved")
    assert one == two == f"r1               2026-11-28 12:00  p.yaml  {row}"
    assert sums.startswith("total of 2 runs                            24 restored (6.2 MB)")
