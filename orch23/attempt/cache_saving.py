"""Estimate what the prompt caches of vendors save on the first attempts of a build."""

from collections.abc import Mapping
from decimal import Decimal

from orch23.attempt.estimate import CHARACTERS_PER_TOKEN, TariffOf
from orch23.model.llm import Request, Usage
from orch23.providers.cache_marks import shared_prefix
from orch23.providers.model_facts import ModelFacts


def expected_savings(calls: Mapping[str, tuple[Request, ModelFacts]], tariff_of: TariffOf) -> dict[str, Decimal]:
    """Return by stage, in US dollars, how much cheaper its first request should be because items share a prefix.

    `calls` has the first request of each stage that no recorded response answers, with the facts of its model.
    The first of them, in the order given, writes the prefix to the cache and costs more than without: its amount is
    negative. Further attempts are not counted, nor batches, whose requests find a cache by chance. A stage is left out
    if nothing is cached, or the price is unknown.
    """
    sharing: dict[str, list[str]] = {}
    for name, (request, facts) in calls.items():
        prefix = shared_prefix(request, facts) if request.pace != "batch" else None
        if prefix is not None:
            sharing.setdefault(f"{request.provider} {prefix}", []).append(name)
    found: dict[str, Decimal] = {}
    for names in sharing.values():
        for number, name in enumerate(names):
            request, _ = calls[name]
            tariff = tariff_of(request.provider, request.model, request.pace)
            if tariff is not None and len(names) > 1:
                usage = _usage(request, is_first=number == 0)
                found[name] = tariff.uncached_cost(usage) - tariff.cost(usage)
    return found


def _usage(request: Request, *, is_first: bool) -> Usage:
    """Return the tokens of the shared prefix alone, as the first request of a family uses the cache, or a later one."""
    tokens = -(-(len(request.system) + request.family) // CHARACTERS_PER_TOKEN)
    if not is_first:
        return Usage(tokens, cache_read_tokens=tokens)
    return Usage(tokens, cache_write_tokens=tokens, cache_write_1h_tokens=tokens if request.writes_for_an_hour else 0)
