"""The transport policy: which faults are tried again, how long is waited, and that no deadline is overrun."""

import msgspec
import pytest

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, LimitError, ProviderError
from orch23.model.event import Event
from orch23.model.llm import Message, Request, Response
from orch23.providers import codes
from orch23.providers.faults import TransportError
from orch23.providers.middleware import RetryingProvider
from tests.doubles import FakeClock

REQUEST = Request(provider="p", model="m", endpoint="e", system="", messages=(Message("user", "x"),), identity=())


class Line:
    """A provider that gives its outcomes in order, each after some seconds, on a clock that sleeping moves."""

    def __init__(self, *outcomes, takes_s: float = 0.0) -> None:
        self.outcomes: list[Response | Exception] = list(outcomes)
        self.takes_s = takes_s
        self.clock = FakeClock()
        self.deadlines: list[float] = []
        self.slept: list[float] = []
        self.events: list[Event] = []

    def complete(self, request, deadline_s, on_text) -> Response:
        self.deadlines.append(deadline_s)
        self.clock.tick(self.takes_s)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.tick(seconds)

    def ask(self, deadline_s: float = 600.0) -> Response:
        transport = RetryingProvider(
            inner=self, stage="code", emit=self.events.append, sleep=self.sleep, clock=self.clock.monotonic
        )
        return transport.complete(REQUEST, deadline_s, lambda _received: None)


def fault(code=codes.OVERLOADED, *, transient=True, status=529, retry_after_s=None) -> TransportError:
    diagnostic = Diagnostic(code, "it says no", hint="wait")
    return TransportError(diagnostic, transient=transient, status=status, retry_after_s=retry_after_s)


def refused(line: Line, deadline_s: float = 600.0) -> Diagnostic:
    with pytest.raises(ProviderError) as caught:
        line.ask(deadline_s)
    assert caught.value.exit_code is ExitCode.PROVIDER
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def test_an_immediate_response_is_one_request_and_no_event() -> None:
    line = Line(Response(text="hi"))
    assert line.ask() == Response(text="hi", requests=1)
    assert (line.slept, line.events) == ([], [])


def test_two_transient_errors_are_retried_and_the_response_counts_the_requests() -> None:
    line = Line(fault(), fault(codes.RATE_LIMITED, status=429), Response(text="hi"))
    assert line.ask() == Response(text="hi", requests=3)
    assert line.slept == [1.0, 4.0]


def test_requests_that_the_adapter_made_itself_are_counted_too() -> None:
    assert Line(fault(), Response(text="hi", requests=5)).ask().requests == 6


def test_each_retry_is_reported_with_its_cause() -> None:
    line = Line(fault(), fault(codes.RATE_LIMITED, status=429, retry_after_s=2.5), Response(text="hi"))
    line.ask()
    assert [(e.type, e.role, e.level) for e in line.events] == [("http_retry", "code", "warning")] * 2
    assert [e.facts() for e in line.events] == [
        {"status": 529, "code": codes.OVERLOADED, "delay_s": 1.0, "try": 2},
        {"status": 429, "code": codes.RATE_LIMITED, "delay_s": 2.5, "try": 3},
    ]


@pytest.mark.parametrize("code", [codes.RATE_LIMITED, codes.OVERLOADED, codes.UNREACHABLE, codes.INCOMPLETE_RESPONSE])
def test_after_three_tries_the_last_error_is_reported_with_its_code_and_the_number(code: str) -> None:
    line = Line(fault(), fault(), fault(code))
    diagnostic = refused(line)
    assert (diagnostic.code, diagnostic.message, diagnostic.hint) == (code, "it says no (after 3 tries)", "wait")
    assert len(line.deadlines) == 3
    assert len(line.events) == 2


def test_a_fault_that_stays_is_not_tried_again() -> None:
    line = Line(fault(codes.REJECTED_KEY, transient=False, status=401))
    assert refused(line).message == "it says no"
    assert (len(line.deadlines), line.slept, line.events) == (1, [], [])


def test_the_wait_is_the_one_of_the_server() -> None:
    line = Line(fault(retry_after_s=17.0), fault(retry_after_s=0.5), Response(text="hi"))
    line.ask()
    assert line.slept == [17.0, 0.5]


def test_sixty_seconds_are_waited_and_no_more() -> None:
    line = Line(fault(retry_after_s=60.0), Response(text="hi"))
    assert line.ask().requests == 2
    line = Line(fault(codes.RATE_LIMITED, retry_after_s=3600.0))
    diagnostic = refused(line, deadline_s=7200.0)
    assert diagnostic.code == codes.WAIT_TOO_LONG
    assert "3600 s" in diagnostic.message
    assert "60 s" in diagnostic.message
    assert (line.slept, line.events) == ([], [])


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    line = Line(fault(retry_after_s=20.0), takes_s=5.0)
    diagnostic = refused(line, deadline_s=20.0)
    assert (diagnostic.code, line.slept) == (codes.WAIT_TOO_LONG, [])
    assert "20 s" in diagnostic.message
    assert "the 15 s that `llm.timeout` leaves" in diagnostic.message


def test_a_delay_of_ours_beyond_the_deadline_ends_in_the_fault_itself() -> None:
    line = Line(fault(), fault(), takes_s=1.0)
    diagnostic = refused(line, deadline_s=5.0)
    assert (diagnostic.code, diagnostic.message) == (codes.OVERLOADED, "it says no (after 2 tries)")
    assert line.slept == [1.0]


def test_one_deadline_holds_over_all_tries() -> None:
    line = Line(fault(), fault(), Response(text="hi"), takes_s=10.0)
    line.ask(deadline_s=100.0)
    assert line.deadlines == [100.0, 89.0, 75.0]


def test_a_sleep_that_took_too_long_ends_in_a_timeout_without_a_retry() -> None:
    line = Line(fault())
    line.sleep = lambda seconds: line.clock.tick(50.0)  # type: ignore[method-assign]  # the machine was suspended
    diagnostic = refused(line, deadline_s=30.0)
    assert diagnostic.code == codes.TIMED_OUT
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
