"""What ends a run or a stage, prices, pools and exit codes: what is read, and what is complained of."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from orch23.language.document import CommonDocument
from orch23.language.pipeline_document import SettingsDocument
from orch23.language.reading import independent_problems, read_document
from orch23.language.stage_fields import read_pools
from orch23.model.errors import MAX_CUSTOM_EXIT_CODE, MIN_CUSTOM_EXIT_CODE
from orch23.model.fields import Problems
from orch23.model.language import read_fields
from orch23.model.pipeline import Price, StopConditions


def read(how, body):
    at = Problems("")
    document, wrong = read_document(body, CommonDocument if how is read_stage_limits else SettingsDocument, "")
    found = document and how(document, at)
    return found, [(problem.path, problem.code) for problem in (*wrong, *independent_problems(wrong, at.found))]


def read_run_limits(settings, at):
    return read_fields(settings, at).get("stop", StopConditions())


def read_stage_limits(document, at):
    return read_fields(document, at).get("stop", StopConditions())


def read_prices(settings, at):
    return read_fields(settings, at).get("prices", {})


def read_rates(settings, at):
    return read_fields(settings, at).get("rates", {})


def read_exit_codes(settings, _at):
    return settings.exit_codes


def test_every_limit_arrives_with_its_unit() -> None:
    body = {"max_cost_usd": "2.50", "max_tokens": "600k", "max_llm_calls": 7, "max_wall": "1h30m"}
    limits = StopConditions(max_cost_usd=Decimal("2.50"), max_tokens=600_000, max_llm_calls=7, max_wall_s=5400.0)
    run = read(read_run_limits, {"stop_conditions": {**body, "max_failed_stages": 3}})
    assert run == (replace(limits, max_failed_stages=3), [])
    assert read(read_stage_limits, {"stop_conditions": body}) == (limits, [])


def test_what_is_not_said_has_no_limit_but_one_failed_stage_ends_a_run() -> None:
    none = StopConditions(max_cost_usd=None, max_tokens=None, max_llm_calls=None, max_wall_s=None, max_failed_stages=1)
    assert read(read_run_limits, {}) == (none, [])
    assert read(read_stage_limits, {}) == (StopConditions(), [])


@pytest.mark.parametrize(
    ("how", "key", "value", "code"),
    [
        (read_run_limits, "max_cost_usd", 0, "E812"),
        (read_run_limits, "max_cost_usd", -1, "E812"),
        (read_run_limits, "max_cost_usd", "much", "E815"),
        (read_run_limits, "max_tokens", 0, "E812"),
        (read_run_limits, "max_llm_calls", 0, "E812"),
        (read_run_limits, "max_wall", 0, "E812"),
        (read_run_limits, "max_wall", "soon", "E815"),
        (read_run_limits, "max_failed_stages", 0, "E812"),
        (read_run_limits, "max_time", 1, "E802"),
        (read_stage_limits, "max_failed_stages", 1, "E802"),
        (read_stage_limits, "max_cost_usd", "0.00", "E815"),
    ],
)
def test_an_invalid_limit_is_reported_at_its_path(how, key: str, value, code: str) -> None:
    assert read(how, {"stop_conditions": {key: value}})[1] == [(f"stop_conditions/{key}", code)]


def test_prices_are_exact_and_two_of_them_are_needed() -> None:
    full = {"input": 3, "output": "15.10", "cache_read": 0.3, "cache_write": 0}
    price = Price(input=Decimal(3), output=Decimal("15.10"), cache_read=Decimal("0.3"), cache_write=Decimal(0))
    few = Price(input=Decimal(0), output=Decimal(1), cache_read=None, cache_write=None)
    body = {"prices": {"p/m": full, "free": {"input": 0, "output": 1}}}
    assert read(read_prices, body) == ({"p/m": price, "free": few}, [])
    assert read(read_prices, {}) == ({}, [])
    assert read(read_prices, {"prices": {"m": {"output": 1}}})[1] == [("prices/m/input", "E810")]
    assert read(read_prices, {"prices": {"m": {"input": 1}}})[1] == [("prices/m/output", "E810")]
    assert read(read_prices, {"prices": {"m": {**full, "each": 1}}})[1] == [("prices/m/each", "E802")]


def test_rates_are_a_number_and_the_seconds_in_which_it_is_allowed() -> None:
    body = {
        "p": {"requests": "10/min", "tokens": "30k/h"},
        "p/m": {"requests": "20/s", "input_tokens": "2M/day", "output_tokens": "500/30s"},
        "m": {"requests": "3/0.5s"},
    }
    assert read(read_rates, {"rates": body}) == (
        {
            "p": {"requests": (10, 60.0), "tokens": (30_000, 3600.0)},
            "p/m": {"requests": (20, 1.0), "input_tokens": (2_000_000, 86_400.0), "output_tokens": (500, 30.0)},
            "m": {"requests": (3, 0.5)},
        },
        [],
    )
    assert read(read_rates, {}) == ({}, [])


@pytest.mark.parametrize(
    ("limits", "path", "code"),
    [
        ({}, "rates/m", "E812"),
        ({"requests": "0/min"}, "rates/m/requests", "E812"),
        ({"requests": "5/0s"}, "rates/m/requests", "E812"),
        ({"requests": "10"}, "rates/m/requests", "E815"),
        ({"requests": "10/minute"}, "rates/m/requests", "E815"),
        ({"requests": "10/min\n"}, "rates/m/requests", "E815"),
        ({"requests": 10}, "rates/m/requests", "E811"),
        ({"calls": "10/min"}, "rates/m/calls", "E802"),
    ],
)
def test_an_invalid_rate_is_reported_at_its_path(limits, path: str, code: str) -> None:
    assert read(read_rates, {"rates": {"m": limits}})[1] == [(path, code)]


def test_pools_are_at_least_one_and_a_wrong_one_is_none() -> None:
    sizes = {"pools": {"gpu": 1, "api": 8}, "pool_executors": {}, "pool_resources": {}}
    assert read(read_pools, {"pools": {"gpu": 1, "api": 8}}) == (sizes, [])
    assert read(read_pools, {"pools": {"gpu": 0}})[1] == [("pools/gpu", "E812")]


def test_a_pool_states_size_executor_and_resources_each_on_its_own() -> None:
    pools = {
        "api": 8,
        "gpu": {"size": 2, "executor": "dask", "resources": {"gpu": 1, "memory": "8GiB", "disk": "1.5 GB"}},
        "here": {"executor": "local"},
        "half": {"resources": {"gpu": 0.5}},
    }
    expected = {
        "pools": {"api": 8, "gpu": 2},
        "pool_executors": {"gpu": "dask", "here": "local"},
        "pool_resources": {"gpu": {"gpu": 1.0, "memory": 8.0 * 2**30, "disk": 1.5e9}, "half": {"gpu": 0.5}},
    }
    assert read(read_pools, {"pools": pools}) == (expected, [])


@pytest.mark.parametrize(
    ("pool", "path", "code"),
    [
        ({}, "pools/p", "E812"),
        ({"resources": {}}, "pools/p", "E812"),
        ({"size": 0}, "pools/p/size", "E812"),
        ({"size": "many"}, "pools/p/size", "E811"),
        ({"siz": 1}, "pools/p/siz", "E802"),
        ({"executor": 1}, "pools/p/executor", "E811"),
        ({"executor": "a b"}, "pools/p/executor", "E812"),
        ({"resources": {"gpu": 0}}, "pools/p/resources/gpu", "E812"),
        ({"resources": {"gpu": -1}}, "pools/p/resources/gpu", "E812"),
        ({"resources": {"gpu": -0.5}}, "pools/p/resources/gpu", "E812"),
        ({"resources": {"gpu": float("inf")}}, "pools/p/resources/gpu", "E812"),
        ({"resources": {"gpu": True}}, "pools/p/resources/gpu", "E811"),
        ({"resources": {"memory": "0GiB"}}, "pools/p/resources/memory", "E812"),
        ({"resources": {"memory": "8 parsecs"}}, "pools/p/resources/memory", "E815"),
        ({"resources": {"memory": "-8GiB"}}, "pools/p/resources/memory", "E815"),
        ({"resources": {"a/b": 1}}, "pools/p/resources/a/b", "E812"),
        ({"resources": ["gpu"]}, "pools/p/resources", "E811"),
    ],
)
def test_an_invalid_pool_is_reported_at_its_path(pool, path: str, code: str) -> None:
    assert read(read_pools, {"pools": {"p": pool}})[1] == [(path, code)]


def test_exit_codes_have_a_least_and_a_most() -> None:
    assert read(read_exit_codes, {"exit_codes": {"E4": MIN_CUSTOM_EXIT_CODE, "E483": MAX_CUSTOM_EXIT_CODE}}) == (
        {"E4": MIN_CUSTOM_EXIT_CODE, "E483": MAX_CUSTOM_EXIT_CODE},
        [],
    )
    assert read(read_exit_codes, {"exit_codes": {"E4": MIN_CUSTOM_EXIT_CODE - 1}})[1] == [("exit_codes/E4", "E812")]
    assert read(read_exit_codes, {"exit_codes": {"E4": MAX_CUSTOM_EXIT_CODE + 1}})[1] == [("exit_codes/E4", "E812")]
