"""Reservations for requests in batches: they count, no one waits for them, and they are settled once."""

import pytest

from orch23.model.errors import LimitError
from orch23.model.event import RunFinished
from orch23.model.event_data import UsageTotals
from orch23.model.pipeline import StopConditions
from tests.unit.attempt.test_ledger import MOST, WAITING, Rig, limited, request


def parked(rig: Rig, stage: str = "a") -> None:
    rig.ledger.reserve(stage, request())
    rig.ledger.park(stage)


def test_no_request_waits_for_one_in_a_batch() -> None:
    rig = Rig(limited(cost=2 * MOST - 1))
    parked(rig)
    with pytest.raises(LimitError):  # at once: the batch may take a day
        rig.ledger.reserve("b", request(text="other"))
    assert rig.possible() == (MOST, str(MOST)), "the run may have to pay for it"


def test_the_stage_goes_on_with_its_reservation() -> None:
    rig = Rig(limited(calls=1, cost=MOST))
    parked(rig)
    rig.ledger.reserve("a", request())
    assert len(rig.reported("call_reserved")) == 1
    rig.answer("a", 7, 3)
    assert rig.spent() == (1, 10, "10")
    assert rig.possible() == (0, "0")


def test_another_stage_with_the_same_request_has_a_reservation_of_its_own() -> None:
    rig = Rig(limited(calls=1, cost=MOST))
    parked(rig)
    rig.ledger.reserve("b", request())
    rig.answer("b", 7, 3)
    assert [(role, cost) for role, _, _, cost in rig.reported("call_settled")] == [("a", "0"), ("b", "10")]
    assert rig.spent() == (1, 10, "10")


@pytest.mark.parametrize("earlier", [False, True])
def test_what_the_vendor_does_not_have_is_given_back(earlier: bool) -> None:
    former = {request().fingerprint(): WAITING}
    rig = Rig(before={"a": WAITING}, uncollected=former) if earlier else Rig(limited(cost=MOST))
    if not earlier:
        parked(rig)
    rig.ledger.release_parked(request().fingerprint(), "a", request())
    rig.ledger.release_parked(request().fingerprint(), "a", request())
    totals = rig.ledger.with_totals(RunFinished(status="ok"))
    assert (totals.calls, totals.possible_cost, totals.before.possible_cost) == (0, "0", "0")
    assert len(rig.reported("call_settled")) == 1
    rig.ledger.reserve("b", request())


def test_what_an_earlier_run_has_reserved_is_uncollected_until_it_is_settled() -> None:
    name = request().fingerprint()
    rig = Rig(before={"a": WAITING}, uncollected={name: WAITING})
    assert rig.ledger.is_uncollected(name)
    rig.ledger.reserve("a", request())
    assert not rig.ledger.is_uncollected(name)
    assert not Rig(before={"a": UsageTotals()}).ledger.is_uncollected(name)


def test_the_wall_time_of_a_stage_stops_while_its_request_is_in_a_batch() -> None:
    rig = Rig(stages={"a": StopConditions(max_wall_s=10.0)})
    rig.ledger.begin_attempt("a")
    rig.clock.now += 4
    parked(rig)
    rig.clock.now += 86_400
    rig.ledger.begin_attempt("a")
    assert rig.ledger.deadline_s("a", 600.0) == 6.0


def test_what_an_earlier_run_sent_in_a_batch_always_fits_once() -> None:
    rig = Rig(limited(cost=MOST - 1))
    rig.ledger.expect([request().fingerprint()])
    rig.ledger.reserve("a", request())
    rig.answer("a", 7, 3)
    assert rig.spent() == (1, 10, "10")
    with pytest.raises(LimitError):
        rig.ledger.reserve("a", request())


def test_what_was_sent_in_a_batch_is_settled_after_the_run_has_stopped() -> None:
    name = request().fingerprint()
    rig = Rig(before={"a": WAITING}, uncollected={name: WAITING})
    rig.ledger.expect([name])
    rig.ledger.close()
    rig.ledger.reserve("a", request())
    rig.answer("a", 7, 3)
    assert rig.spent() == (1, 10, "10")


def test_a_request_that_the_vendor_does_not_have_has_to_fit_again() -> None:
    rig = Rig(limited(cost=MOST - 1))
    rig.ledger.expect([request().fingerprint()])
    rig.ledger.release_parked(request().fingerprint(), "a", request())
    with pytest.raises(LimitError):
        rig.ledger.reserve("a", request())
