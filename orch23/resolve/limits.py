"""Read what ends a run or a stage, and what models cost, from rendered mappings."""

from collections.abc import Mapping
from decimal import Decimal

from orch23.model.exit_numbers import LEAST, MOST
from orch23.model.pipeline import Price, StopConditions
from orch23.model.step_limits import DEFAULT_LIMITS, StepLimits
from orch23.resolve.fields import Fields

_OF_BOTH = ("max_cost_usd", "max_tokens", "max_llm_calls", "max_wall")
_OF_RUNS = ("max_failed_stages",)
_RATES = ("input", "output", "cache_read", "cache_write")


def read_run_limits(owner: Fields) -> StopConditions:
    """Return `stop_conditions` of the file."""
    stop = owner.below("stop_conditions")
    return _limits(stop, (*_OF_BOTH, *_OF_RUNS), stop.count("max_failed_stages", 1))


def read_stage_limits(owner: Fields) -> StopConditions:
    """Return `stop_conditions` of a stage: how many stages may fail is the run's affair."""
    return _limits(owner.below("stop_conditions"), _OF_BOTH, StopConditions().max_failed_stages)


def read_step_limits(owner: Fields) -> StepLimits:
    """Return `limits` of a stage."""
    limits, usual = owner.below("limits"), DEFAULT_LIMITS
    return StepLimits(
        memory=limits.size("memory") or usual.memory,
        processes=limits.count("processes", usual.processes),
        files=limits.count("files", usual.files),
        disk=limits.size("disk") or usual.disk,
        address_space=limits.size("address_space"),
    )


def read_prices(owner: Fields) -> Mapping[str, Price]:
    """Return `prices`, by what they are written for: a model, or `provider/model`."""
    prices = owner.below("prices")
    return {name: _price(prices.below(name)) for name in prices.body}


def read_pools(owner: Fields) -> Mapping[str, int]:
    """Return `pools` of the file: how many stages of each may run at once."""
    pools = owner.below("pools")
    return {name: size for name in pools.body if (size := pools.whole(name, 1)) is not None}


def read_exit_codes(owner: Fields) -> Mapping[str, int]:
    """Return `exit_codes` of the file: a diagnostic code or its beginning -> the number to end with."""
    codes = owner.below("exit_codes")
    return {name: codes.whole_between(name, LEAST, MOST, LEAST) for name in codes.body}


def _limits(stop: Fields, keys: tuple[str, ...], failed: int | None) -> StopConditions:
    stop.only(keys)
    cost = stop.dollars("max_cost_usd")
    if cost is not None and not cost:
        hint = "leave it out for no limit; `--offline` and `--replay` build without asking anybody who takes money"
        stop.complain("max_cost_usd", "E812", "`max_cost_usd` is 0; it must be more than 0", hint)
    return StopConditions(
        max_cost_usd=cost,
        max_tokens=stop.count("max_tokens", 1) if stop.has("max_tokens") else None,
        max_llm_calls=stop.count("max_llm_calls", 1) if stop.has("max_llm_calls") else None,
        max_wall_s=stop.duration("max_wall"),
        max_failed_stages=failed,
    )


def _price(price: Fields) -> Price:
    price.only(_RATES)
    found = {name: price.dollars(name) for name in _RATES}
    for name in ("input", "output"):
        if not price.has(name):
            price.complain("", "E810", f"`{name}` is missing", "write dollars for a million tokens; 0 if it is free")
    return Price(
        input=found["input"] or Decimal(0),
        output=found["output"] or Decimal(0),
        cache_read=found["cache_read"],
        cache_write=found["cache_write"],
    )
