"""The transport policy: which faults are tried again, which are waited out, and that no deadline is overrun."""

import math
from typing import Any

import msgspec
import pytest

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, LimitError, ProviderError
from orch23.model.event import Event
from orch23.model.llm import Message, Request, Response
from orch23.providers.faults import TransportError
from orch23.providers.rate_limiter import RateLimiter
from orch23.providers.retries import RetryingProvider
from tests.doubles import FakeClock

REQUEST = Request(provider="p", model="m", endpoint="e", system="", messages=(Message("user", "x"),), identity=())
WALL = Diagnostic("E504", "the stage exceeded max_wall, which is 30.0s", hint="raise it", subject="code")


class Line:
    """A provider that gives its outcomes in order, each after some seconds, on a clock that sleeping moves.

    Its last outcome stays. `slept` are delays between tries, `paused` waits for the rate limit.
    """

    def __init__(self, *outcomes, takes_s: float = 0.0, random: float = 0.5, rates: Any = None) -> None:
        self.outcomes: list[Response | Exception] = list(outcomes)
        self.takes_s = takes_s
        self.clock = FakeClock()
        self.deadlines: list[float] = []
        self.slept: list[float] = []
        self.paused: list[float] = []
        self.events: list[Event] = []
        self.random = lambda: random
        self.wall_s: float | None = None
        self.patience_s: float | None = None
        self.limiter = RateLimiter(
            rates=rates or {}, clock=self.clock.monotonic, random=self.random, pause=lambda _, s: self.pause(s)
        )

    def complete(self, request, deadline_s, on_text) -> Response:
        self.deadlines.append(deadline_s)
        self.clock.tick(self.takes_s)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.tick(seconds)

    def pause(self, seconds: float) -> None:
        assert seconds > 0, "a busy loop"
        self.paused.append(seconds)
        self.clock.tick(seconds)

    def wall(self) -> tuple[float, bool]:
        if self.wall_s is not None and self.wall_s <= self.clock.monotonic():
            raise LimitError(WALL)
        left_s = math.inf if self.wall_s is None else self.wall_s - self.clock.monotonic()
        return left_s, self.wall_s is not None

    def ask(self, deadline_s: float = 600.0) -> Response:
        transport = RetryingProvider(
            inner=self,
            stage="code",
            emit=self.events.append,
            limiter=self.limiter,
            wall=self.wall,
            patience=lambda _request: self.patience_s,
            sleep=self.sleep,
            clock=self.clock.monotonic,
            random=self.random,
        )
        return transport.complete(REQUEST, deadline_s, lambda _received: None)


def fault(
    code="E417", *, transient=True, status: int | None = 500, retry_after_s=None, charged=False
) -> TransportError:
    diagnostic = Diagnostic(code, "it says no", hint="wait")
    return TransportError(diagnostic, transient=transient, status=status, retry_after_s=retry_after_s, charged=charged)


def full(retry_after_s: float | None = None, status: int = 429, *, charged=False) -> TransportError:
    code = "E416" if status == 429 else "E417"
    return fault(code, status=status, retry_after_s=retry_after_s, charged=charged)


def refused(line: Line, deadline_s: float = 600.0) -> Diagnostic:
    with pytest.raises(ProviderError) as caught:
        line.ask(deadline_s)
    assert caught.value.exit_code is ExitCode.PROVIDER
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def events_of(line: Line, kind: str) -> list[Event]:
    return [event for event in line.events if event.type == kind]


def test_an_immediate_response_is_one_request_and_no_event() -> None:
    line = Line(Response(text="hi"))
    assert line.ask() == Response(text="hi", requests=1)
    assert (line.slept, line.paused, line.events) == ([], [], [])


# ---- tries ----------------------------------------------------------------------------------------


def test_two_transient_errors_are_retried_and_the_response_counts_the_requests() -> None:
    line = Line(fault(), fault(status=502), Response(text="hi"))
    assert line.ask() == Response(text="hi", requests=3)
    assert line.slept == [1.0, 4.0]


def test_requests_that_the_adapter_made_itself_are_counted_too() -> None:
    assert Line(fault(), Response(text="hi", requests=5)).ask().requests == 6


def test_delays_have_jitter_so_that_stages_do_not_try_again_together() -> None:
    for random, slept in ((0.0, [0.5, 2.0]), (1.0, [1.5, 6.0])):
        line = Line(fault(), fault(), Response(text="hi"), random=random)
        line.ask()
        assert line.slept == slept


def test_each_retry_is_reported_with_its_cause() -> None:
    line = Line(fault(), fault(status=504, retry_after_s=2.5), Response(text="hi"))
    line.ask()
    assert [(e.type, e.role, e.level) for e in line.events] == [("http_retry", "code", "warning")] * 2
    assert [e.facts() for e in line.events] == [
        {"status": 500, "code": "E417", "delay_s": 1.0, "try": 2},
        {"status": 504, "code": "E417", "delay_s": 2.5, "try": 3},
    ]


@pytest.mark.parametrize("code", ["E417", "E419", "E420"])
def test_after_three_tries_the_last_error_is_reported_with_its_code_and_the_number(code: str) -> None:
    line = Line(fault(), fault(), fault(code, status=None))
    diagnostic = refused(line)
    assert (diagnostic.code, diagnostic.message, diagnostic.hint) == (code, "it says no (after 3 tries)", "wait")
    assert len(line.deadlines) == 3
    assert len(line.events) == 2


def test_a_charged_overload_is_a_try_since_each_one_may_cost_money() -> None:
    line = Line(full(status=529, charged=True))
    assert refused(line).message == "it says no (after 3 tries)"
    assert len(line.deadlines) == 3


def test_a_fault_that_stays_is_not_tried_again() -> None:
    line = Line(fault("E414", transient=False, status=401))
    assert refused(line).message == "it says no"
    assert (len(line.deadlines), line.slept, line.events) == (1, [], [])


def test_an_empty_account_is_not_called_again_although_it_is_a_429() -> None:
    line = Line(fault("E427", transient=False, status=429))
    assert refused(line).code == "E427"
    assert (len(line.deadlines), line.slept, line.paused) == (1, [], [])


def test_the_delay_is_the_one_of_the_server() -> None:
    line = Line(fault(retry_after_s=17.0), fault(retry_after_s=0.5), Response(text="hi"))
    line.ask()
    assert line.slept == [17.0, 0.5]


def test_after_an_error_sixty_seconds_are_waited_and_no_more() -> None:
    line = Line(fault(retry_after_s=60.0), Response(text="hi"))
    assert line.ask().requests == 2
    line = Line(fault(retry_after_s=3600.0))
    diagnostic = refused(line, deadline_s=7200.0)
    assert diagnostic.code == "E418"
    assert "1h 00m" in diagnostic.message
    assert "1m 00s" in diagnostic.message
    assert (line.slept, line.events) == ([], [])


def test_a_delay_beyond_the_deadline_is_not_begun() -> None:
    line = Line(fault(retry_after_s=20.0), takes_s=5.0)
    diagnostic = refused(line, deadline_s=20.0)
    assert (diagnostic.code, line.slept) == ("E418", [])
    assert "20.0s" in diagnostic.message
    assert "the 15.0s that `llm.timeout` leaves" in diagnostic.message


def test_a_delay_of_ours_beyond_the_deadline_ends_in_the_fault_itself() -> None:
    line = Line(fault(), takes_s=1.0)
    diagnostic = refused(line, deadline_s=5.0)
    assert (diagnostic.code, diagnostic.message) == ("E417", "it says no (after 2 tries)")
    assert line.slept == [1.0]


def test_one_deadline_holds_over_all_tries() -> None:
    line = Line(fault(), fault(), Response(text="hi"), takes_s=10.0)
    line.ask(deadline_s=100.0)
    assert line.deadlines == [100.0, 89.0, 75.0]


def test_a_sleep_that_took_too_long_ends_in_a_timeout_without_a_retry() -> None:
    line = Line(fault())
    line.sleep = lambda seconds: line.clock.tick(50.0)  # type: ignore[method-assign]  # the machine was suspended
    diagnostic = refused(line, deadline_s=30.0)
    assert diagnostic.code == "E402"
    assert len(line.deadlines) == 1


def test_what_is_no_fault_of_the_transport_passes() -> None:
    limit = LimitError(Diagnostic("E501", "no money"))
    with pytest.raises(LimitError):
        Line(fault(), limit).ask()
    with pytest.raises(ZeroDivisionError):
        Line(ZeroDivisionError()).ask()


def test_the_policy_is_what_the_documentation_says() -> None:
    usual = {f.name: f.default for f in msgspec.structs.fields(RetryingProvider)}
    assert usual["delays_s"] == (1.0, 4.0)
    assert usual["max_wait_s"] == 60.0


# ---- waits for the rate limit ---------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_refusal_is_not_a_try_and_the_wait_is_the_one_of_the_server(status: int) -> None:
    line = Line(*[full(5.0, status)] * 9, Response(text="hi"))
    assert line.ask() == Response(text="hi", requests=10)
    assert line.slept == []
    assert line.clock.monotonic() >= 9 * 5.0


def test_a_wait_does_not_count_against_the_timeout_of_the_call_nor_does_a_refused_request() -> None:
    line = Line(*[full(50.0)] * 9, Response(text="hi"), takes_s=4.0)
    line.ask(deadline_s=5.0)
    assert line.deadlines == [5.0] * 10
    line = Line(fault(), full(50.0), Response(text="hi"), takes_s=4.0)
    line.ask(deadline_s=20.0)
    assert line.deadlines == [20.0, 15.0, 15.0]


def test_after_refusals_an_error_still_has_three_tries() -> None:
    line = Line(full(1.0), fault(), full(1.0), full(1.0), fault(), fault())
    assert refused(line).message == "it says no (after 3 tries)"
    assert len(line.deadlines) == 6


def test_a_server_that_requires_no_wait_is_not_called_in_a_loop() -> None:
    line = Line(*[full(0.0)] * 20, Response(text="hi"))
    line.ask()
    assert line.clock.monotonic() > 5.0


def test_a_wait_ends_ten_minutes_after_the_last_response_of_the_model() -> None:
    line = Line(full())
    diagnostic = refused(line)
    assert 600.0 <= line.clock.monotonic() < 700.0
    assert diagnostic.code == "E416"
    for text in ("no response for 10m 00s", "the rate limit of p/m", "it waited 10m 00s", "it says no"):
        assert text in diagnostic.message
    for text in ("`rates`", "--jobs", "stop_conditions.max_wall"):
        assert text in (diagnostic.hint or "")
    assert len(line.deadlines) < 60
    line = Line(full(status=529))
    assert refused(line).code == "E417"


def test_a_response_of_the_model_to_another_stage_lets_the_wait_go_on() -> None:
    line = Line(full())
    other = line.limiter.enter(REQUEST)
    line.limiter.wait(other, 1.0)
    plain = line.pause

    def pause(seconds: float) -> None:
        plain(seconds)
        if line.clock.monotonic() < 1000.0:
            line.limiter.hear(other, 200, {})

    line.pause = pause  # type: ignore[method-assign]
    refused(line)
    assert 1500.0 < line.clock.monotonic() < 1700.0


def test_a_wait_that_is_certainly_longer_than_ten_minutes_is_not_begun() -> None:
    line = Line(full(3600.0))
    diagnostic = refused(line, deadline_s=7200.0)
    assert diagnostic.code == "E418"
    assert "it says no" in diagnostic.message
    assert "1h 00m" in diagnostic.message
    assert "10m 00s that a build waits" in diagnostic.message
    assert (line.paused, line.events) == ([], [])


def test_a_limit_of_the_pipeline_that_is_certainly_too_slow_is_named() -> None:
    line = Line(Response(text="hi"), rates={"p": {"requests": (1, 3600.0)}})
    line.ask()
    diagnostic = refused(line)
    assert (diagnostic.code, len(line.deadlines)) == ("E418", 1)
    assert "1 requests/h, from `rates`, requires a wait of 1h 00m" in diagnostic.message


def test_max_wall_takes_the_place_of_the_ten_minutes() -> None:
    line = Line(full(3600.0), Response(text="hi"))
    line.wall_s = 4000.0
    assert line.ask().requests == 2
    line = Line(full(3600.0))
    line.wall_s = 3000.0
    diagnostic = refused(line)
    assert (diagnostic.code, line.paused) == ("E418", [])
    assert "50m 00s that `max_wall` leaves" in diagnostic.message


def test_a_request_with_a_fallback_waits_for_less_also_if_max_wall_is_later() -> None:
    for wall_s in (None, 4000.0):
        line = Line(full())
        line.wall_s, line.patience_s = wall_s, 60.0
        diagnostic = refused(line)
        assert 60.0 <= line.clock.monotonic() < 70.0
        assert "no response for 1m 00s" in diagnostic.message
    line = Line(full(90.0))
    line.wall_s, line.patience_s = 4000.0, 60.0
    assert "1m 00s that a build waits" in refused(line).message
    line = Line(full())
    line.wall_s, line.patience_s = 30.0, 60.0
    with pytest.raises(LimitError):
        line.ask()


def test_a_wait_that_max_wall_ends_says_what_it_waited_for_and_what_to_do() -> None:
    line = Line(full())
    line.wall_s = 30.0
    with pytest.raises(LimitError) as caught:
        line.ask()
    (diagnostic,) = caught.value.diagnostics
    assert 30.0 <= line.clock.monotonic() < 31.0
    assert (diagnostic.code, diagnostic.subject) == ("E504", "code")
    for text in ("max_wall, which is 30.0s", "waited 30.0s", "the rate limit of p/m", "it says no"):
        assert text in diagnostic.message
    assert "raise it" in (diagnostic.hint or "")
    assert "`rates`" in (diagnostic.hint or "")


def test_a_build_that_ends_ends_the_wait() -> None:
    line = Line(full())
    line.pause = lambda seconds: line.limiter.close()  # type: ignore[method-assign]
    assert "the build ended" in refused(line).message
    assert len(line.deadlines) == 1


def test_a_run_that_stops_lets_the_request_through_to_the_budget_that_refuses_it() -> None:
    line = Line(full(30.0), LimitError(Diagnostic("E501", "the run has stopped")))
    line.pause = lambda seconds: line.limiter.stop()  # type: ignore[method-assign]
    with pytest.raises(LimitError, match="the run has stopped"):
        line.ask()
    assert line.clock.monotonic() == 0.0


def test_a_long_wait_is_shown_once_and_a_short_one_is_not() -> None:
    line = Line(*[full(5.95)] * 4, Response(text="hi"))
    line.ask()
    (shown,) = events_of(line, "rate_limit_wait")
    assert (shown.role, shown.level) == ("code", "info")
    assert shown.message == "waits for the rate limit of p/m, 6.0s"
    assert shown.facts() == {"provider": "p", "model": "m", "wait_s": 5.95, "limit": "it says no"}
    assert len(events_of(line, "http_retry")) == 4
    line = Line(full(2.0), Response(text="hi"))
    line.ask()
    assert events_of(line, "rate_limit_wait") == []


def test_short_waits_are_shown_when_they_add_up() -> None:
    line = Line(*[full(1.0)] * 8, Response(text="hi"))
    line.ask()
    (shown,) = events_of(line, "rate_limit_wait")
    assert line.events.index(shown) > 2


def test_a_wait_for_a_limit_of_the_pipeline_is_shown_with_it() -> None:
    line = Line(Response(text="hi"), rates={"m": {"requests": (1, 60.0)}})
    line.ask()
    line.ask()
    (shown,) = line.events
    assert shown.facts()["limit"] == "1 requests/min, from `rates`"
    assert shown.message == "waits for the rate limit of p/m, 1m 00s"
    assert line.clock.monotonic() == pytest.approx(60.0)
