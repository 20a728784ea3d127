"""A lookup that finds a result reports to the client of the cache how long its stage took."""

from types import SimpleNamespace
from typing import Any

from orch23.engine.shared_entries import FoundResult, ResultOrigin
from orch23.engine.shared_lookups import Lookup, Lookups
from orch23.engine.shared_signatures import NO_SIGNATURES
from orch23.model.environment import TIERS
from tests.doubles import MemoryContents


def test_a_result_that_is_found_pays_for_the_time_of_its_lookup() -> None:
    saved: list[float] = []
    client: Any = SimpleNamespace(saved=saved.append)
    record: Any = None
    lookups = Lookups(
        client,
        MemoryContents(),
        is_on_disk=lambda *_: False,
        signatures=NO_SIGNATURES,
        downloads=True,
        warn=lambda *_: None,
        least_tier=lambda _: TIERS[0],
    )
    for found in (FoundResult(record, ResultOrigin(seconds=7.5)), None):
        lookup = Lookup()
        lookups._finish(lookup, found)
        assert lookup.result is found
    assert saved == [7.5, 0.0]
    lookups.close()
