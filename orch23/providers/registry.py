"""Registry of providers by name: parameters, schema, readiness and consent of a step."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from orch23.model import features
from orch23.model.diagnostic import Diagnostic, fix_of_hint, question
from orch23.model.digest import Json
from orch23.model.errors import ConfigurationError, ConsentError, InvalidInputError
from orch23.model.llm import OnTruncated
from orch23.model.parsing import parse_json
from orch23.model.plugins import LazyMapping, Registry, load_object
from orch23.model.step import Grant
from orch23.providers.adapter import REQUIRED, Adapter, CallContext, ProviderContext, nearest_hint, unsupported_error

if TYPE_CHECKING:
    from orch23.model.batches import Batches
    from orch23.providers.media import MediaLimits
    from orch23.steps.llm.spec import LLMStep


# Names only: the module of a provider is imported when a step uses it (ADR 18). Others are of features.
_OWN = {
    "command": "command:CommandAdapter",
    "scripted": "scripted:ScriptedAdapter",
}


def _load(name: str) -> type[Adapter]:
    place = f"providers.{_OWN[name]}" if name in _OWN else f"features.{features.PROVIDERS[name]}"
    found: type[Adapter] = load_object(f"orch23.{place}")
    return found


ADAPTERS = LazyMapping((*_OWN, *features.PROVIDERS), _load)
# The entry points of plugins that are providers.
PROVIDER_GROUP: Final = "orch23.providers"


@cache
def _of_plugins(plugins: tuple[str, ...]) -> Registry[type[Adapter]]:
    return Registry({}, PROVIDER_GROUP, plugins, _fault)


def _fault(found: object, _name: str) -> str:
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        return "it must be a subclass of `Adapter`"
    lacking = [name for name in REQUIRED if getattr(found, name) is getattr(Adapter, name)]
    if lacking:
        return f"it must define `{lacking[0]}`"
    for name, own in vars(Adapter).items():
        if isinstance(own, property) and callable(getattr(found, name)):
            return f"its `{name}` must be a value or a property, not a method"
    from orch23.steps.llm.spec import LLMStep  # noqa: PLC0415 - only a provider of a plugin needs it

    sends: object = found.sends
    unknown = [name for name in sends if name not in LLMStep.__struct_fields__] if isinstance(sends, tuple) else []
    return f"its `sends` has `{unknown[0]}`, which is not a field of `llm`" if unknown else ""


def adapter_named(provider: str, plugins: tuple[str, ...]) -> type[Adapter] | None:
    """Return the provider with a name: one of orch23, else one of the pipeline's plugins; None if there is none."""
    if not features.has_feature(features.PROVIDERS, provider):
        return None
    return ADAPTERS.get(provider) or _of_plugins(plugins).get(provider)


def adapter_of(step: "LLMStep") -> Adapter | None:
    """Return the provider of a step; None if there is none."""
    found = adapter_named(step.provider, step.from_plugins)
    return None if found is None else found(step)


def plugin_of(step: "LLMStep") -> str:
    """Return name and version of the plugin that has a step's provider; empty for a provider of orch23."""
    # Part of the key: another version of the plugin may give another result (ADR 32).
    added = _of_plugins(step.from_plugins)
    return added.plugin_version(step.provider) if step.provider not in ADAPTERS and step.provider in added else ""


def adapter_for(step: "LLMStep") -> Adapter:
    """Return the provider of a step.

    Raises:
        KeyError: the provider is unknown; `step_errors` reports that before any stage starts.
    """
    found = adapter_named(step.provider, step.from_plugins)
    if found is None:
        raise KeyError(step.provider)
    return found(step)


def request_parameters(setting: ProviderContext, asking: CallContext) -> Mapping[str, Json]:
    """Return `Request.params`: the parameters, and for `scripted` the digest of the scripted response.

    So an edited response is another request, and two attempts with one prompt and two responses are two requests.
    """
    step = asking.step
    if step.provider != "scripted":
        return parameters_of(step)
    from orch23.providers.scripted import ScriptedProvider  # noqa: PLC0415 - as all providers, only if a step uses it

    answers = setting.read_answers(step.answers or "")
    return {**parameters_of(step), "answer": ScriptedProvider(answers, asking.stage, asking.attempt).digest()}


def step_errors(step: "LLMStep", root: Path | None = None) -> tuple[Diagnostic, ...]:
    """Return the errors of a step on any machine; the caller adds the location, by the field of `llm` in `subject`.

    Keys, libraries and weights are not checked, since recordings may replace calls: see `readiness_errors`.
    """
    adapter = adapter_of(step)
    if adapter is None:
        return (_unknown(step.provider, step.from_plugins),)
    kind = type(step)
    usual = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    unsupported = tuple(
        _unsupported(name, step.provider)
        for name in step.provider_fields
        if name not in adapter.takes and getattr(step, name) != usual[name]
    )
    unsupported += _batch_errors(step, adapter)
    return (
        *unsupported,
        *_limit_errors(step),
        *_parameter_errors(step),
        *_extra_errors(step, adapter),
        *adapter_for(with_token_limit(step)).check(root),
    )


def readiness_errors(step: "LLMStep", environ: Mapping[str, str], root: Path | None = None) -> tuple[Diagnostic, ...]:
    """Return why a valid step cannot call its model on this machine now: no key, no library, no weights."""
    return tuple(adapter_for(step).ready(environ, root))


def unsupported_fields(provider: str, plugins: Callable[[], tuple[str, ...]]) -> frozenset[str]:
    """Return the fields of `llm` that a provider does not take and others do.

    `plugins` returns those of the pipeline. It is called only if orch23 does not have the provider.

    Raises:
        InvalidInputError: there is no such provider.
    """
    named = () if provider in ADAPTERS else plugins()
    adapter = adapter_named(provider, named)
    if adapter is None:
        raise InvalidInputError(_unknown(provider, named))
    from orch23.steps.llm.spec import LLMStep  # noqa: PLC0415 - only `--provider` needs it

    return frozenset(LLMStep.provider_fields) - adapter.takes


def parameters_of(step: "LLMStep") -> Mapping[str, Json]:
    """Return the parameters for the stage key and the fingerprint, with explicit defaults."""
    found = adapter_for(with_token_limit(step)).parameters
    if step.extra is not None:
        found = {**found, "extra": _extra_of(step)}
    # A parameter of the request, so that both ways have their own recordings (ADR 10).
    return found if step.structured_output else {**found, "structured_output": False}


def with_token_limit(step: "LLMStep") -> "LLMStep":
    """Return a step with the `max_tokens` of its first request: as stated, or the default that its model allows."""
    if step.states_max_tokens:
        return step
    adapter = adapter_for(step)
    usual = adapter.usual_max_tokens or step.max_tokens
    facts = adapter.facts
    limit = usual if facts is None else facts.limit_of(usual)
    return step if limit == step.max_tokens else replace(step, max_tokens=limit)


def max_output_tokens(step: "LLMStep") -> int | None:
    """Return the maximum tokens of a response of the step's model; None if it is not known."""
    facts = adapter_for(step).facts
    return None if facts is None else facts.max_output_tokens


def _batch_errors(step: "LLMStep", adapter: Adapter) -> tuple[Diagnostic, ...]:
    if step.pace != "batch" or "pace" not in adapter.takes:
        return ()
    if adapter.batches is None:
        message = f"the provider `{step.provider}` does not have `pace: batch`"
        having = ", ".join(name for name in _installed() if ADAPTERS[name].batches is not None)
        return (unsupported_error("pace", message, f"remove it; these have it: {having}"),)
    place = features.BATCHES["run"]
    if features.is_installed(place):
        return ()
    return (replace(features.missing_feature(place, "`pace: batch` needs"), subject="pace"),)


def batches_of(setting: ProviderContext, step: "LLMStep") -> "Batches":
    """Return the batches of the server of a valid step.

    Raises:
        ConfigurationError: a key or a library is missing.
        ConsentError: the user has not consented to the server.
        KeyError: the provider has none; `step_errors` reports that before any stage starts.
    """
    check_call(setting, step)
    batches = adapter_for(step).batches
    if batches is None:
        raise KeyError(step.provider)
    return batches(setting)


def _limit_errors(step: "LLMStep") -> tuple[Diagnostic, ...]:
    most = max_output_tokens(step)
    if not step.states_max_tokens or most is None or step.max_tokens <= most:
        return ()
    message = f"`max_tokens: {step.max_tokens}` is more than {step.model} can return, which is {most:,} tokens"
    hint = f"write at most {most}, or remove it: the default then fits the model"
    return (unsupported_error("max_tokens", message, hint),)


def _parameter_errors(step: "LLMStep") -> tuple[Diagnostic, ...]:
    facts = adapter_for(step).facts
    lacking = () if facts is None else sorted(facts.lacks_parameters)
    return tuple(
        unsupported_error(name, f"{step.model} does not have `{name}`", "remove it, or use a model that has it")
        for name in lacking
        if getattr(step, name) is not None
    )


def _extra_errors(step: "LLMStep", adapter: Adapter) -> Iterator[Diagnostic]:
    if step.extra is not None and "extra" in adapter.takes:
        from orch23.providers.extra_fields import extra_errors  # noqa: PLC0415 - few steps have it

        yield from extra_errors(_extra_of(step), adapter)


def _extra_of(step: "LLMStep") -> dict[str, Json]:
    fields = parse_json(step.extra or "{}")
    return dict(fields) if isinstance(fields, Mapping) else {}


def endpoint_of(step: "LLMStep") -> str:
    """Return the server as it is hashed: the alias if there is one, never a key or an absolute path."""
    # A path of this machine would give every machine its own key.
    return step.endpoint_alias or adapter_for(step).endpoint


def is_remote(step: "LLMStep") -> bool:
    """Return whether a call leaves the machine, or may, as the requests in a batch."""
    return step.pace == "batch" or adapter_for(step).is_remote


def sent_schema_of(step: "LLMStep", wire: Json) -> Json:
    """Return the schema that is sent. Only for `returns: files` does it differ from the one in the fingerprint."""
    if wire is None or step.returns != "files":
        return wire
    from orch23.providers.wire import sent_schema  # noqa: PLC0415 - the adapter that returned the schema has loaded it

    return sent_schema(wire)


def media_limits_of(provider: str) -> "MediaLimits":
    """Return the limits of a provider for pictures and PDFs."""
    from orch23.providers.media import NO_MEDIA  # noqa: PLC0415 - few requests have media

    adapter = adapter_named(provider, ())
    return adapter.media if adapter is not None and adapter.media is not None else NO_MEDIA


def truncation_policy(step: "LLMStep") -> OnTruncated:
    """Return what to do after a truncated response: by the step, or else by the provider."""
    return step.on_truncated or adapter_for(step).on_truncated


_VENDORS = {"claude": "anthropic", "chatgpt": "openai", "gpt": "openai", "google": "vertex", "gemini": "vertex"}
_SERVERS = {"ollama": "http://127.0.0.1:11434/v1", "vllm": "http://127.0.0.1:8000/v1"}


def _installed() -> list[str]:
    return [name for name in sorted(ADAPTERS) if features.has_feature(features.PROVIDERS, name)]


def _unknown(name: str, plugins: tuple[str, ...]) -> Diagnostic:
    if not features.has_feature(features.PROVIDERS, name):
        return features.missing_feature(features.PROVIDERS[name])
    known, word = sorted((*_installed(), *_of_plugins(plugins))), name.lower()
    hint, every = nearest_hint(name, known), f"use one of: {', '.join(known)}"
    if word in _SERVERS:
        hint = f"write `provider: openai` with `base_url: {_SERVERS[word]}`, the address of that server"
    elif word in _VENDORS:
        hint = question((_VENDORS[word],))
    return Diagnostic("E405", f"there is no provider `{name}`", hint=hint, fix=fix_of_hint(name, hint), otherwise=every)


def _unsupported(name: str, provider: str) -> Diagnostic:
    takers = [other for other in _installed() if name in ADAPTERS[other].takes]
    hint = (
        f"remove it; these have it: {', '.join(takers)}" if takers else "remove it; no provider of this version has it"
    )
    return unsupported_error(name, f"the provider `{provider}` does not have `{name}`", hint)


def grant_for(step: "LLMStep", setting: ProviderContext) -> Grant | None:
    """Return the grant that a valid step needs; None if none is needed."""
    return adapter_for(step).consent(setting.environ, setting.root, setting.files)


def check_call(setting: ProviderContext, step: "LLMStep") -> None:
    """Check that the model of a valid step can and may be called on this machine now.

    Raises:
        ConfigurationError: a key, a library or weights are missing.
        ConsentError: the user has not consented.
    """
    if missing := readiness_errors(step, setting.environ, setting.root):
        raise ConfigurationError(*missing)
    grant = grant_for(step, setting)
    if grant is not None and not setting.is_granted(grant):
        raise ConsentError(not_granted_error(grant, setting.trust_command))


def not_granted_error(grant: Grant, trust_command: str) -> Diagnostic:
    """Return the error that a grant is missing, with the command that gives it."""
    hint = f"read what it does, then run `{trust_command}`: it lists and allows what this pipeline needs"
    return Diagnostic("E426", f"you have not allowed this project to {grant}", hint=hint)
