"""The budget that all builds of one `watch` share."""

from decimal import Decimal

import pytest

from orch23.cli.watched_build import SharedBudget
from orch23.model.event_data import UsageTotals


def used(cost: str, possible: str = "0") -> UsageTotals:
    return UsageTotals(calls=1, cost=Decimal(cost), possible_cost=Decimal(possible))


def test_each_build_gets_what_the_builds_before_have_left() -> None:
    budget = SharedBudget(Decimal("2.50"))
    assert budget.begin(Decimal(9))
    assert budget.of_build(()) == Decimal("2.50")
    assert not budget.end(used("1", "0.25"), was_refused=False)
    assert budget.begin(None)
    assert budget.of_build(()) == Decimal("1.25")
    # A ledger counts what interrupted runs have spent: those of this `watch` must not count twice.
    assert budget.of_build([used("1", "0.25")]) == Decimal("2.50")
    assert budget.end(used("1.25"), was_refused=False)
    assert not budget.begin(None)


def test_a_limit_that_refused_a_request_is_used_up_until_it_is_raised() -> None:
    budget = SharedBudget()
    assert budget.begin(Decimal(2))
    assert budget.end(used("1.50"), was_refused=True)
    assert not budget.begin(Decimal(2))
    assert not budget.begin(Decimal("1.75"))
    assert budget.begin(Decimal(3))
    assert budget.of_build(()) == Decimal("1.50")
    assert budget.begin(None)
    assert budget.of_build(()) is None


def test_without_a_limit_nothing_is_used_up() -> None:
    budget = SharedBudget()
    assert budget.begin(None)
    # Another limit, such as that of calls, has stopped the build.
    assert not budget.end(used("100"), was_refused=True)
    assert budget.begin(None)


@pytest.mark.parametrize(
    ("given", "cost", "way"),
    [
        (Decimal("2.50"), "1", "start `orch23 watch` again with a higher --budget"),
        (None, "1", "raise stop_conditions.max_cost_usd of the pipeline"),
        (None, "3", "at least $3.00), or lower llm.max_tokens: this request alone is too much"),
    ],
)
def test_the_error_names_the_shared_limit_and_how_to_raise_it(given: Decimal | None, cost: str, way: str) -> None:
    budget = SharedBudget(given)
    budget.begin(Decimal("2.50"))
    budget.end(used("1.50"), was_refused=False)
    budget.begin(Decimal("2.50"))
    refused = budget.refusal(used("0.25", "0.10"), Decimal(cost))
    assert refused.code == "E502"
    assert "may spend $2.50 together, $1.75 is spent, at most $0.10 more, and the next" in refused.message
    assert f"could cost ${cost}.00" in refused.message
    assert way in (refused.hint or "")
