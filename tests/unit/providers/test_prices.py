"""What requests cost: by the pipeline's own prices, by a vendor's table, or not known; and the most they can cost."""

import subprocess
import sys
import warnings
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.model.llm import CachePolicy, Message, Request, Usage
from orch23.model.pipeline import Pipeline, Price
from orch23.model.text import decimal_text
from orch23.providers.prices import FREE_TARIFF, Prices, Tariff, unpriced_error, worst_case
from orch23.steps.llm.spec import LLMStep
from tests.doubles import adapter_with

MILLION = 1_000_000


def request(text: str = "hello", *, system: str = "", max_tokens: int | None = 100, **more: object) -> Request:
    message = Message("user", text)
    params = {} if max_tokens is None else {"max_tokens": max_tokens}
    asked = Request(
        provider="anthropic",
        model="m",
        endpoint="e",
        system=system,
        messages=(message,),
        identity=(message,),
        params=params,
    )
    return replace(asked, **more)


def flat(asked: str, answered: str, read: str | None = None, write: str | None = None) -> Tariff:
    def rate(amount: str | None) -> tuple[tuple[int, Decimal], ...]:
        return ((-1, Decimal(asked if amount is None else amount)),)

    return Tariff(
        input=rate(asked), output=rate(answered), cache_read=rate(read), cache_write=rate(write), source="test"
    )


# ---- whose price ------------------------------------------------------------------------------------


def test_the_pipeline_s_own_price_comes_first_and_that_of_the_provider_before_that_of_the_model() -> None:
    own = {
        "claude-sonnet-5-5": Price(input=Decimal(7), output=Decimal(8)),
        "openai/claude-sonnet-5-5": Price(input=Decimal(1), output=Decimal(2), cache_read=Decimal(0)),
    }
    prices = Prices(own)
    by_model, by_provider = (
        prices.tariff_of("anthropic", "claude-sonnet-5-5"),
        prices.tariff_of("openai", "claude-sonnet-5-5"),
    )
    assert by_model is not None
    assert by_provider is not None
    assert by_model.cost(Usage(MILLION, MILLION)) == 15
    assert by_provider.cost(Usage(MILLION, MILLION)) == 3
    assert by_provider.cost(Usage(MILLION, 0, cache_read_tokens=MILLION)) == 0
    assert by_provider.cost(Usage(MILLION, 0, cache_write_tokens=MILLION)) == 1, "as other input, where nothing is said"
    assert by_model.source == "pipeline"


@pytest.mark.parametrize("provider", [pytest.param("local", marks=pytest.mark.needs("local")), "scripted"])
def test_a_provider_without_prices_is_free(provider: str) -> None:
    assert Prices().tariff_of(provider, "whatever") is FREE_TARIFF
    assert FREE_TARIFF.cost(Usage(MILLION, MILLION, 5, 5)) == 0


@pytest.mark.parametrize(
    ("provider", "model"),
    [("command", "claude-sonnet-5-5"), ("nobody", "m"), ("anthropic", "no-such-model"), ("anthropic", "gpt-5")],
)
def test_an_unknown_price_is_none_and_never_nothing(provider: str, model: str) -> None:
    assert Prices().tariff_of(provider, model) is None


def test_a_program_that_may_call_a_model_any_number_of_times_has_no_price_but_none() -> None:
    """A bound by the tokens of one request was false: the program paid for thirteen."""
    paid = Prices(
        {"m": Price(input=Decimal(3), output=Decimal(15)), "free": Price(input=Decimal(0), output=Decimal(0))}
    )
    assert paid.tariff_of("command", "m") is None
    for kind in ("input", "output", "cache_read", "cache_write"):
        stated = {"input": Decimal(0), "output": Decimal(0), kind: Decimal("1e-7")}
        assert Prices({"m": Price(**stated)}).tariff_of("command", "m") is None
    free = paid.tariff_of("command", "free")
    assert free is not None
    assert free.cost(Usage(MILLION, MILLION)) == 0
    assert paid.tariff_of("anthropic", "m") is not None
    assert "any number of times" in Prices().unknown_error("command", "m").message


@pytest.mark.parametrize(("pricing", "expected"), [("unbounded", "any number of times"), ("unknown", "is not known")])
def test_the_error_of_an_unknown_price_depends_on_the_pricing_of_a_provider(
    monkeypatch: pytest.MonkeyPatch, pricing: str, expected: str
) -> None:
    vendor(monkeypatch, pricing)
    assert expected in Prices().unknown_error("command", "m").message


def vendor(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the provider `command` be priced by a vendor's table, whatever adapters there are."""
    from orch23.providers import registry  # noqa: PLC0415  patched in place

    adapter = adapter_with("command", pricing=name)
    monkeypatch.setattr(registry, "ADAPTERS", {"command": adapter})


@pytest.mark.parametrize("model", ["tts-1", "omni-moderation-latest"])
def test_a_model_that_the_table_does_not_price_by_token_has_no_price(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    vendor(monkeypatch, "openai")
    assert Prices().tariff_of("command", model) is None


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("anthropic", "claude-sonnet-5-5"),
        ("anthropic", "claude-haiku-5-5"),
        ("anthropic", "claude-3-haiku-20240307"),
        ("openai", "gpt-5"),
        ("openai", "gpt-4o-mini"),
    ],
)
@pytest.mark.parametrize("size", [10, 100_000, 100_001, 300_000])
def test_the_table_s_prices_are_what_the_table_itself_makes_of_them(
    monkeypatch: pytest.MonkeyPatch, name: str, model: str, size: int
) -> None:
    import genai_prices  # noqa: PLC0415 - heavy

    vendor(monkeypatch, name)
    tariff = Prices().tariff_of("command", model)
    assert tariff is not None
    ours = tariff.cost(Usage(size, 70, cache_read_tokens=4, cache_write_tokens=3))
    written = {"cache_write_tokens": 3} if name == "anthropic" else {}  # the other has no price for writing
    usage = genai_prices.Usage(input_tokens=size, output_tokens=70, cache_read_tokens=4, **written)
    assert ours == genai_prices.calc_price(usage, model, provider_id=name).total_price
    assert tariff.source == f"genai-prices {genai_prices.__version__}"


@pytest.mark.slow
def test_only_a_vendors_model_loads_the_price_table() -> None:
    script = (
        "import sys; from orch23.providers.prices import Prices;"
        "Prices().tariff_of('command', 'm'); Prices().tariff_of('local', 'm');"
        "sys.exit(any(name.partition('.')[0] in ('genai_prices', 'pydantic', 'anthropic') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_reading_the_table_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor(monkeypatch, "anthropic")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Prices().tariff_of("command", "claude-opus-5-5") is not None


# ---- what it costs ----------------------------------------------------------------------------------


def test_cached_tokens_are_part_of_all_input_and_have_prices_of_their_own() -> None:
    tariff = flat("10", "100", "1", "20")
    assert tariff.cost(Usage(1000, 10, cache_read_tokens=600, cache_write_tokens=300)) == Decimal(
        100 * 10 + 600 * 1 + 300 * 20 + 10 * 100
    ) / Decimal(MILLION)


def test_what_is_kept_for_an_hour_has_a_price_of_its_own() -> None:
    tariff = replace(flat("10", "0", "1", "20"), cache_write_1h=((-1, Decimal(40)),))
    usage = Usage(1000, 0, cache_read_tokens=500, cache_write_tokens=300, cache_write_1h_tokens=100)
    assert tariff.cost(usage) == Decimal(200 * 10 + 500 * 1 + 200 * 20 + 100 * 40) / MILLION
    assert replace(tariff, cache_write_1h=None).cost(usage) == Decimal(200 * 10 + 500 * 1 + 300 * 20) / MILLION


@pytest.mark.needs("vendors")
@pytest.mark.parametrize("model", ["claude-opus-5", "claude-sonnet-5-5", "claude-haiku-5-5"])
def test_an_hour_costs_twice_the_price_of_input(model: str) -> None:
    tariff = Prices().tariff_of("anthropic", model)
    assert tariff is not None
    written = tariff.cost(Usage(1000, 0, cache_write_tokens=1000, cache_write_1h_tokens=1000))
    assert written == 2 * tariff.cost(Usage(1000, 0))


def test_a_stated_price_that_does_not_name_an_hour_is_not_too_low() -> None:
    own = {"claude-opus-5": Price(input=Decimal(1), output=Decimal(1), cache_write=Decimal("1.25"))}
    tariff = Prices(own).tariff_of("anthropic", "claude-opus-5")
    assert tariff is not None
    assert tariff.cost(Usage(MILLION, 0, cache_write_tokens=MILLION, cache_write_1h_tokens=MILLION)) == 2
    assert tariff.cost(Usage(MILLION, 0, cache_write_tokens=MILLION)) == Decimal("1.25")


def test_a_count_that_makes_no_sense_never_lowers_a_price() -> None:
    assert flat("10", "0").cost(Usage(5, 0, cache_read_tokens=50)) == Decimal(500) / MILLION


def test_a_long_request_pays_the_price_of_long_ones_for_all_of_its_tokens() -> None:
    steps = ((-1, Decimal(1)), (100, Decimal(5)))
    tariff = replace(flat("1", "1"), input=steps, output=steps)
    assert tariff.cost(Usage(100, 1)) == Decimal(101) / MILLION
    assert tariff.cost(Usage(101, 1)) == Decimal(510) / MILLION


@pytest.mark.parametrize(
    ("amount", "text"), [("0E-7", "0"), ("1E+2", "100"), ("0.0120", "0.012"), ("1E-9", "0.000000001")]
)
def test_an_amount_is_written_exactly_and_without_an_exponent(amount: str, text: str) -> None:
    assert decimal_text(Decimal(amount)) == text


# ---- the most that it can cost ----------------------------------------------------------------------


@given(text=st.text(max_size=300), system=st.text(max_size=80))
def test_the_worst_case_has_more_tokens_than_the_text_has_bytes(text: str, system: str) -> None:
    worst = worst_case(request(text, system=system, max_tokens=100), flat("1", "1"))
    size = len((text + system).encode("utf-8", "surrogatepass"))
    assert worst.tokens > size + 100
    assert worst.cost is not None
    assert worst.cost > Decimal(size + 100) / MILLION


def test_a_schema_that_is_sent_counts() -> None:
    bare, with_schema = request(), request(schema={"type": "object", "description": "x" * 500})
    assert worst_case(with_schema, None).tokens > worst_case(bare, None).tokens + 500


@given(
    usage=st.tuples(st.integers(0, 200_000), st.floats(0, 1), st.floats(0, 1), st.integers(0, 5000)),
    rates=st.lists(st.integers(0, 100), min_size=10, max_size=10),
)
def test_no_usage_within_the_bounds_costs_more_than_the_worst_case(
    usage: tuple[int, float, float, int], rates: list[int]
) -> None:
    steps = [((-1, Decimal(rates[i])), (100_000, Decimal(rates[i + 5]))) for i in range(5)]
    tariff = Tariff(input=steps[0], output=steps[1], cache_read=steps[2], cache_write=steps[3], source="test")
    hour = replace(tariff, cache_write_1h=steps[4])
    asked, read_part, write_part, answered = usage
    read = int(asked * read_part)
    took = Usage(asked, answered, read, int((asked - read) * write_part))
    assert tariff.cost(took) <= tariff.max_cost(200_000, 5000)
    lasting = replace(took, cache_write_1h_tokens=took.cache_write_tokens // 2)
    assert hour.cost(lasting) <= hour.max_cost(200_000, 5000, lasting=True)


def test_only_a_request_that_writes_for_an_hour_reserves_the_price_of_an_hour() -> None:
    tariff = replace(flat("10", "0", "1", "12.5"), cache_write_1h=((-1, Decimal(20)),))
    bare, minutes, hour = (
        worst_case(replace(request(), cache=cache), tariff).cost
        for cache in (None, CachePolicy(), CachePolicy(ttl="1h"))
    )
    assert bare is not None
    assert (minutes, hour) == (bare, bare * 20 / Decimal("12.5"))


def test_without_a_token_limit_the_worst_case_is_not_known() -> None:
    assert worst_case(request(max_tokens=None), flat("1", "1")).cost is None
    assert worst_case(request(max_tokens=None), FREE_TARIFF).cost == 0
    assert worst_case(request(), None).cost is None


# ---- said before the first stage ----------------------------------------------------------------------


def test_a_step_without_a_price_is_named_with_a_hint() -> None:
    step = LLMStep(provider="openai", model="mine", prompt="p")
    pipeline = Pipeline(name="p", file="pipeline.yaml", stages=())
    found = unpriced_error(step, pipeline)
    assert found is not None
    assert (found.code, "mine" in found.message, "prices:" in (found.hint or "")) == ("E424", True, True)
    priced = replace(pipeline, prices={"mine": Price(input=Decimal(1), output=Decimal(1))})
    assert unpriced_error(step, priced) is None
    dearer = unpriced_error(replace(step, model="dearer"), priced)
    assert dearer is not None
    assert "dearer" in dearer.message


@pytest.mark.slow
def test_the_table_is_searched_once_for_a_model() -> None:
    known = Prices().tariff_of("anthropic", "claude-sonnet-4-5")
    assert known is not None
    assert Prices().tariff_of("anthropic", "claude-sonnet-4-5") is known
