"""A lookup that finds a result reports to the client of the cache how long its stage took."""

from types import SimpleNamespace
from typing import Any

import pytest

from orch23.decide.result_source import Claim, FoundResult, Lookup, ResultOrigin
from orch23.features.cache.source import CacheSource
from orch23.model.record import Record
from tests.doubles import MemoryContents


def test_a_result_that_is_found_pays_for_the_time_of_its_lookup() -> None:
    saved: list[float] = []
    client: Any = SimpleNamespace(saved=saved.append)
    source = CacheSource(
        client, MemoryContents(), is_on_disk=lambda *_: False, identity=lambda _: pytest.fail("not needed")
    )
    found = FoundResult(Record(stage="a", key="k", manifest={}), ResultOrigin(seconds=7.5))
    for one in (found, None):
        lookup = Lookup(lambda _: found)
        lookup.claim(Claim(b"", {}))
        source._finish(lookup, one)
        assert lookup.result is one
    assert saved == [7.5, 0.0]
