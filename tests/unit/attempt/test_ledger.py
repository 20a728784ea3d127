"""The counter of a run: never over a limit, whoever asks at once, and never too little of what may be charged."""

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.attempt.ledger import Ledger, StageLimitError
from orch23.attempt.process_runner import CancelledBuildError
from orch23.attempt.stage_outcomes import StageCost
from orch23.model.errors import ConfigurationError, ExitCode, LimitError
from orch23.model.event import CallReserved, Event, RunFinished
from orch23.model.event_data import RequestTotals, UsageTotals
from orch23.model.llm import Message, Request, Response, Usage
from orch23.model.pipeline import Price, StopConditions
from orch23.providers.prices import Prices, worst_case

UNLIMITED = StopConditions()
DOLLAR_A_TOKEN = Price(input=Decimal(1_000_000), output=Decimal(1_000_000))
SOON_S = 20.0  # for what happens at once, unless there is a deadlock


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A ledger with all that it was told and has told. A token costs a dollar; a request takes up to `most` dollars."""

    def __init__(
        self,
        limits: StopConditions = UNLIMITED,
        stages: Mapping[str, StopConditions] | None = None,
        *,
        before: Mapping[str, UsageTotals] | None = None,
        uncollected: Mapping[str, UsageTotals] | None = None,
        notice: Callable[[Event], None] | None = None,
        sync: Callable[[], None] = lambda: None,
        priced: bool = True,
    ) -> None:
        self.events: list[Event] = []
        self.clock = Clock()
        self.waiting = threading.Event()
        self.ledger = Ledger(
            limits=limits,
            limits_of=lambda name: (stages or {}).get(name, UNLIMITED),
            prices=lambda: Prices({"m": DOLLAR_A_TOKEN} if priced else {}),
            notice=notice or self.events.append,
            sync=sync,
            clock=self.clock,
            before=before or {},
            uncollected=uncollected or {},
        )

    def answer(self, stage: str, tokens_in: int, tokens_out: int = 1, **more: Any) -> Response:
        asked = request()
        response = replace(Response(text="x", usage=Usage(tokens_in, tokens_out)), **more)
        response = self.ledger.with_cost(asked, response)
        self.ledger.settle(stage, response)
        return response

    def reported(self, kind: str) -> list[tuple[str, Any, Any, Any]]:
        return [
            (e.role, e.facts()["calls"], e.facts()["tokens"], e.facts()["cost"]) for e in self.events if e.type == kind
        ]

    def spent(self) -> tuple[Any, Any, Any]:
        totals = self.ledger.with_totals(RunFinished(status="ok"))
        return totals.calls, totals.tokens, totals.cost

    def possible(self) -> tuple[int, str]:
        totals = self.ledger.with_totals(RunFinished(status="ok"))
        return totals.possible_tokens, totals.possible_cost


def request(max_tokens: int = 100, text: str = "hello") -> Request:
    message = Message("user", text)
    return Request(
        provider="openai",
        model="m",
        endpoint="e",
        system="",
        messages=(message,),
        identity=(message,),
        params={"max_tokens": max_tokens},
    )


MOST = worst_case(request(), None).tokens
"""What `request()` can take, in tokens and in dollars."""


def limited(calls: int | None = None, cost: int | None = None, tokens: int | None = None) -> StopConditions:
    amount = None if cost is None else Decimal(cost)
    return StopConditions(max_llm_calls=calls, max_cost_usd=amount, max_tokens=tokens)


def in_thread(action: Callable[[], object]) -> "threading.Thread":
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


# ---- reserving and settling ---------------------------------------------------------------------------


def test_the_worst_case_is_reported_before_a_call_and_the_truth_after_it() -> None:
    rig = Rig()
    rig.ledger.reserve("a", request())
    assert rig.reported("call_reserved") == [("a", 1, MOST, str(MOST))]
    (reserved,) = (event.data for event in rig.events if isinstance(event.data, CallReserved))
    assert (reserved.provider, reserved.model) == (request().provider, request().model) != ("", "")
    assert rig.reported("call_settled") == []
    response = rig.answer("a", 7, 3)
    assert (response.cost, response.prices) == ("10", "pipeline")
    assert rig.reported("call_settled") == [("a", 1, 10, "10")]
    assert rig.spent() == (1, 10, "10")
    assert all(event.facts()["fingerprint"] == request().fingerprint() for event in rig.events)


def test_what_was_not_charged_is_given_back_and_no_call() -> None:
    rig = Rig(limited(calls=1, cost=MOST))
    rig.ledger.reserve("a", request())
    rig.ledger.release("a")
    assert rig.reported("call_settled") == [("a", 0, 0, "0")]
    assert rig.events[-1].facts()["released"] is True
    rig.ledger.reserve("a", request())


def test_what_may_have_been_charged_counts_in_full() -> None:
    rig = Rig(limited(cost=MOST + 1))
    rig.ledger.reserve("a", request())
    rig.ledger.forfeit("a")
    assert rig.reported("call_settled") == [("a", 1, MOST, str(MOST))]
    assert rig.events[-1].facts()["forfeited"] is True
    assert rig.spent() == (1, 0, "0"), "it is not known to be spent"
    assert rig.possible() == (MOST, str(MOST))
    assert rig.ledger.cost_of("a") == StageCost(1, Decimal(0), Decimal(MOST))
    with pytest.raises(LimitError):
        rig.ledger.reserve("a", request())


def test_the_usage_of_an_unusable_response_is_what_it_cost() -> None:
    rig = Rig(limited(cost=MOST + 12))
    rig.ledger.reserve("a", request())
    rig.ledger.settle_unusable("a", Usage(7, 3))
    assert rig.reported("call_settled") == [("a", 1, 10, "10")]
    assert rig.events[-1].facts()["unusable"] is True
    assert rig.spent() == (1, 10, "10")
    assert rig.possible() == (0, "0")
    rig.ledger.reserve("a", request())


WAITING = UsageTotals(1, 0, Decimal(0), MOST, Decimal(MOST))


def test_the_response_of_an_interrupted_run_settles_the_reservation_of_that_run() -> None:
    rig = Rig(limited(calls=1, cost=MOST), before={"a": WAITING}, uncollected={request().fingerprint(): WAITING})
    rig.ledger.reserve("a", request())
    assert rig.events[-1].facts()["collects"] is True
    rig.answer("a", 7, 3)
    totals = rig.ledger.with_totals(RunFinished(status="ok"))
    assert (totals.calls, totals.cost, totals.possible_cost) == (1, "10", "0")
    assert totals.before == RequestTotals()
    with pytest.raises(LimitError):  # a second call is a call of its own
        rig.ledger.reserve("a", request())


def test_a_lost_response_of_an_interrupted_run_may_have_been_charged() -> None:
    rig = Rig(limited(cost=2 * MOST), before={"a": WAITING}, uncollected={request().fingerprint(): WAITING})
    rig.ledger.reserve("a", request())
    rig.ledger.forfeit("a")
    rig.ledger.reserve("a", request())
    assert rig.events[-1].facts()["collects"] is False
    rig.answer("a", 7, 3)
    assert rig.spent() == (2, 10, "10")
    assert rig.possible() == (MOST, str(MOST))
    with pytest.raises(LimitError):
        rig.ledger.reserve("b", request())


def test_a_reservation_that_has_become_larger_has_to_fit() -> None:
    less = UsageTotals(1, 0, Decimal(0), MOST, Decimal(MOST - 1))
    rig = Rig(limited(cost=MOST), before={"a": less}, uncollected={request().fingerprint(): less})
    with pytest.raises(LimitError):
        rig.ledger.reserve("a", request())


def test_forfeiting_what_is_settled_does_nothing() -> None:
    rig = Rig()
    rig.ledger.reserve("a", request())
    rig.answer("a", 1)
    rig.ledger.forfeit("a")
    rig.ledger.forfeit("never asked")
    assert rig.spent() == (1, 2, "2")


def test_more_than_was_reserved_is_counted_as_it_is_and_warned_of() -> None:
    rig = Rig(limited(cost=MOST + 5))
    rig.ledger.reserve("a", request())
    rig.answer("a", MOST + 4)
    assert rig.spent() == (1, MOST + 5, str(MOST + 5))
    (warning,) = [event for event in rig.events if event.type == "warning"]
    assert warning.level == "warning"
    assert f"{MOST + 5:,}" in warning.message


@pytest.mark.parametrize(("tokens_in", "tokens_out"), [(0, 0), (5, 0), (0, 5)])
def test_a_provider_that_counts_nothing_may_have_charged_the_whole_reservation(tokens_in: int, tokens_out: int) -> None:
    rig = Rig(limited(cost=2 * MOST))
    rig.ledger.reserve("a", request())
    response = rig.answer("a", tokens_in, tokens_out)
    assert response.cost == "0"
    assert f"at most ${MOST}: the provider counted no tokens" in response.prices
    assert rig.spent() == (1, 0, "0")
    totals = rig.ledger.with_totals(RunFinished(status="ok"))
    assert (totals.possible_tokens, totals.possible_cost) == (MOST, str(MOST))
    rig.ledger.reserve("a", request())
    rig.ledger.forfeit("a")
    with pytest.raises(LimitError):
        rig.ledger.reserve("a", request())


def test_an_empty_response_may_have_no_tokens() -> None:
    rig = Rig()
    rig.ledger.reserve("a", request())
    assert rig.answer("a", 5, 0, text="").cost == "5"


def test_a_free_provider_that_counts_nothing_took_nothing() -> None:
    rig = Rig()
    asked = replace(request(), provider="scripted", model="s")
    rig.ledger.reserve("a", asked)
    response = rig.ledger.with_cost(asked, Response(text="x"))
    rig.ledger.settle("a", response)
    assert (response.cost, response.prices) == ("0", "free")
    assert rig.spent() == (1, 0, "0")


def test_what_has_no_price_says_so() -> None:
    rig = Rig(priced=False)
    rig.ledger.reserve("a", request())
    assert rig.answer("a", 7, 3).cost is None
    assert rig.reported("call_reserved") == [("a", 1, MOST, None)]
    assert rig.reported("call_settled") == [("a", 1, 10, None)]
    assert rig.ledger.with_totals(RunFinished(status="ok")).unpriced == 1


@pytest.mark.parametrize("of_run", [True, False])
def test_what_has_no_price_is_refused_under_a_limit_of_cost(of_run: bool) -> None:
    limit = limited(cost=10**9)
    rig = Rig(limit, priced=False) if of_run else Rig(stages={"a": limit}, priced=False)
    with pytest.raises(ConfigurationError) as refused:
        rig.ledger.reserve("a", request())
    assert refused.value.diagnostics[0].code == "E424"
    assert rig.events == []


def test_a_reservation_that_cannot_be_written_down_is_none() -> None:
    def full_disk(_event: Event) -> None:
        raise OSError

    rig = Rig(limited(calls=1), notice=full_disk)
    for _ in range(2):
        with pytest.raises(OSError):
            rig.ledger.reserve("a", request())
    assert rig.spent() == (0, 0, "0")


@pytest.mark.parametrize("end", ["settle", "settle_unusable", "release", "forfeit", "uncounted"])
def test_a_reservation_and_its_end_are_durable_before_anyone_goes_on(end: str) -> None:
    durable: list[str] = []
    rig = Rig(sync=lambda: durable.extend(event.type for event in rig.events[len(durable) :]))
    rig.ledger.reserve("a", request())
    assert durable == ["call_reserved"]
    match end:
        case "settle":
            rig.answer("a", 10)
        case "uncounted":
            rig.ledger.settle("a", Response(text="x"))
        case "settle_unusable":
            rig.ledger.settle_unusable("a", Usage(10, 1))
        case _:
            getattr(rig.ledger, end)("a")
    assert durable == ["call_reserved", "call_settled"]


def test_other_calls_go_on_while_one_waits_for_the_disk() -> None:
    """Under the lock of the ledger no two threads could share a sync."""
    is_syncing, may_end = threading.Event(), threading.Event()

    def sync() -> None:
        if threading.current_thread() is not threading.main_thread():
            is_syncing.set()
            assert may_end.wait(SOON_S)

    rig = Rig(sync=sync)
    first = Waiter(rig.ledger, "a", request())
    assert is_syncing.wait(SOON_S)
    rig.ledger.reserve("b", request())
    rig.answer("b", 10)
    assert not first.is_done
    may_end.set()
    assert first.wait().error is None


def test_a_reservation_that_may_not_be_durable_counts_until_it_is_forfeited() -> None:
    def broken() -> None:
        raise OSError

    rig = Rig(sync=broken)
    with pytest.raises(OSError):
        rig.ledger.reserve("a", request())
    with pytest.raises(OSError):
        rig.ledger.forfeit("a")
    assert rig.possible() == (MOST, str(MOST))


# ---- limits of the run --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "code", "way_out"),
    [
        (limited(calls=1), "E501", "stop_conditions.max_llm_calls"),
        (limited(cost=MOST + 9), "E502", "--budget"),
        (limited(tokens=MOST + 9), "E503", "stop_conditions.max_tokens"),
    ],
)
def test_a_request_over_a_limit_of_the_run_is_refused_with_the_way_out(
    limits: StopConditions, code: str, way_out: str
) -> None:
    rig = Rig(limits)
    rig.ledger.reserve("a", request())
    rig.answer("a", 8, 2)
    with pytest.raises(LimitError) as refused:
        rig.ledger.reserve("b", request())
    (problem,) = refused.value.diagnostics
    assert not isinstance(refused.value, StageLimitError)
    assert problem.code == code
    assert way_out in (problem.hint or "")
    assert "the next build continues" in (problem.hint or "")
    if code != "E501":
        assert f"{MOST:,}" in problem.message.replace(f"${MOST}", f"{MOST:,}"), "what it could take"
        assert "10" in problem.message, "what is spent"
    assert len(rig.reported("call_reserved")) == 1


def test_what_fits_exactly_is_sent() -> None:
    rig = Rig(limited(calls=1, cost=MOST, tokens=MOST))
    rig.ledger.reserve("a", request())


@pytest.mark.parametrize("limits", [limited(cost=MOST - 1), limited(tokens=MOST - 1)])
def test_a_request_that_is_too_much_alone_says_what_it_would_need(limits: StopConditions) -> None:
    with pytest.raises(LimitError) as refused:
        Rig(limits).ledger.reserve("a", request())
    hint = refused.value.diagnostics[0].hint or ""
    assert str(MOST) in hint.replace(",", "")
    assert "max_tokens" in hint


def test_an_interrupted_run_goes_on_with_what_was_left() -> None:
    before = {"x": UsageTotals(1, 2, Decimal(3)), "gone": UsageTotals(1, 5, Decimal(6))}
    with pytest.raises(LimitError):
        Rig(limited(calls=2), before=before).ledger.reserve("x", request())
    with pytest.raises(LimitError):
        Rig(limited(cost=MOST + 8), before=before).ledger.reserve("x", request())
    rig = Rig(limited(cost=MOST + 9), before=before)
    rig.ledger.reserve("x", request())
    rig.answer("x", 1, 1)
    assert rig.spent() == (1, 2, "2"), "what this run took is told apart"
    assert rig.ledger.with_totals(RunFinished(status="ok")).before == RequestTotals(2, 7, "9")


# ---- limits of a stage ----------------------------------------------------------------------------------


def test_a_limit_of_a_stage_is_its_own() -> None:
    rig = Rig(stages={"a": limited(calls=1)}, before={"a": UsageTotals(0, 50, Decimal(50))})
    for stage in ("a", "b"):
        rig.ledger.reserve(stage, request())
        rig.answer(stage, 1)
    with pytest.raises(StageLimitError) as refused:
        rig.ledger.reserve("a", request())
    (problem,) = refused.value.diagnostics
    assert (problem.code, problem.subject, refused.value.exit_code) == ("E501", "a", ExitCode.LIMIT)
    assert "of the stage" in (problem.hint or "")
    assert "--budget" not in (problem.hint or "")
    rig.ledger.reserve("b", request())


def test_a_stage_goes_on_with_what_an_interrupted_run_left_it() -> None:
    rig = Rig(
        stages={"a": limited(cost=MOST + 9)},
        before={"a": UsageTotals(1, 10, Decimal(10)), "b": UsageTotals(1, 0, Decimal(9))},
    )
    with pytest.raises(StageLimitError):
        rig.ledger.reserve("a", request())


def test_a_stage_that_has_no_more_is_refused_though_others_are_under_way() -> None:
    rig = Rig(stages={"a": limited(cost=1)})
    rig.ledger.reserve("b", request())
    with pytest.raises(StageLimitError):
        rig.ledger.reserve("a", request())


# ---- wall time of a stage -------------------------------------------------------------------------------


def test_the_wall_time_of_a_stage_begins_with_its_first_attempt_and_ends_it() -> None:
    rig = Rig(stages={"a": StopConditions(max_wall_s=10.0)})
    rig.clock.now += 1000
    rig.ledger.begin_attempt("a")
    rig.clock.now += 4
    assert rig.ledger.deadline_s("a", 600.0) == 6.0
    assert rig.ledger.deadline_s("a", 2.0) == 2.0
    rig.clock.now += 6
    for late in (
        lambda: rig.ledger.begin_attempt("a"),
        lambda: rig.ledger.deadline_s("a", 600.0),
        lambda: rig.ledger.reserve("a", request()),
    ):
        with pytest.raises(StageLimitError) as refused:
            late()
        assert refused.value.diagnostics[0].code == "E504"
    rig.ledger.begin_attempt("b")
    assert rig.ledger.deadline_s("b", 600.0) == 600.0


# ---- waiting --------------------------------------------------------------------------------------------


class Waiter:
    """A thread that reserves, and what came of it."""

    def __init__(self, ledger: Ledger, stage: str, asked: Request | None = None) -> None:
        self.error: BaseException | None = None
        self._done = threading.Event()
        self._thread = in_thread(lambda: self._run(ledger, stage, asked or request()))

    def _run(self, ledger: Ledger, stage: str, asked: Request) -> None:
        try:
            ledger.reserve(stage, asked)
        except BaseException as error:  # noqa: BLE001  handed to the test
            self.error = error
        self._done.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> "Waiter":
        assert self._done.wait(SOON_S), "it waits for ever"
        self._thread.join()
        return self


def waiting(ledger: Ledger, stage: str, asked: Request | None = None) -> Waiter:
    """Return a thread that waits in `reserve`: the condition has one waiter more."""
    waiters = ledger._changed._waiters  # type: ignore[attr-defined]
    before = len(waiters)
    waiter = Waiter(ledger, stage, asked)
    while len(waiters) == before:
        assert not waiter.is_done, f"it did not wait: {waiter.error!r}"
    return waiter


@pytest.mark.parametrize("limits", [limited(cost=MOST + 50), limited(tokens=MOST + 50)])
def test_a_reservation_that_does_not_fit_waits_and_goes_on_when_another_took_less(limits: StopConditions) -> None:
    rig = Rig(limits)
    rig.ledger.reserve("a", request())
    second = waiting(rig.ledger, "b")
    rig.answer("a", 10)
    assert second.wait().error is None
    assert [role for role, *_ in rig.reported("call_reserved")] == ["a", "b"]


@pytest.mark.parametrize("end", ["release", "forfeit", "settle"])
def test_whatever_ends_a_request_wakes_who_waits(end: str) -> None:
    rig = Rig(limited(calls=1))
    rig.ledger.reserve("a", request())
    second = waiting(rig.ledger, "b")
    if end == "settle":
        rig.answer("a", 10)
    else:
        getattr(rig.ledger, end)("a")
    error = second.wait().error
    assert (error is None) if end == "release" else isinstance(error, LimitError)


def test_a_small_request_does_not_wait_behind_a_big_one() -> None:
    rig = Rig(limited(cost=3 * MOST))
    rig.ledger.reserve("a", request())
    big = waiting(rig.ledger, "big", request(max_tokens=100 + 2 * MOST))
    rig.ledger.reserve("small", request())
    rig.ledger.release("small")
    rig.ledger.release("a")
    assert big.wait().error is None


def test_closing_wakes_waiting_threads_and_refuses_new_reservations() -> None:
    rig = Rig(limited(calls=1))
    rig.ledger.reserve("a", request())
    second = waiting(rig.ledger, "b")
    rig.ledger.close()
    assert isinstance(second.wait().error, CancelledBuildError)
    with pytest.raises(CancelledBuildError):
        rig.ledger.reserve("c", request())
    rig.answer("a", 10)
    assert rig.spent() == (1, 11, "11"), "what is under way is still settled"


def test_who_waits_longer_than_its_stage_may_take_ends() -> None:
    rig = Rig(limited(calls=1), {"b": StopConditions(max_wall_s=10.0)})
    rig.ledger.reserve("a", request())
    second = waiting(rig.ledger, "b")
    rig.clock.now += 11
    with rig.ledger._changed:
        rig.ledger._changed.notify_all()
    assert isinstance(second.wait().error, StageLimitError)


# ---- many at once ---------------------------------------------------------------------------------------

ENDS = st.sampled_from(["settle", "forfeit", "release"])
JOBS = st.lists(
    st.lists(st.tuples(st.integers(1, 3000), st.floats(0, 1), ENDS), min_size=1, max_size=4), min_size=1, max_size=8
)


class Books:
    """Keeps the sum of what is told, as a journal would, and holds it to the limits after each event."""

    def __init__(self, limits: StopConditions) -> None:
        self.limits = limits
        self.reserved: dict[str, tuple[int, int, Decimal]] = {}
        self.settled = (0, 0, Decimal(0))
        self.broken: list[str] = []

    def notice(self, event: Event) -> None:
        data: Any = event.facts()
        tally = (int(data["calls"]), int(data["tokens"]), Decimal(data["cost"]))
        if event.type == "call_reserved":
            if event.role in self.reserved:
                self.broken.append(f"{event.role} has two")
            self.reserved[event.role] = tally
        else:
            del self.reserved[event.role]
            self.settled = _plus(self.settled, tally)
        calls, tokens, cost = self.settled
        for one in self.reserved.values():
            calls, tokens, cost = _plus((calls, tokens, cost), one)
        limits = self.limits
        if (
            calls > (limits.max_llm_calls or calls)
            or tokens > (limits.max_tokens or tokens)
            or cost > (limits.max_cost_usd or cost)
        ):
            self.broken.append(f"after {event.type} of {event.role}: {calls} calls, {tokens} tokens, ${cost}")


def _plus(a: tuple[int, int, Decimal], b: tuple[int, int, Decimal]) -> tuple[int, int, Decimal]:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@pytest.mark.slow
@given(
    jobs=JOBS,
    calls=st.none() | st.integers(1, 12),
    cost=st.none() | st.integers(1, 12_000),
    tokens=st.none() | st.integers(1, 12_000),
)
@settings(deadline=None, max_examples=60)
def test_many_threads_never_pass_a_limit_and_all_come_to_an_end(
    jobs: list[list[tuple[int, float, str]]], calls: int | None, cost: int | None, tokens: int | None
) -> None:
    limits = limited(calls, cost, tokens)
    books = Books(limits)
    rig = Rig(limits, notice=books.notice)
    together = threading.Barrier(len(jobs))

    def work(number: int, requests: list[tuple[int, float, str]]) -> str:
        stage = f"s{number}"
        together.wait(SOON_S)
        for most, part, end in requests:
            asked = request(max_tokens=most)
            os.sched_yield()
            try:
                rig.ledger.reserve(stage, asked)
            except LimitError:
                return "refused"
            os.sched_yield()  # let others come in between
            if end == "settle":
                usage = Usage(1 + int(part * 1000), max(1, int(part * most)))
                rig.ledger.settle(stage, rig.ledger.with_cost(asked, Response(text="x", usage=usage)))
            else:
                getattr(rig.ledger, end)(stage)
        return "done"

    with ThreadPoolExecutor(len(jobs)) as pool:
        ends = [pool.submit(work, number, requests) for number, requests in enumerate(jobs)]
        outcomes = [end.result(timeout=SOON_S) for end in ends]
    assert books.broken == []
    assert books.reserved == {}, "every reservation has ended"
    calls, known_tokens, known_cost = rig.spent()
    possible_tokens, possible_cost = rig.possible()
    assert (calls, known_tokens + possible_tokens) == books.settled[:2]
    assert Decimal(known_cost) + Decimal(possible_cost) == books.settled[2]
    if limits == limited():
        assert set(outcomes) == {"done"}


def test_of_a_response_that_was_cut_the_known_part_is_spent_and_the_rest_possible() -> None:
    rig = Rig(limited(cost=MOST + 1))
    rig.ledger.reserve("a", request())
    rig.ledger.settle_unusable("a", Usage(7, 3), is_final=False)
    assert rig.spent() == (1, 10, "10")
    assert rig.possible() == (MOST - 10, str(MOST - 10))
    assert rig.reported("call_settled") == [("a", 0, MOST - 10, str(MOST - 10)), ("a", 1, 10, "10")]
    rest, known = [event.facts() for event in rig.events if event.type == "call_settled"]
    assert (rest["forfeited"], rest["uncounted"], known["unusable"]) == (True, True, True)
    with pytest.raises(LimitError):
        rig.ledger.reserve("a", request())
