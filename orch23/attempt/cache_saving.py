"""Estimate what the prompt caches of vendors save on the first attempts of a build."""

from collections.abc import Mapping
from decimal import Decimal

from msgspec import Struct

from orch23.attempt.estimate import CHARACTERS_PER_TOKEN, TariffOf
from orch23.model.llm import Request, Usage
from orch23.providers.cache_marks import shared_prefix
from orch23.providers.model_facts import ModelFacts


class PlannedCall(Struct, frozen=True):
    """The first request of a stage that no recorded response answers, and the facts of its model at its server."""

    request: Request
    facts: ModelFacts


def expected_savings(calls: Mapping[str, PlannedCall], tariff_of: TariffOf) -> dict[str, Decimal]:
    """Return by stage, in US dollars, how much cheaper its first request should be because items share a prefix.

    The first of them, in the order given, writes the prefix to the cache and costs more than without: its amount is
    negative. Further attempts are not counted, nor batches, whose requests find a cache by chance. A stage is left out
    if nothing is cached, or the price is unknown.
    """
    sharing: dict[str, list[str]] = {}
    for name, call in calls.items():
        prefix = shared_prefix(call.request, call.facts) if call.request.pace != "batch" else None
        if prefix is not None:
            sharing.setdefault(f"{call.request.provider} {prefix}", []).append(name)
    found: dict[str, Decimal] = {}
    for names in sharing.values():
        for number, name in enumerate(names):
            request = calls[name].request
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
