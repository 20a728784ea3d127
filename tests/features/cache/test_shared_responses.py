"""Recorded responses in a shared cache: which are stored, and which are used."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from orch23.features.cache.client import CacheClient
from orch23.features.cache.reapi.entries import decode_result, encode_result, entry_digest
from orch23.features.cache.signatures import SIGNATURE, KeyPair, Signatures
from orch23.features.cache.source import RESPONSE_KIND, VERSION, CacheResponses
from orch23.model.llm import SCRIPTED_PROVENANCE, Exchange
from orch23.store.exchanges import exchange_text
from orch23.text.secrets import Secrets
from tests.doubles import MemoryCache

KEY, OTHER = "ab" * 32, "cd" * 32
GOOD = Exchange(fingerprint=KEY, stage="s", request={"model": "m"}, response="text", outcome="accepted", cost="0.02")


def responses(cache: MemoryCache, *, writes: bool = True) -> tuple[CacheResponses, CacheClient]:
    client = CacheClient(cache, pytest.fail)
    return CacheResponses(client, Signatures(), Secrets({"TOKEN": "s3cret-value-1"}), writes=writes), client


def shared(cache: MemoryCache, exchange: Exchange, *, writes: bool = True) -> None:
    ours, client = responses(cache, writes=writes)
    ours.share(exchange)
    assert client.flush(10) == ()
    client.close()


def found(cache: MemoryCache, fingerprint: str = KEY) -> Exchange | None:
    ours, client = responses(cache)
    one = ours.find(fingerprint)
    assert ours.find(fingerprint) is one
    assert cache.asked.count("entry") == 1
    client.close()
    return one


def test_an_accepted_response_is_found_as_if_it_had_just_arrived() -> None:
    cache = MemoryCache()
    shared(cache, replace(GOOD, diagnostics=("d",)))
    assert found(cache) == replace(GOOD, outcome="pending")
    cache.asked.clear()
    assert found(cache, OTHER) is None


@pytest.mark.parametrize(
    "exchange",
    [
        replace(GOOD, outcome="pending"),
        replace(GOOD, outcome="failed"),
        replace(GOOD, outcome="invalid"),
        replace(GOOD, outcome="accepted_by_hand", files={"a": "text"}),
        replace(GOOD, provenance=SCRIPTED_PROVENANCE),
        replace(GOOD, superseded=True),
        replace(GOOD, response="it is s3cret-value-1"),
        replace(GOOD, request={"sent": "s3cret-value-1"}),
    ],
    ids=["pending", "failed", "invalid", "by a user", "scripted", "superseded", "a secret", "a secret in the request"],
)
def test_other_responses_are_not_stored(exchange: Exchange) -> None:
    cache = MemoryCache()
    shared(cache, exchange)
    assert (cache.entries, cache.blobs) == ({}, {})


def test_nothing_is_stored_in_a_cache_that_is_only_read() -> None:
    cache = MemoryCache()
    shared(cache, GOOD, writes=False)
    assert cache.entries == {}


def entry_of(exchange: Exchange) -> bytes:
    return encode_result({"exchange.json": exchange_text(exchange).encode()})


@pytest.mark.parametrize(
    "entry",
    [
        lambda: b"",
        lambda: b"\xff" * 50,
        lambda: encode_result({"other.json": b"{}"}),
        lambda: encode_result({"exchange.json": b"{}"}),
        lambda: encode_result({"exchange.json": exchange_text(GOOD).encode()[:-9]}),
        lambda: encode_result({"exchange.json": exchange_text(GOOD).replace("text", "evil").encode()}),
        lambda: entry_of(replace(GOOD, fingerprint=OTHER)),
        lambda: entry_of(replace(GOOD, outcome="failed")),
        lambda: entry_of(replace(GOOD, files={"conftest.py": "evil"})),
    ],
    ids=["empty", "garbage", "another file", "no exchange", "cut", "changed", "another request", "failed", "files"],
)
def test_an_entry_that_is_no_such_response_is_not_used(entry: Callable[[], bytes]) -> None:
    cache = MemoryCache()
    cache.entries[entry_digest(RESPONSE_KIND, VERSION, KEY)] = entry()
    assert found(cache) is None


def test_an_unsigned_response_that_was_not_looked_up_does_not_keep_out_a_signed_one() -> None:
    cache, pair = MemoryCache(), KeyPair.generate("ci")
    shared(cache, replace(GOOD, response="unsigned"))
    for signed in (GOOD, replace(GOOD, response="later")):
        client = CacheClient(cache, pytest.fail)
        CacheResponses(client, Signatures([pair.public], pair), Secrets({}), writes=True).share(signed)
        assert client.flush(10) == ()
        client.close()
    (entry,) = cache.entries.values()
    files = decode_result(entry)
    # The second one of the signer does not replace the first.
    assert (files["exchange.json"].contents, SIGNATURE in files) == (exchange_text(GOOD).encode(), True)
