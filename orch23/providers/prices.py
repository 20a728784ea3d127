"""Prices of requests: set in the pipeline, from a vendor's table, or unknown."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import astuple

from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Pace, Request, Usage
from orch23.model.pipeline import Pipeline, Price
from orch23.providers.adapter import Pricing
from orch23.providers.registry import adapter_named, media_limits_of

if TYPE_CHECKING:
    from genai_prices.types import TieredPrices

    from orch23.steps.llm.spec import LLMStep


# Dollars for a million tokens, each with a number of input tokens: the price of a request with more input than this.
# The numbers ascend from -1, so one price always applies.
Rate: TypeAlias = tuple[tuple[int, Decimal], ...]

_MILLION = Decimal(1_000_000)
# Tokens that a server adds to a request: instructions for a schema, special tokens.
_FRAME_TOKENS = 1024
_MESSAGE_TOKENS = 16  # tokens that it adds to each message


class Tariff(Struct, frozen=True, kw_only=True):
    """The prices of one model's tokens. `source` is the price table and its version.

    `cache_write_1h` is the price of input that the cache keeps for an hour, None for the price of `cache_write`.
    """

    input: Rate
    output: Rate
    cache_read: Rate
    cache_write: Rate
    cache_write_1h: Rate | None = None
    source: str

    @property
    def is_free(self) -> bool:
        """Return whether nothing is charged, also for a response without a count of tokens."""
        return self is FREE_TARIFF

    def cost(self, usage: Usage) -> Decimal:
        """Return the price of a request in US dollars: cached input at its own rates, other input at that of input.

        If a provider counts more cached tokens than input tokens, its numbers are charged unchanged.
        """
        above = usage.input_tokens
        lasting = usage.cache_write_1h_tokens
        plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
        return (
            plain * _at(self.input, above)
            + usage.cache_read_tokens * _at(self.cache_read, above)
            + (usage.cache_write_tokens - lasting) * _at(self.cache_write, above)
            + lasting * _at(self.cache_write_1h or self.cache_write, above)
            + usage.output_tokens * _at(self.output, above)
        ) / _MILLION

    def uncached_cost(self, usage: Usage) -> Decimal:
        """Return the price of a request if nothing had been read from the prompt cache or written to it."""
        return self.cost(Usage(usage.input_tokens, usage.output_tokens))

    def max_cost(self, input_tokens: int, output_tokens: int, *, lasting: bool = False) -> Decimal:
        """Return the maximum price of so many tokens, whatever part of the input is cached; `lasting`: for an hour."""
        written = (self.cache_write_1h,) if lasting and self.cache_write_1h is not None else ()
        rates = (self.input, self.cache_read, self.cache_write, *written)
        most = max(_most(rate, input_tokens) for rate in rates)
        return (input_tokens * most + output_tokens * _most(self.output, input_tokens)) / _MILLION


_NOTHING: Rate = ((-1, Decimal(0)),)
# The discount of both vendors for slower responses, also on cached input.
_SLOWER: Mapping[Pace, Decimal] = {
    "standard": Decimal(1),
    "flex": Decimal("0.5"),
    "batch": Decimal("0.5"),
}
# How the price table names a pace.
_CONTEXTS: Mapping[Pace, Mapping[str, str]] = {
    "standard": {},
    "flex": {"service_tier": "flex"},
    "batch": {"processing": "batch"},
}
# The tariff of providers that cost nothing.
FREE_TARIFF = Tariff(input=_NOTHING, output=_NOTHING, cache_read=_NOTHING, cache_write=_NOTHING, source="free")


class WorstCase(Struct, frozen=True):
    """The maximum usage of a request: tokens of input and output together, US dollars (None: unknown price)."""

    tokens: int
    cost: Decimal | None


class Prices(Struct, frozen=True):
    """The prices of a run. `own` are those of the pipeline, for `provider/model` or `model`: they take precedence.

    `plugins` are those of the pipeline: their providers have a pricing too.
    """

    own: Mapping[str, Price] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()

    def tariff_of(self, provider: str, model: str, pace: Pace = "standard") -> Tariff | None:
        """Return the tariff of a model at a provider; None if it is unknown.

        The prices of the pipeline are those of the standard pace.
        """
        stated = self.own.get(f"{provider}/{model}") or self.own.get(model)
        pricing = self._pricing_of(provider)
        # The packaged table may be outdated, or lack a model.
        if stated is not None and (pricing != "unbounded" or not any(astuple(stated))):
            return _stated(stated, _hour_factor(provider, model), pace)
        # Unknown, and not free: under a limit of cost, such a model is not called (ADR 8).
        match pricing:
            case "free":
                return FREE_TARIFF
            case "unknown" | "unbounded":
                return None
            case vendor:
                return _tabled(vendor, model, pace)

    def unknown_error(self, provider: str, model: str, stage: str | None = None) -> Diagnostic:
        """Return the error that a limit of cost cannot be kept."""
        if self._pricing_of(provider) == "unbounded":
            message = f"the program of `{model}` may call a model any number of times, so `max_cost_usd` cannot be kept"
            hint = "limit the cost in the program and remove the limit"
            hint += f", or set `prices: {{{model}: 0}}` if it costs nothing"
        else:
            what = f"the price of {provider} `{model}` is not known"
            message = f"{what}, so `max_cost_usd` cannot be kept; nothing was sent"
            hint = f"set it under `prices: {{{model}: {{input: …, output: …}}}}`, or remove the limit"
        return Diagnostic("E424", message, hint=hint, subject=stage)

    def _pricing_of(self, provider: str) -> Pricing:
        adapter = adapter_named(provider, self.plugins)
        return adapter.pricing if adapter else "unknown"


def worst_case(request: Request, tariff: Tariff | None) -> WorstCase:
    """Return the maximum usage of a request, without a tokenizer and without a call.

    Each token of a byte-level tokenizer has at least one byte, so a text has at most as many tokens as bytes in UTF-8.
    For a picture and a page of a PDF, a fixed number is assumed. A count of the vendor replaces all of this.
    A response has at most `max_tokens`, thinking included. Without that parameter the price is unknown.
    """
    input_tokens = _most_input(request) if request.input_tokens is None else request.input_tokens
    limit = request.params.get("max_tokens")
    if isinstance(limit, int):
        if tariff is None:
            return WorstCase(input_tokens + limit, None)
        most = tariff.max_cost(input_tokens, limit, lasting=request.writes_for_an_hour)
        return WorstCase(input_tokens + limit, most)
    return WorstCase(input_tokens, Decimal(0) if tariff is FREE_TARIFF else None)


def _most_input(request: Request) -> int:
    # Bytes, not a vendor's tokenizer: one low estimate would break the limit (ADR 8).
    sent = sum(len(text.encode("utf-8", "surrogatepass")) for text in sent_texts(request))
    return sent + _FRAME_TOKENS + _MESSAGE_TOKENS * len(request.messages) + most_media_tokens(request)


def sent_texts(request: Request) -> Sequence[str]:
    """Return all texts that a request sends, with its schema."""
    schema = () if request.schema is None else (json.dumps(request.schema, ensure_ascii=False, default=dict),)
    return (*request.texts, *schema)


def most_media_tokens(request: Request) -> int:
    """Return the most tokens that the pictures and PDFs of a request take, since vendors scale them."""
    if not request.media:
        return 0
    from orch23.providers.media import media_tokens  # noqa: PLC0415 - few requests have media

    return media_tokens(request, media_limits_of(request.provider))


def unpriced_error(step: "LLMStep", pipeline: Pipeline) -> Diagnostic | None:
    """Return an error if the price of a step's model is unknown, so that a limit of cost cannot be kept."""
    prices = Prices(pipeline.prices, pipeline.plugins)
    is_known = prices.tariff_of(step.provider, step.model, step.pace) is not None
    return None if is_known else prices.unknown_error(step.provider, step.model)


def _stated(price: Price, hour_factor: Decimal, pace: Pace) -> Tariff:
    def flat(amount: Decimal | None) -> Rate:
        return ((-1, (price.input if amount is None else amount) * _SLOWER[pace]),)

    written = price.input if price.cache_write is None else price.cache_write

    return Tariff(
        input=flat(None),
        output=flat(price.output),
        cache_read=flat(price.cache_read),
        cache_write=flat(written),
        # The vendor charges twice the price of input, which no one may have stated.
        cache_write_1h=flat(max(written, price.input * hour_factor)),
        source=_source("pipeline", pace),
    )


@cache
def _tabled(vendor: str, model: str, pace: Pace) -> Tariff | None:
    """Return the tariff of the packaged table. It is read from files of the package, never updated over the network."""
    import genai_prices  # noqa: PLC0415 - heavy

    try:
        # A model without prices for the pace has those of the standard one. They are too high, which keeps limits.
        context = _CONTEXTS[pace]
        found = genai_prices.calc_price(
            genai_prices.Usage(), model, provider_id=vendor, price_context=context
        ).model_price
    except LookupError:
        return None
    sent, received = _rate(found.input_mtok), _rate(found.output_mtok)
    # The price is not by tokens: speech, for example, is priced by characters.
    if sent is None or received is None:
        return None
    return Tariff(
        input=sent,
        output=received,
        # Cached input without a price costs as much as other input.
        cache_read=_rate(found.cache_read_mtok) or sent,
        cache_write=_rate(found.cache_write_mtok) or sent,
        cache_write_1h=_rate(getattr(found, "cache_write_1h_mtok", None))
        or tuple((above, price * _hour_factor(vendor, model)) for above, price in sent),
        source=_source(f"genai-prices {genai_prices.__version__}", pace),
    )


def _source(table: str, pace: Pace) -> str:
    return table if pace == "standard" else f"{table}, {pace}"


def _rate(price: "Decimal | TieredPrices | None") -> Rate | None:
    if price is None:
        return None
    if isinstance(price, Decimal):
        return ((-1, price),)
    return ((-1, price.base), *((tier.start, tier.price) for tier in price.tiers))


def _hour_factor(provider: str, model: str) -> Decimal:
    from orch23.providers.model_facts import facts_of  # noqa: PLC0415 - an edit without a model call does not need it

    return facts_of(provider, model).write_1h


def _at(rate: Rate, input_tokens: int) -> Decimal:
    return [price for above, price in rate if input_tokens > above][-1]


def _most(rate: Rate, input_tokens: int) -> Decimal:
    """Return the highest price for a request with at most so many tokens of input."""
    return max(price for above, price in rate if input_tokens > above)
