"""An outage is waited for once: then requests go to the fallback, and one at a time finds out whether it is over."""

from msgspec.structs import replace

from orch23.model.llm import Message, Request
from orch23.providers.retries import PATIENCE_S, PAUSE_S, PROBE_S, Outages
from tests.doubles import FakeClock

SAID = (Message("user", "hello"),)
REQUEST = Request(provider="p", model="m", endpoint="e", system="", messages=SAID, identity=SAID)


def test_a_model_is_down_from_an_error_to_the_next_response() -> None:
    outages = Outages(clock=FakeClock().monotonic)
    assert not outages.is_down(REQUEST)
    assert outages.patience_s(REQUEST) == PATIENCE_S
    outages.begin(REQUEST)
    assert outages.is_down(REQUEST)
    assert outages.patience_s(REQUEST) == PROBE_S
    others = [replace(REQUEST, **{name: "x"}) for name in ("provider", "model", "endpoint")]
    assert not any(map(outages.is_down, others))
    outages.end(REQUEST)
    assert not outages.is_down(REQUEST)
    assert outages.patience_s(REQUEST) == PATIENCE_S


def test_after_a_pause_one_request_finds_out() -> None:
    clock = FakeClock()
    outages = Outages(clock=clock.monotonic)
    outages.begin(REQUEST)
    clock.tick(PAUSE_S - 1)
    assert outages.is_down(REQUEST)
    clock.tick(1)
    assert [outages.is_down(REQUEST) for _ in range(3)] == [False, True, True]
    clock.tick(PAUSE_S)
    assert not outages.is_down(REQUEST)
