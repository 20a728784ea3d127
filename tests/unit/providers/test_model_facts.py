"""The facts of the vendors' models."""

from decimal import Decimal

import pytest

from orch23.providers.model_facts import UNKNOWN_MODEL_FACTS, facts_of


@pytest.mark.parametrize(
    ("provider", "model", "output", "context", "cached"),
    [
        ("anthropic", "claude-opus-5-5", 128_000, 1_000_000, 512),
        ("anthropic", "claude-sonnet-5", 128_000, 1_000_000, 1024),
        ("anthropic", "claude-opus-4-7", 128_000, 1_000_000, 2048),
        ("anthropic", "claude-haiku-4-5", 64_000, 200_000, 4096),
        ("anthropic", "claude-haiku-4-5-20251001", 64_000, 200_000, 4096),
        ("anthropic", "claude-opus-4-0", 32_000, 200_000, 1024),
        ("anthropic", "claude-3-5-haiku-latest", 8192, 200_000, 2048),
        ("anthropic", "claude-3-haiku-20240307", 4096, 200_000, 2048),
        ("openai", "gpt-6-sol", 128_000, 1_050_000, 1024),
        ("openai", "gpt-4o-2024-11-20", 16_384, 128_000, 1024),
        ("openai", "gpt-4o-2024-05-13", 4096, 128_000, 1024),
        ("openai", "gpt-4.1-mini-2025-04-14", 32_768, 1_047_576, 1024),
    ],
)
def test_the_facts_of_a_model_hold_for_its_snapshots(
    provider: str, model: str, output: int, context: int, cached: int
) -> None:
    found = facts_of(provider, model)
    assert (found.max_output_tokens, found.context_tokens, found.min_cached_tokens) == (output, context, cached)


@pytest.mark.parametrize("model", ["claude-opus-5-9", "claude-opus-50", "claude-opus-5-20260101x", "opus", "gpt-4o"])
def test_a_model_that_is_not_listed_has_no_limit_and_the_highest_minimum(model: str) -> None:
    found = facts_of("anthropic", model)
    assert (found.max_output_tokens, found.context_tokens, found.min_cached_tokens) == (None, None, 4096)
    assert (found.images, found.pdfs, found.has_cache_key, found.has_retention) == (False, False, False, False)


@pytest.mark.parametrize(("provider", "model"), [("mine", "claude-opus-5"), ("openai", "gpt-9"), ("local", "smollm2")])
def test_other_providers_and_unlisted_models_have_defaults(provider: str, model: str) -> None:
    assert facts_of(provider, model) == UNKNOWN_MODEL_FACTS
    assert not UNKNOWN_MODEL_FACTS.has_breakpoints


@pytest.mark.parametrize(
    ("provider", "model", "factor"),
    [
        ("anthropic", "claude-opus-5", "2"),
        ("anthropic", "claude-new", "2"),
        ("openai", "gpt-5.6-sol", "1.25"),
        ("openai", "gpt-5.5", "1"),
        ("mine", "m", "1"),
    ],
)
def test_the_price_of_a_cache_write_is_a_factor_of_the_price_of_input(provider: str, model: str, factor: str) -> None:
    assert facts_of(provider, model).write_1h == Decimal(factor)


def test_a_prefix_is_counted_with_four_characters_for_each_token() -> None:
    found = facts_of("anthropic", "claude-opus-5")
    assert [found.caches(count) for count in (0, 2047, 2048)] == [False, False, True]


@pytest.mark.parametrize(
    ("provider", "model", "limit"),
    [
        ("anthropic", "claude-opus-5", 32_000),
        ("anthropic", "claude-opus-4-1", 32_000),
        ("anthropic", "claude-3-haiku-20240307", 4096),
        ("anthropic", "claude-unlisted", 32_000),
        ("openai", "gpt-4.1", 32_000),
        ("openai", "gpt-4o", 16_384),
        ("openai", "gpt-4", 4096),  # the whole context is 8,192 tokens
        ("mine", "m", 32_000),
    ],
)
def test_the_default_limit_is_the_usual_one_or_what_the_model_allows(provider: str, model: str, limit: int) -> None:
    assert facts_of(provider, model).limit_of(32_000) == limit


@pytest.mark.parametrize(
    ("provider", "model", "lacking"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", {"effort"}),
        ("anthropic", "claude-opus-4-5", set()),
        ("anthropic", "claude-of-tomorrow", set()),
        ("openai", "gpt-4o", {"effort"}),
        ("openai", "gpt-5-mini", {"temperature"}),
        ("openai", "gpt-5.2", set()),
        ("openai", "o1-mini", {"effort", "temperature"}),
    ],
)
def test_the_parameters_that_a_model_refuses(provider: str, model: str, lacking: set[str]) -> None:
    assert facts_of(provider, model).lacks_parameters == lacking
