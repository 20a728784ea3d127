"""Facts of the vendors' models: limits of tokens, inputs, and prompt caching.

The facts were taken on 2026-11-25 from:

- platform.claude.com/docs: `build-with-claude/prompt-caching` (minimum prefixes, write prices) and `models/*/overview`
  (limits, inputs)
- developers.openai.com/api/docs: `guides/prompt-caching` (minimum prefix, write prices, models with 24 hours)
- models.dev, 1.0.398 of May 2026, and the vendors' announcements for later models: limits and inputs, parameters
- genai-prices 0.2.3: context windows, and which models have prices for flex processing
- anthropic 2.14.0 and openai 3.57.0, types of the requests: the fields of prompt caching

A model that is not listed has no known limit, and the highest minimum of all models. Prices are in `prices`.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.media import MediaKind

# A dated or the newest snapshot of a model has the facts of the model.
_SNAPSHOT: Final = r"(?:-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest|0))?"
_CHARACTERS_OF_TOKEN: Final = 4


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What is known about a model. None: the limit is not known.

    `min_cached_tokens` is the shortest prefix that the vendor caches. `write_1h` is the price of a cache write for an
    hour, as a factor of the price of input. `has_breakpoints`: a request can mark the ends of cached prefixes.
    `lacks_paces` are the values of `llm.pace` that the vendor refuses for it, `lacks_parameters` the keys of `llm`.
    `has_cache_key` and `has_retention`: a request can have `prompt_cache_key`, and `prompt_cache_retention: 24h`.
    """

    max_output_tokens: int | None = None
    context_tokens: int | None = None
    min_cached_tokens: int = 4096
    images: bool = False
    pdfs: bool = False
    has_breakpoints: bool = False
    has_cache_key: bool = False
    has_retention: bool = False
    write_1h: Decimal = Decimal(1)
    lacks_paces: frozenset[str] = frozenset()
    lacks_parameters: frozenset[str] = frozenset()

    @property
    def media(self) -> frozenset[MediaKind]:
        """Return the kinds of media that the model accepts."""
        kinds: dict[MediaKind, bool] = {"image": self.images, "pdf": self.pdfs}
        return frozenset(kind for kind, accepted in kinds.items() if accepted)

    def caches(self, characters: int) -> bool:
        """Return whether a prefix of so many characters, from the beginning of the request, is surely long enough.

        A token of the vendors has at most four characters on average, so this counts too few tokens, not too many.
        """
        # Not the tokenizer of the vendor: it needs the network, and a mark on a short prefix is only ignored.
        return characters // _CHARACTERS_OF_TOKEN >= self.min_cached_tokens

    def limit_of(self, usual: int) -> int:
        """Return the default of `max_tokens`: the usual one, or less if the model allows less.

        Half of a small context is left to the prompt: a request that needs more than the whole context is refused.
        """
        limits = [self.max_output_tokens or usual, (self.context_tokens or 2 * usual) // 2]
        return min(usual, *limits)


UNKNOWN_MODEL_FACTS: Final = ModelFacts()


def facts_of(provider: str, model: str) -> ModelFacts:
    """Return the facts of a vendor's model; for a model or a provider that is not listed, the defaults."""
    of_vendor = _VENDORS.get(provider, {})
    known = model if model in of_vendor else next((name for name in of_vendor if _is_snapshot(name, model)), None)
    if known is None:
        return _UNLISTED.get(provider, UNKNOWN_MODEL_FACTS)
    facts = of_vendor[known]
    paces = frozenset(pace for pace, names in _WITHOUT.items() if known in names)
    parameters = frozenset(key for key, names in _WITHOUT_PARAMETER.items() if known in names)
    return replace(facts, lacks_paces=paces, lacks_parameters=parameters) if paces or parameters else facts


def _is_snapshot(name: str, model: str) -> bool:
    return model.startswith(name) and re.fullmatch(re.escape(name) + _SNAPSHOT, model) is not None


_K: Final = 1_000


def _claude(output: int, context: int, cached: int) -> ModelFacts:
    return ModelFacts(
        max_output_tokens=output,
        context_tokens=context,
        min_cached_tokens=cached,
        images=True,
        pdfs=True,
        has_breakpoints=True,
        write_1h=Decimal(2),
    )


def _gpt(output: int, context: int, *, inputs: str = "", cached: bool = True, day: bool = False) -> ModelFacts:
    return ModelFacts(
        max_output_tokens=output,
        context_tokens=context,
        min_cached_tokens=1024,
        images="i" in inputs,
        pdfs="p" in inputs,
        has_cache_key=cached,
        has_retention=day,
    )


def _each(names: str, facts: ModelFacts) -> dict[str, ModelFacts]:
    return dict.fromkeys(names.split(), facts)


_ANTHROPIC: Mapping[str, ModelFacts] = {
    **_each(
        "claude-fable-5 claude-fable-5-1 claude-mythos-5 claude-mythos-5-1 claude-opus-5 claude-opus-5-5 "
        "claude-sonnet-5-5 claude-haiku-5-5",
        _claude(128 * _K, 1000 * _K, 512),
    ),
    **_each("claude-sonnet-5 claude-opus-4-8 claude-sonnet-4-6", _claude(128 * _K, 1000 * _K, 1024)),
    "claude-opus-4-7": _claude(128 * _K, 1000 * _K, 2048),
    "claude-opus-4-6": _claude(128 * _K, 1000 * _K, 4096),
    **_each("claude-opus-4-5 claude-haiku-4-5", _claude(64 * _K, 200 * _K, 4096)),
    **_each("claude-sonnet-4-5 claude-sonnet-4 claude-3-7-sonnet", _claude(64 * _K, 200 * _K, 1024)),
    **_each("claude-opus-4-1 claude-opus-4", _claude(32 * _K, 200 * _K, 1024)),
    "claude-3-5-sonnet": _claude(8192, 200 * _K, 1024),
    "claude-3-5-haiku": _claude(8192, 200 * _K, 2048),
    "claude-3-opus": _claude(4096, 200 * _K, 1024),
    "claude-3-haiku": _claude(4096, 200 * _K, 2048),
}
_OPENAI: Mapping[str, ModelFacts] = {
    **_each(
        # Explicit breakpoints exist, and a cache write costs more than input.
        "gpt-6.2-sol gpt-6.1-sol gpt-6.1-terra gpt-6-astra gpt-6-sol gpt-6-luna gpt-5.6-sol gpt-5.6-terra gpt-5.6-luna",
        replace(_gpt(128 * _K, 1050 * _K, inputs="i"), has_breakpoints=True, write_1h=Decimal("1.25")),
    ),
    **_each("gpt-5.5 gpt-5.5-pro gpt-5.4", _gpt(128 * _K, 1050 * _K, inputs="ip", day=True)),
    "gpt-5.4-pro": _gpt(128 * _K, 1050 * _K, inputs="i"),
    **_each("gpt-5.4-mini gpt-5.4-nano gpt-5.2-pro gpt-5-mini gpt-5-nano", _gpt(128 * _K, 400 * _K, inputs="i")),
    "gpt-5.3-codex": _gpt(128 * _K, 400 * _K, inputs="ip"),
    **_each(
        "gpt-5.2 gpt-5.1 gpt-5.1-codex gpt-5.1-codex-max gpt-5.1-codex-mini gpt-5 gpt-5-codex",
        _gpt(128 * _K, 400 * _K, inputs="i", day=True),
    ),
    "gpt-5-pro": _gpt(272 * _K, 400 * _K, inputs="i"),
    "gpt-4.1": _gpt(32_768, 1_047_576, inputs="ip", day=True),
    "gpt-4.1-mini": _gpt(32_768, 1_047_576, inputs="ip"),
    "gpt-4.1-nano": _gpt(32_768, 1_047_576, inputs="i"),
    **_each("o1 o3", _gpt(100 * _K, 200 * _K, inputs="ip")),
    "o1-mini": _gpt(65_536, 128 * _K),
    "o1-preview": _gpt(32_768, 128 * _K),
    "o3-mini": _gpt(100 * _K, 200 * _K),
    **_each("o3-pro o4-mini", _gpt(100 * _K, 200 * _K, inputs="i")),
    **_each("gpt-4o gpt-4o-mini", _gpt(16_384, 128 * _K, inputs="ip")),
    **_each("gpt-4o-2024-05-13 gpt-4-turbo", _gpt(4096, 128 * _K, inputs="i", cached=False)),
    "gpt-4": _gpt(8192, 8192, cached=False),
    "gpt-3.5-turbo": _gpt(4096, 16_385, cached=False),
}
# Other listed models have `pace: flex`. One of these has no published prices, so it may lack it.
_WITHOUT_FLEX: Final = frozenset(
    {
        *("gpt-5.3-codex", "gpt-5.2-pro", "gpt-5.1-codex-mini", "gpt-5-pro", "gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"),
        *("o1", "o1-mini", "o1-preview", "o3-mini", "o3-pro", "gpt-4o", "gpt-4o-mini", "gpt-4o-2024-05-13"),
        *("gpt-4-turbo", "gpt-4", "gpt-3.5-turbo"),
    }
)
_WITHOUT: Final = {
    "flex": _WITHOUT_FLEX,
    "batch": frozenset({"gpt-5.3-codex", "gpt-5.1-codex-mini", "o1-mini", "o1-preview"}),
}
# Claude has `effort` since Opus 4.5 and Sonnet 4.6. At OpenAI, only reasoning models have it. The first of
# these have no `temperature`; later ones have it only without reasoning.
_WITHOUT_PARAMETER: Final = {
    "effort": frozenset(
        {
            *("claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-1", "claude-opus-4", "claude-sonnet-4"),
            *("claude-3-7-sonnet", "claude-3-5-sonnet", "claude-3-5-haiku", "claude-3-opus", "claude-3-haiku"),
            *("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-4o", "gpt-4o-mini", "gpt-4o-2024-05-13", "gpt-4-turbo"),
            *("gpt-4", "gpt-3.5-turbo", "o1-mini", "o1-preview"),
        }
    ),
    "temperature": frozenset(
        {
            *("o1", "o1-mini", "o1-preview", "o3", "o3-mini", "o3-pro", "o4-mini"),
            *("gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5-pro", "gpt-5-codex"),
        }
    ),
}
_VENDORS: Final[Mapping[str, Mapping[str, ModelFacts]]] = {"anthropic": _ANTHROPIC, "openai": _OPENAI}
# All models of Anthropic's API take marks. `prompt_cache_key` is of the API of OpenAI, but old models may refuse it.
_UNLISTED: Final[Mapping[str, ModelFacts]] = {"anthropic": ModelFacts(has_breakpoints=True, write_1h=Decimal(2))}
