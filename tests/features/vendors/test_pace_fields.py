"""The pace of a request: how it is sent, which models have it, what it costs."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from msgspec.structs import replace

from orch23.features.vendors.openai_chat import ChatCompletions
from orch23.features.vendors.openai_client import ServerAccess, ServerConnection
from orch23.features.vendors.openai_responses import ResponsesApi, StreamedResponses
from orch23.model.llm import Message, Pace, Provider, Request, Response, Usage
from orch23.model.pipeline import Price
from orch23.providers.model_facts import _OPENAI, facts_of
from orch23.providers.prices import Prices
from orch23.providers.registry import ADAPTERS, _batch_errors, parameters_of, step_errors
from orch23.steps.llm.spec import LLMStep
from tests.doubles import adapter_with
from tests.openai_server import DONE, OpenAIServer, Reply, chunk, event, response, stream, usage_chunk

MILLION = 1_000_000
_ASK = Message("user", "Say something.")
REQUEST = Request(
    provider="openai",
    model="gpt-5",
    endpoint="e",
    system="",
    messages=(_ASK,),
    identity=(_ASK,),
    params={"max_tokens": 100},
    pace="flex",
)
STEP = LLMStep(provider="openai", model="gpt-5", prompt="p.j2", pace="flex")


def served(interface: str, reply: Reply, request: Request = REQUEST) -> tuple[Response, object]:
    """Return the response of an interface, and the service tier that the request named."""
    with OpenAIServer(reply) as server:
        connection = ServerConnection(server=ServerAccess(server.url, "k"))
        providers: dict[str, Callable[[], Provider]] = {
            "chat": lambda: ChatCompletions(connection=connection),
            "responses": lambda: ResponsesApi(connection=connection, stage="s", emit=lambda _: None),
            "streamed": lambda: StreamedResponses(connection=connection),
        }
        found = providers[interface]().complete(request, 20.0, lambda _: None)
        return found, server.asked[0].body.get("service_tier")


@pytest.mark.parametrize("interface", ["responses", "streamed"])
def test_the_responses_api_gets_the_service_tier_and_reports_the_one_it_used(interface: str) -> None:
    found, sent = served(interface, response("a", service_tier="flex"))
    assert (found.pace, sent) == ("flex", "flex")
    found, _ = served(interface, response("a", service_tier="default"))
    assert found.pace == "standard"
    found, sent = served(interface, response("a"), replace(REQUEST, pace="standard"))
    assert (found.pace, sent) == (None, None)


def test_chat_gets_the_service_tier_and_reports_the_one_it_used() -> None:
    tier = event({"object": "chat.completion.chunk", "service_tier": "flex", "choices": [{"index": 0, "delta": {}}]})
    parts = (chunk("a"), chunk(finish="stop"), usage_chunk(), DONE)
    found, sent = served("chat", stream(tier, *parts))
    assert (found.pace, sent) == ("flex", "flex")
    found, sent = served("chat", stream(*parts), replace(REQUEST, pace="standard"))
    assert (found.pace, sent) == (None, None)


def test_the_pace_is_in_no_fingerprint_and_no_key() -> None:
    standard = replace(STEP, pace="standard")
    assert parameters_of(STEP) == parameters_of(standard)
    assert REQUEST.fingerprint() == replace(REQUEST, pace="standard").fingerprint()


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4o-2024-11-20", "o3-mini"])
def test_a_model_without_the_pace_is_an_error_before_any_call(model: str) -> None:
    (error,) = step_errors(replace(STEP, model=model))
    assert error.code == "E409"
    assert f"{model} does not have `pace: flex`" in error.message
    assert step_errors(replace(STEP, model=model, pace="standard")) == ()


@pytest.mark.parametrize("step", [STEP, replace(STEP, model="gpt-9"), replace(STEP, model="o3")])
def test_other_models_may_have_it(step: LLMStep) -> None:
    assert step_errors(step) == ()


def test_another_server_may_give_the_name_of_a_model_to_one_that_has_it() -> None:
    assert step_errors(replace(STEP, model="gpt-4.1", base_url="http://127.0.0.1:1/v1")) == ()


@pytest.mark.parametrize(
    "provider", ["anthropic", pytest.param("local", marks=pytest.mark.needs("local")), "scripted", "command"]
)
def test_other_providers_do_not_have_it(provider: str) -> None:
    found = step_errors(LLMStep(provider=provider, model="m", prompt="p.j2", pace="flex"))
    assert any("`pace" in one.message and one.code == "E409" for one in found)


@pytest.mark.needs("batches")
def test_a_provider_of_a_plugin_has_batches_if_it_says_so() -> None:
    without = adapter_with("openai", batches=None)
    step = replace(STEP, pace="batch", provider="mine")
    (error,) = _batch_errors(step, without(step))
    assert error.message == "the provider `mine` does not have `pace: batch`"
    assert error.hint == "remove it; these have it: anthropic, openai"
    assert _batch_errors(step, ADAPTERS["openai"](step)) == ()
    flex = replace(step, pace="flex")
    assert _batch_errors(flex, without(flex)) == ()


@pytest.mark.parametrize("model", sorted(_OPENAI))
def test_the_facts_of_models_agree_with_the_price_list(model: str) -> None:
    standard, flex = (Prices().tariff_of("openai", model, pace) for pace in ("standard", "flex"))
    if standard is None or flex is None:
        pytest.skip("the list has no price of it")
    discounted = flex.cost(Usage(MILLION, MILLION)) < standard.cost(Usage(MILLION, MILLION))
    assert discounted == ("flex" not in facts_of("openai", model).lacks_paces)


@pytest.mark.parametrize(("pace", "factor"), [("standard", Decimal(1)), ("flex", Decimal("0.5"))])
def test_the_list_and_the_pipeline_have_half_the_price_for_it(pace: Pace, factor: Decimal) -> None:
    usage = Usage(MILLION, MILLION, cache_read_tokens=MILLION // 2)
    for prices in (Prices(), Prices({"gpt-5": Price(input=Decimal(2), output=Decimal(8), cache_read=Decimal(1))})):
        standard, found = prices.tariff_of("openai", "gpt-5"), prices.tariff_of("openai", "gpt-5", pace)
        assert standard is not None
        assert found is not None
        assert found.cost(usage) == factor * standard.cost(usage)
        assert found.source.endswith(", flex") == (pace == "flex")
