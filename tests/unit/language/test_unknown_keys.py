"""What is meant by unknown keys, and by keys with secrets."""

from typing import Any

import pytest

from orch23.language.unknown_keys import KEY_VARIABLES, hint_of_place, hint_of_secret
from orch23.text.secret_patterns import is_secret_key, mask_secrets

LLM: dict[str, Any] = {"properties": {"model": {}, "prompt": {}}}
STAGE = {"properties": {"inputs": {}, "promote": {}, "llm": LLM, "shell": {"oneOf": [{"properties": {"program": {}}}]}}}


@pytest.mark.needs("vendors")
def test_the_variables_are_those_that_the_providers_read() -> None:
    from orch23.features.vendors.anthropic_messages import ANTHROPIC_KEY  # noqa: PLC0415 - of the feature
    from orch23.features.vendors.openai_adapter import AZURE_KEY  # noqa: PLC0415 - likewise
    from orch23.features.vendors.openai_client import OPENAI_KEY  # noqa: PLC0415 - likewise

    assert {"anthropic": ANTHROPIC_KEY, "openai": OPENAI_KEY, "azure": AZURE_KEY} == KEY_VARIABLES


@pytest.mark.parametrize(
    ("path", "value", "whole", "word"),
    [
        (["stages", "a", "llm"], {"provider": "azure"}, {}, "AZURE_OPENAI_API_KEY"),
        (["stages", "a"], {"llm": {"provider": "openai"}}, {}, "OPENAI_API_KEY"),
        (["stages", "a", "llm"], {}, {"defaults": {"llm": {"provider": "anthropic"}}}, "ANTHROPIC_API_KEY"),
        (["stages", "a", "llm"], {"provider": "mine"}, {}, "the provider `mine`"),
        (["stages", "a", "llm"], {"provider": 1}, {"defaults": []}, "such as OPENAI_API_KEY"),
        (["stages", "a"], {"shell": "x"}, {}, "secrets come only from the environment"),
    ],
)
def test_the_variable_of_the_provider_is_named(path, value, whole, word) -> None:
    assert word in hint_of_secret(path, value, whole)


@pytest.mark.parametrize(
    ("path", "value", "key", "hint"),
    [
        (
            ["stages", "a", "llm"],
            {},
            "input",
            "did you mean `inputs`? It is a key of the stage: write it next to `llm`",
        ),
        (["stages", "a", "llm"], {}, "srcs", "did you mean `inputs`? It is a key of the stage: write it next to `llm`"),
        (["defaults", "llm"], {}, "timeout", "`timeout` is a key of the stage: write it next to `llm`"),
        (["stages", "a", "llm"], {}, "modle", ""),
        (["stages", "a", "llm"], {}, "extra", ""),
        (["stages", "a", "llm", "cache"], {}, "inputs", ""),
    ],
)
def test_a_key_of_the_stage_in_a_step(path, value, key, hint) -> None:
    assert hint_of_place(key, path, value, LLM, None) == hint


@pytest.mark.parametrize(
    ("value", "key", "hint"),
    [
        ({"llm": {}}, "prompt", "`prompt` is a key of `llm`: write it there"),
        ({"llm": {}}, "promt", "did you mean `prompt`? It is a key of `llm`: write it there"),
        ({"llm": {}}, "program", ""),
        ({"shell": {}}, "program", "`program` is a key of `shell`: write it there"),
        ({}, "prompt", "`prompt` is a key of `llm`: write it there"),
        ({"llm": {}}, "input", ""),
    ],
)
def test_a_key_of_a_step_at_the_stage(value, key, hint) -> None:
    assert hint_of_place(key, ["stages", "a"], value, STAGE, None) == hint


@pytest.mark.parametrize("key", ["api_key", "apikey", "API-KEY", "OPENAI_API_KEY", "key", "auth_token", "password"])
def test_names_of_secrets(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize("key", ["keys", "max_tokens", "secrets", "monkey", "tokens"])
def test_names_that_are_not_those_of_secrets(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  api_key: sk-1  # mine", "  api_key: ****  # mine"),
        ('{a: 1, "token":"x y", b: 2}', '{a: 1, "token":*****, b: 2}'),
        ("{password: 'q', m: 1}", "{password: ***, m: 1}"),
        ("key: a", "key: a"),
        ("max_tokens: 5", "max_tokens: 5"),
        ("token: ${{ vars.x }}", "token: ${{ vars.x }}"),
    ],
)
def test_values_of_secrets_are_masked(line: str, shown: str) -> None:
    assert mask_secrets(line) == shown
