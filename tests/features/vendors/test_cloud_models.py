"""Names of Claude at other platforms: which model they are, and what is known about it."""

from pathlib import Path

import pytest

from orch23.features.vendors import claude_clouds as clouds
from orch23.providers import registry
from orch23.providers.model_facts import facts_of
from orch23.providers.prices import Prices
from orch23.steps.llm.spec import LLMStep

OPUS, SONNET = "claude-opus-4-8", "claude-sonnet-4-5-20250929"


@pytest.mark.parametrize(
    ("model", "claude"),
    [
        ("anthropic.claude-opus-4-8", OPUS),
        ("anthropic.claude-opus-4-8-v1", OPUS),
        ("eu.anthropic.claude-opus-4-8-v1:0", OPUS),
        ("us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0", SONNET),
        ("arn:aws:bedrock:eu-west-1:1:inference-profile/x", "arn:aws:bedrock:eu-west-1:1:inference-profile/x"),
    ],
)
def test_a_model_of_bedrock_is_a_model_of_the_vendor(model: str, claude: str) -> None:
    assert clouds.claude_in_bedrock(model) == claude


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "model", "claude"),
    [("bedrock", "eu.anthropic.claude-opus-4-8-v1:0", OPUS), ("vertex", "claude-sonnet-4-5@20250929", SONNET)],
)
def test_facts_prices_and_media_are_those_of_the_model(provider: str, model: str, claude: str) -> None:
    step = LLMStep(provider=provider, model=model, prompt="p")
    assert registry.max_output_tokens(step) == facts_of("anthropic", claude).max_output_tokens
    assert registry.adapter_for(step).accepts == {"image", "pdf"}
    assert Prices().tariff_of(provider, model) is not None
    assert Prices().tariff_of(provider, "arn:aws:bedrock:x") is None
    assert registry.is_remote(step)
    assert registry.endpoint_of(step) == provider


def test_vertex_names_have_an_at_sign_for_the_date() -> None:
    assert clouds.claude_in_vertex("claude-sonnet-4-5@20250929") == SONNET


@pytest.mark.parametrize("provider", ["bedrock", "vertex", "azure"])
def test_only_an_address_of_the_pipeline_needs_a_grant(provider: str) -> None:
    step = LLMStep(provider=provider, model="m", prompt="p", base_url="https://example.com")
    grant = registry.adapter_for(step).consent({}, Path(), None)  # type: ignore[arg-type] # files are for programs
    assert grant is not None
    assert grant.name == "https://example.com"
    own = LLMStep(provider=provider, model="m", prompt="p")
    assert registry.adapter_for(own).consent({}, Path(), None) is None  # type: ignore[arg-type] # as above


def test_keys_of_aws_come_from_the_environment_first() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
    assert clouds.aws_login(keys) == clouds.AwsLogin("eu-west-1", ("id", "secret", None))
    assert clouds.aws_login({**keys, "AWS_BEARER_TOKEN_BEDROCK": "b"}).bearer == "b"
    assert "secret" not in repr(clouds.aws_login(keys))
