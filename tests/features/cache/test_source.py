"""A lookup finds the entries of earlier versions, and reports to the client of the cache how long its stage took."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from orch23.decide.shared_results import ResultOrigin
from orch23.features.cache.claims import Claim, FoundResult, Lookup
from orch23.features.cache.client import CacheClient
from orch23.features.cache.signatures import Signatures
from orch23.features.cache.source import CacheResponses, CacheSource
from orch23.model.digest import Digest
from orch23.model.record import Record
from orch23.text.secrets import Secrets
from tests.doubles import MemoryCache, MemoryContents


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


def test_results_and_responses_are_the_entries_that_the_first_version_stored() -> None:
    asked: list[str] = []

    class Cache(MemoryCache):
        def entry(self, digest: Digest) -> bytes | None:
            asked.append(digest.sha256[:16])
            return None

    client = CacheClient(Cache(), pytest.fail)
    source = CacheSource(client, MemoryContents(), is_on_disk=lambda *_: False, identity=lambda _: pytest.fail("no"))
    done = threading.Event()
    lookup = Lookup(lambda _: pytest.fail("there is no entry"))
    lookup.watch(done.set)
    source.begin("ab" * 32, SimpleNamespace(stage=None), lookup)  # type: ignore[arg-type]
    assert done.wait(10)
    assert CacheResponses(client, Signatures(), Secrets({}), writes=False).find("ab" * 32) is None
    source.close()
    assert asked == ["d06f607c2e2e0113", "75bd9b7b8c9fd8a9"]
