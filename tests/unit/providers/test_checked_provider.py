"""What a provider needs is looked for again at the last moment: nothing is reserved or sent without it."""

from pathlib import Path
from typing import Any

import pytest

from orch23.model.errors import ConfigurationError, ConsentError
from orch23.model.llm import Message, Request
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.middleware import CheckedProvider
from orch23.providers.registry import batches_of
from orch23.steps.llm.spec import LLMStep
from tests.doubles import CONSENT, FakeProvider

pytestmark = pytest.mark.needs("vendors")


def context(environ: dict[str, str], **given: Any) -> ProviderContext:
    return ProviderContext(
        environ=environ,
        root=Path(),
        read_answers=lambda _path: {},
        notice=lambda _event: None,
        **{**CONSENT, **given},
    )


def ask(inner: FakeProvider, environ: dict[str, str]) -> str:
    setting = context(environ)
    step = LLMStep(provider="anthropic", model="m", prompt="p")
    said = (Message("user", "hello"),)
    request = Request(provider="anthropic", model="m", endpoint="e", system="", messages=said, identity=said)
    return CheckedProvider(inner, setting, CallContext(step, "s")).complete(request, 1.0, lambda _count: None).text


def test_with_a_key_the_provider_is_called():
    assert ask(FakeProvider(["hi"]), {"ANTHROPIC_API_KEY": "k"}) == "hi"


def test_without_one_it_is_not():
    inner = FakeProvider(["hi"])
    with pytest.raises(ConfigurationError, match="E412"):
        ask(inner, {})
    assert inner.requests == []


@pytest.mark.needs("batches")
def test_batches_need_the_same():
    step = LLMStep(provider="anthropic", model="m", prompt="p", pace="batch", base_url="http://gateway.example")
    key = {"ANTHROPIC_API_KEY": "k"}
    assert batches_of(context(key), step) is not None
    with pytest.raises(ConfigurationError, match="E412"):
        batches_of(context({}), step)
    with pytest.raises(ConsentError, match="E426"):
        batches_of(context(key, is_granted=lambda _grant: False), step)
