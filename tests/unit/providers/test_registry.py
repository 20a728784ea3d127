"""The registry: every provider has its line, nothing is dropped silently, and no key in the environment matters."""

from pathlib import Path

import msgspec
import pytest

from orch23.providers import registry
from orch23.providers.adapter import CallContext, ProviderContext, ScriptedCase
from orch23.providers.registry import ADAPTERS
from orch23.steps.llm.spec import LLMStep
from tests.doubles import CONSENT, made_provider, with_needs

STEPS = {
    "anthropic": LLMStep(provider="anthropic", model="claude", prompt="p"),
    "openai": LLMStep(provider="openai", model="gpt", prompt="p"),
    "azure": LLMStep(provider="azure", model="gpt", prompt="p"),
    "bedrock": LLMStep(provider="bedrock", model="claude", prompt="p"),
    "vertex": LLMStep(provider="vertex", model="claude", prompt="p"),
    "local": LLMStep(provider="local", model="smollm2", prompt="p"),
    "command": LLMStep(provider="command", model="m", prompt="p", command=("python3", "-c", "x y")),
    "scripted": LLMStep(provider="scripted", model="m", prompt="p", answers="a.yaml"),
}


def setting(answers=None) -> ProviderContext:
    cases = {stage: [ScriptedCase(tuple(texts))] for stage, texts in (answers or {}).items()}
    return ProviderContext(
        environ={}, root=Path(), read_answers=lambda _file: cases, notice=lambda _event: None, **CONSENT
    )


def step(provider: str, **more) -> LLMStep:
    return msgspec.structs.replace(STEPS[provider], **more)


def test_every_provider_of_the_registry_is_tested_here() -> None:
    assert set(ADAPTERS) == set(STEPS)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        with_needs("anthropic", "AnthropicMessages"),
        with_needs("openai", "ResponsesApi"),
        with_needs("azure", "ResponsesApi"),
        with_needs("bedrock", "BedrockMessages"),
        with_needs("vertex", "VertexMessages"),
        with_needs("local", "LocalProvider"),
        ("command", "CommandProvider"),
        ("scripted", "ScriptedProvider"),
    ],
)
def test_making_a_provider_starts_nothing(name: str, kind: str) -> None:
    assert type(made_provider(setting(), CallContext(STEPS[name], "code"))).__name__ == kind


@pytest.mark.parametrize("name", [with_needs(name) for name in STEPS])
def test_a_plain_step_has_no_error(name: str) -> None:
    assert registry.step_errors(STEPS[name]) == ()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("comand", "did you mean `command`?"),
        pytest.param("antropic", "did you mean `anthropic`?", marks=pytest.mark.needs("vendors")),
        ("x", "use one of"),
    ],
)
def test_an_unknown_provider_has_a_hint(name: str, hint: str) -> None:
    (diagnostic,) = registry.step_errors(msgspec.structs.replace(STEPS["anthropic"], provider=name))
    assert diagnostic.code == "E405"
    assert hint in (diagnostic.hint or "")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("command", {"temperature": 0.5}),
        ("command", {"seed": 1}),
        ("command", {"effort": "high"}),
        ("command", {"answers": "a.yaml"}),
        with_needs("local", {"effort": "high"}),
        with_needs("local", {"thinking": "on"}),
        with_needs("local", {"base_url": "http://x"}),
        with_needs("local", {"command": ("x",)}),
        ("scripted", {"seed": 1}),
    ],
)
def test_a_parameter_that_would_be_dropped_is_an_error(name: str, more) -> None:
    (diagnostic,) = registry.step_errors(step(name, **more))
    assert diagnostic.code == "E409"
    assert f"`{next(iter(more))}`" in diagnostic.message


def test_all_errors_are_collected() -> None:
    found = registry.step_errors(step("command", seed=1, effort="x", command=()))
    assert [d.code for d in found] == [
        "E409",
        "E409",
        "E407",
    ]


def test_a_commands_program_is_looked_for_on_the_path_or_below_the_root(tmp_path: Path) -> None:
    program = tmp_path / "ask"
    program.write_text("#!/bin/sh\n")
    relative = step("command", command=("./ask",))
    assert [d.code for d in registry.readiness_errors(relative, {}, tmp_path)] == ["E407"]
    program.chmod(0o755)
    assert registry.readiness_errors(relative, {}, tmp_path) == ()
    assert registry.readiness_errors(step("command", command=("ask",)), {"PATH": str(tmp_path)}) == ()
    assert [d.code for d in registry.step_errors(step("command", command=()))] == ["E407"]


def test_scripted_needs_its_file(tmp_path: Path) -> None:
    assert [d.code for d in registry.step_errors(step("scripted", answers=None))] == ["E404"]
    assert [d.code for d in registry.step_errors(STEPS["scripted"], tmp_path)] == ["E404"]
    (tmp_path / "a.yaml").write_text("{}")
    assert registry.step_errors(STEPS["scripted"], tmp_path) == ()


@pytest.mark.needs("local")
def test_a_local_model_must_be_known_but_need_not_be_installed() -> None:
    assert registry.step_errors(STEPS["local"]) == ()
    (diagnostic,) = registry.step_errors(step("local", model="smollm"))
    assert (diagnostic.code, diagnostic.hint) == ("E406", "did you mean `smollm2`?")


@pytest.mark.needs("local")
def test_parameters_are_explicit_so_that_a_default_and_its_value_are_one() -> None:
    assert registry.parameters_of(step("local", max_tokens=160, states_max_tokens=True)) == {
        "max_tokens": 160,
        "seed": 1,
        "temperature": 0.0,
    }
    assert registry.parameters_of(step("local", seed=1, temperature=0.0)) == registry.parameters_of(STEPS["local"])
    assert registry.parameters_of(step("local", seed=2)) != registry.parameters_of(STEPS["local"])


@pytest.mark.needs("local")
def test_the_endpoint_identifies_the_server() -> None:
    assert registry.endpoint_of(STEPS["local"]) == "llama.cpp"
    assert registry.endpoint_of(STEPS["command"]) == "command python3 -c 'x y'"
    assert registry.endpoint_of(step("command", endpoint_alias="claude")) == "claude"


def test_an_edited_scripted_response_is_another_request_and_its_attempts_differ() -> None:
    one = setting({"code": ["a", "b", "a"]})
    params = [
        registry.request_parameters(one, CallContext(STEPS["scripted"], "code", n))["answer"] for n in (1, 2, 3, 4)
    ]
    assert params[0] == params[2] != params[1]
    assert params[3] is None
    other = setting({"code": ["c"]})
    assert registry.request_parameters(other, CallContext(STEPS["scripted"], "code", 1))["answer"] != params[0]


@pytest.mark.parametrize("name", [pytest.param("local", marks=pytest.mark.needs("local")), "command"])
def test_other_providers_parameters_do_not_depend_on_the_attempt(name: str) -> None:
    one = setting()
    assert registry.request_parameters(one, CallContext(STEPS[name], "code", 1)) == registry.request_parameters(
        one, CallContext(STEPS[name], "code@x", 4)
    )
    assert registry.request_parameters(one, CallContext(STEPS[name], "code", 1)) == registry.parameters_of(STEPS[name])
