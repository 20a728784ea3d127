"""`prompt_cache_key`: requests with the same beginning have the same key, at the vendor's own server only."""

import pytest
from msgspec.structs import replace

from orch23.model.llm import CachePolicy, Message, Request
from orch23.providers.cache_marks import cache_key

CACHE = CachePolicy()
HEAD = "what all items share\n"


def request(rest: str = "one\n", **more) -> Request:
    said = (Message("user", HEAD + rest),)
    usual = {"model": "gpt-5.5", "family": len(HEAD), "stable": len(HEAD + rest), "system": "s", "params": {}}
    return Request(provider="openai", endpoint="e", messages=said, identity=said, **{**usual, **more})


def key_of(this: Request, cache: CachePolicy | None = CACHE) -> str | None:
    return cache_key(replace(this, cache=cache))


def test_items_and_attempts_have_the_same_key() -> None:
    key = key_of(request())
    assert key is not None
    assert len(key) <= 64
    assert key_of(request("two\n")) == key
    assert key_of(replace(request(), messages=(Message("user", HEAD + "one\nIt failed."),))) == key


@pytest.mark.parametrize("other", [{"model": "gpt-5.4"}, {"endpoint": "f"}, {"system": "t"}, {"family": 5}])
def test_another_model_server_system_text_or_beginning_has_another_key(other) -> None:
    assert key_of(replace(request(), **other)) != key_of(request())


def test_without_sharing_each_stage_has_a_key_of_its_own() -> None:
    alone = CachePolicy(share=False)
    assert key_of(request(), alone) != key_of(request("two\n"), alone)
    assert key_of(request(), alone) == key_of(request(), alone)


def test_a_request_that_no_other_repeats_has_no_key() -> None:
    assert key_of(request(family=0, stable=0)) is None
    assert key_of(request(), None) is None
