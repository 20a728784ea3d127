"""What a stage may take is said from what is known, a bound is a bound, and the rest is None."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.attempt.estimate import EstimateBasis, estimate, possible_calls
from orch23.model.digest import Json
from orch23.model.llm import Exchange, Message, OnTruncated, Request, Usage
from orch23.model.pipeline import Foreach, ForeachStage, Price, Retry, Stage, StopConditions
from orch23.model.plan import Blocked, CallRange, Decision, Edited, Expand, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Record
from orch23.providers.prices import Prices, Tariff, worst_case
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep
from orch23.store.history import StageStatistics

pytestmark = pytest.mark.needs("vendors")

ZERO = Decimal(0)
MILLION = Decimal(1_000_000)
OWN = {"big": Price(input=MILLION, output=10 * MILLION), "huge": Price(input=10 * MILLION, output=100 * MILLION)}
tariff = Prices(OWN).tariff_of
"""A token costs 1 dollar in and 10 out at `big`, ten times as much at `huge`; `local` is free, others are unknown."""
RECORD = Record(stage="code", key="k", manifest={})
STEP = LLMStep(provider="anthropic", model="big", prompt="p", max_tokens=1000)
CODE = Stage(name="code", step=STEP, retry=Retry(max=3))
PARAMS: dict[str, Json] = {"max_tokens": 1000}
PROMPT = (Message("user", "x" * 41),)
REQUEST = Request(
    provider="anthropic", model="big", endpoint="", system="s" * 10, messages=PROMPT, identity=PROMPT, params=PARAMS
)
FIRST = worst_case(REQUEST, tariff("anthropic", "big")).cost or ZERO
LATER = FIRST + 20_000 + 4_000 + 16  # with the answer before and a brief
PAST = StageStatistics(durations_s=(3.0, 9.0, 4.0), tokens=((100, 20), (120, 40), (110, 30)))
REPORTED = Exchange(fingerprint="f", stage="code", request={}, response="", usage=Usage(90, 10), cost="0.5")


def each(body: dict[str, Json], kind: Any = "llm") -> ForeachStage:
    return ForeachStage(name="each", foreach=Foreach(source="l.json"), kind=kind, body=body)


def no_price(provider: str, model: str, _pace: str) -> Tariff | None:
    raise AssertionError((provider, model))


def ground(decision: Decision, node: Stage | ForeachStage = CODE, **more: Any) -> EstimateBasis:
    return EstimateBasis(node=node, decision=decision, **more)


@pytest.mark.parametrize(
    ("decision", "recorded", "calls"),
    [
        (Run(()), 0, CallRange(1, 4)),
        (Run(()), 1, CallRange(0, 3)),
        (Run(()), 4, CallRange(0, 0)),
        (Run(()), 5, CallRange(0, 0)),
        (VerifyOnly(RECORD, ()), 0, CallRange(0, 4)),
        (Maybe(("a",)), 0, CallRange(0, 4)),
        (Fresh(RECORD), 0, CallRange()),
        (Restore(RECORD, ()), 0, CallRange()),
        (Blocked(("a",)), 0, CallRange()),
        (Edited(("x",)), 0, CallRange()),
    ],
)
def test_calls_are_counted_from_least_to_most(decision: Decision, recorded: int, calls: CallRange) -> None:
    assert possible_calls(CODE, decision, recorded=recorded) == calls


def test_a_truncated_response_is_requested_again_within_its_attempt() -> None:
    step = replace(STEP, on_truncated=OnTruncated(retries=1))
    assert possible_calls(replace(CODE, step=step), Run(())) == CallRange(1, 8)


def test_a_limit_of_the_stage_bounds_its_calls_and_its_dollars() -> None:
    stage = replace(CODE, stop=StopConditions(max_llm_calls=2, max_cost_usd=Decimal("1.5")))
    assert possible_calls(stage, Run(())) == CallRange(1, 2)
    assert estimate(ground(Run(()), stage, request=REQUEST), tariff).most_cost == Decimal("1.5")


def test_the_calls_of_a_list_that_is_not_known_are_those_of_its_last_items_and_of_new_ones() -> None:
    node = each({"llm": {"provider": "local", "model": "tiny"}, "retry": {"max": 2}})
    assert possible_calls(node, Expand((), 2)) == CallRange(0, 6, has_new_items=True)
    assert possible_calls(node, Expand((), 0)) == CallRange(0, None, has_new_items=True)
    assert possible_calls(each({"llm": {}, "retry": 1}), Expand((), 2)) == CallRange(0, 4, has_new_items=True)
    assert possible_calls(each({"llm": {}}), Expand((), 2)) == CallRange(0, 2, has_new_items=True)
    more: dict[str, Json] = {"llm": {"on_truncated": {"retries": 2}}}
    assert possible_calls(each(more), Expand((), 2)) == CallRange(0, 6, has_new_items=True)
    assert possible_calls(each({"shell": "x"}, "shell"), Expand((), 2)) == CallRange()


def test_a_first_run_knows_its_input_and_a_bound_and_no_more() -> None:
    found = estimate(ground(Run(()), request=REQUEST), tariff)
    assert (found.input_tokens, found.output_tokens, found.responses) == (13, None, 0)  # 51 characters, rounded up
    assert (found.price, found.least_cost, found.likely_cost) == ("known", None, None)
    assert found.duration_s is None
    assert found.most_cost == FIRST + 3 * LATER


def test_earlier_responses_show_how_much_a_model_writes() -> None:
    found = estimate(ground(Run(()), request=REQUEST, past=PAST), tariff)
    assert (found.input_tokens, found.output_tokens, found.responses) == (13, 30, 3)
    assert found.least_cost == found.likely_cost == 13 + 300
    assert (found.duration_s, found.runs) == (4.0, 3)


def test_what_may_not_run_costs_nothing_at_least() -> None:
    found = estimate(ground(Maybe(("a",)), request=REQUEST, past=PAST), tariff)
    assert (found.least_cost, found.likely_cost) == (ZERO, Decimal(313))


def test_a_request_that_cannot_be_made_yet_is_taken_from_earlier_ones() -> None:
    found = estimate(ground(Maybe(("a",)), past=PAST), tariff)
    assert (found.input_tokens, found.output_tokens, found.most_cost) == (110, 30, None)
    nothing = estimate(ground(Maybe(("a",))), tariff)
    assert (nothing.input_tokens, nothing.output_tokens, nothing.likely_cost) == (None, None, None)


def test_a_recorded_first_response_costs_nothing_and_saves_what_it_had_cost() -> None:
    found = estimate(ground(Run(()), request=REQUEST, recorded=(REPORTED,), past=PAST), tariff)
    assert (found.calls, found.least_cost, found.likely_cost) == (CallRange(0, 3), ZERO, ZERO)
    assert (found.input_tokens, found.output_tokens) == (0, 0)
    assert (found.saved_calls, found.saved_cost) == (1, Decimal("0.5"))
    cut_off = estimate(ground(Run(()), recorded=(REPORTED, REPORTED)), tariff)
    assert (cut_off.saved_calls, cut_off.saved_cost) == (2, Decimal(1))
    assert found.most_cost  # its tests may fail, and then somebody is asked
    all_of_them = estimate(ground(Run(()), recorded=(REPORTED,) * 4), tariff)
    assert (all_of_them.calls, all_of_them.saved_calls) == (CallRange(0, 0), 4)
    assert estimate(ground(Run(()), recorded=(REPORTED, replace(REPORTED, cost=None))), tariff).saved_cost is None


def test_a_verification_asks_only_after_it_failed() -> None:
    found = estimate(ground(VerifyOnly(RECORD, ()), request=REQUEST, past=PAST), tariff)
    assert (found.least_cost, found.likely_cost, found.input_tokens) == (ZERO, ZERO, 0)
    assert found.most_cost


def test_the_upper_bound_counts_dearer_models_of_later_attempts_and_truncated_responses() -> None:
    stage = replace(CODE, retry=Retry(max=1, escalate=("big", "huge")))
    assert estimate(ground(Run(()), stage, request=REQUEST), tariff).most_cost == FIRST + 10 * LATER
    cut = replace(CODE, retry=Retry(), step=replace(STEP, on_truncated=OnTruncated(retries=1, factor=2)))
    assert estimate(ground(Run(()), cut, request=REQUEST), tariff).most_cost == FIRST + FIRST + 10 * 1000


def test_an_unknown_price_is_unknown_and_never_zero() -> None:
    stage = replace(CODE, step=replace(STEP, model="strange"))
    found = estimate(ground(Run(()), stage, request=REQUEST, past=PAST), tariff)
    assert (found.price, found.least_cost, found.likely_cost, found.most_cost) == ("unknown", None, None, None)
    dear = replace(CODE, retry=Retry(max=1, escalate=("big", "strange")))
    assert estimate(ground(Run(()), dear, request=REQUEST), tariff).most_cost is None


@pytest.mark.needs("local")
def test_what_is_free_is_known_to_be() -> None:
    stage = replace(CODE, step=replace(STEP, provider="local", model="tiny"))
    found = estimate(ground(Run(()), stage, request=REQUEST), tariff)
    assert (found.price, found.most_cost) == ("free", ZERO)


def test_items_that_are_not_known_yet_are_taken_as_the_last_ones() -> None:
    node = each({"llm": {"provider": "anthropic", "model": "big"}})
    found = estimate(ground(Expand(("a",), 4), node, past=PAST), tariff)
    assert (found.input_tokens, found.output_tokens, found.likely_cost) == (440, 120, Decimal(4 * (110 + 300)))
    assert (found.duration_s, found.most_cost, found.least_cost) == (16.0, None, ZERO)
    unknown = estimate(ground(Expand(("a",), 0), node, past=PAST), tariff)
    assert (unknown.input_tokens, unknown.duration_s, unknown.likely_cost) == (None, None, None)


def test_no_price_is_looked_up_if_no_model_is_called() -> None:
    shell = Stage(name="s", step=ShellStep("x"))
    found = estimate(ground(Run(()), shell, past=PAST), no_price)
    assert (found.price, found.duration_s, found.may_call) == ("none", 4.0, False)
    assert estimate(ground(Fresh(RECORD), request=REQUEST), no_price).price == "none"


def test_a_schema_that_is_sent_is_part_of_the_input() -> None:
    with_schema = replace(REQUEST, schema={"type": "object", "additionalProperties": False})
    found = estimate(ground(Run(()), request=with_schema), tariff)
    assert found.input_tokens is not None
    assert found.input_tokens > 13 + 10
