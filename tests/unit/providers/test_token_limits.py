"""`max_tokens`: the default fits the model, and a stated value over the model's maximum is an error."""

import pytest
from msgspec.structs import replace

from orch23.providers import registry
from orch23.steps.llm.spec import LLMStep

pytestmark = pytest.mark.needs("vendors", "local")


def step(provider: str, model: str, stated: int | None = None, **more) -> LLMStep:
    found = LLMStep(provider=provider, model=model, prompt="p", **more)
    return found if stated is None else replace(found, max_tokens=stated, states_max_tokens=True)


@pytest.mark.parametrize(
    ("one", "limit"),
    [
        (step("anthropic", "claude-3-haiku-20240307"), 4096),
        (step("anthropic", "claude-opus-4-1"), 32_000),
        (step("anthropic", "claude-opus-5"), 32_000),
        (step("anthropic", "not-listed"), 32_000),
        (step("openai", "gpt-4o"), 16_384),
        (step("openai", "gpt-4.1"), 32_000),
        (step("openai", "gpt-4o", 9), 9),
        # Another server may call any model by this name.
        (step("openai", "gpt-4o", base_url="http://127.0.0.1:1/v1"), 32_000),
        (step("anthropic", "claude-3-haiku-20240307", base_url="https://gateway.example"), 32_000),
        (step("anthropic", "claude-3-haiku-20240307", base_url="https://api.anthropic.com/"), 4096),
        # A small model writes until its context is full.
        (step("local", "smollm2"), 512),
        (step("local", "smollm2", 2000), 2000),
        (step("command", "gpt-4o", command=("x",)), 32_000),
    ],
)
def test_the_default_is_less_only_if_the_model_is_known_to_allow_less(one: LLMStep, limit: int) -> None:
    assert registry.parameters_of(one)["max_tokens"] == limit


@pytest.mark.parametrize(
    ("one", "most"),
    [
        (step("anthropic", "claude-3-haiku-20240307", 4097), "4,096"),
        (step("anthropic", "claude-3-haiku-20240307", 32_000), "4,096"),
        (step("openai", "gpt-4o", 20_000), "16,384"),
        (step("openai", "gpt-5", 128_001), "128,000"),
    ],
)
def test_a_stated_value_over_the_maximum_is_an_error_that_names_the_maximum(one: LLMStep, most: str) -> None:
    (error,) = registry.step_errors(one)
    assert error.code == "E409"
    assert f"is more than {one.model} can return, which is {most} tokens" in error.message


@pytest.mark.parametrize(
    "one",
    [
        step("anthropic", "claude-3-haiku-20240307"),
        step("anthropic", "claude-3-haiku-20240307", 4096),
        step("openai", "not-listed", 500_000),
        step("openai", "gpt-4o", 20_000, base_url="http://127.0.0.1:1/v1"),
    ],
)
def test_a_default_and_a_value_up_to_the_maximum_are_no_errors(one: LLMStep) -> None:
    assert registry.step_errors(one) == ()


def test_thinking_is_compared_with_the_limit_that_is_sent() -> None:
    (error,) = registry.step_errors(step("anthropic", "claude-3-haiku-20240307", thinking="5000"))
    assert "`max_tokens: 4096`" in error.message


def test_a_parameter_that_the_model_refuses_is_an_error_before_the_call() -> None:
    (found,) = registry.step_errors(step("openai", "gpt-4o", effort="high"))
    assert (found.code, found.message) == ("E409", "gpt-4o does not have `effort`")
    (found,) = registry.step_errors(step("openai", "o3", temperature=0.0))
    assert found.message == "o3 does not have `temperature`"
    # Another server may call any model by this name.
    assert registry.step_errors(step("openai", "gpt-4o", base_url="http://127.0.0.1:1/v1", effort="high")) == ()
