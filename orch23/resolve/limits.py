"""Read what ends a run or a stage, and what models cost, from their documents."""

from collections.abc import Mapping
from decimal import Decimal

from msgspec import UNSET, UnsetType

from orch23.model.fields import Problems, given
from orch23.model.pipeline import Price, StopConditions
from orch23.model.step_limits import DEFAULT_LIMITS, StepLimits
from orch23.resolve.document import (
    LimitsDocument,
    PriceDocument,
    RunStopConditionsDocument,
    SettingsDocument,
    StopConditionsDocument,
)


def read_run_limits(settings: SettingsDocument, at: Problems) -> StopConditions:
    """Return `stop_conditions` of the file."""
    stop, below = given(settings.stop_conditions, RunStopConditionsDocument()), at.below("stop_conditions")
    return _limits(stop, below, below.count("max_failed_stages", stop.max_failed_stages))


def read_stage_limits(stop: StopConditionsDocument | UnsetType, at: Problems) -> StopConditions:
    """Return `stop_conditions` of a stage; how many stages may fail is a limit of the run."""
    return _limits(given(stop, StopConditionsDocument()), at, StopConditions().max_failed_stages)


def read_step_limits(limits: LimitsDocument | UnsetType, at: Problems) -> StepLimits:
    """Return `limits` of a stage."""
    if limits is UNSET:
        return DEFAULT_LIMITS
    return StepLimits(
        memory=at.size("memory", limits.memory),
        processes=at.count("processes", limits.processes),
        files=at.count("files", limits.files),
        disk=at.size("disk", limits.disk),
        address_space=None if limits.address_space is UNSET else at.size("address_space", limits.address_space),
    )


def read_prices(settings: SettingsDocument, at: Problems) -> Mapping[str, Price]:
    """Return `prices`, by what they are written for: a model, or `provider/model`."""
    below = at.below("prices")
    return {name: _price(price, below.below(name)) for name, price in given(settings.prices, {}).items()}


def _limits(stop: StopConditionsDocument, at: Problems, failed: int | None) -> StopConditions:
    return StopConditions(
        max_cost_usd=None if stop.max_cost_usd is UNSET else at.dollars("max_cost_usd", stop.max_cost_usd),
        max_tokens=None if stop.max_tokens is UNSET else at.count("max_tokens", stop.max_tokens),
        max_llm_calls=None if stop.max_llm_calls is UNSET else at.count("max_llm_calls", stop.max_llm_calls),
        max_wall_s=None if stop.max_wall is UNSET else at.duration("max_wall", stop.max_wall),
        max_failed_stages=failed,
    )


def _price(price: PriceDocument, at: Problems) -> Price:
    return Price(
        input=at.dollars("input", price.input),
        output=at.dollars("output", price.output),
        cache_read=_optional("cache_read", price.cache_read, at),
        cache_write=_optional("cache_write", price.cache_write, at),
    )


def _optional(key: str, value: str | float | UnsetType, at: Problems) -> Decimal | None:
    return None if value is UNSET else at.dollars(key, value)
