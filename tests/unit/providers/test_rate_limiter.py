"""The limiter: never more than a limit, in order of arrival, hardly slower than the bucket of the server."""

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ideal_rate import ideal_s
from orch23.model.errors import ProviderError
from orch23.model.llm import Usage
from orch23.providers.rate_limiter import Permit, RateLimiter
from tests.doubles import FakeClock
from tests.rate_simulation import DENIED, BucketServer, DownServer, Server, Simulation, WindowServer, request

SEEDS = range(8)
MINUTE = {"p": {"requests": (10, 60.0)}}
# Sending and the first reply take time, which a short case is not to be measured by.
GRACE_S = 0.1


def simulated(server: Server, calls: int, **facts: Any) -> Simulation:
    simulation = Simulation(server, **facts)
    simulation.run([request()] * calls)
    return simulation


def slowness(simulation: Simulation, size: float, per_s: float, down_s: float = 0.0) -> float:
    """Return the time in terms of that of a client that knows everything."""
    call_s = simulation.call_s + 2 * simulation.latency_s
    return simulation.now / ideal_s(simulation.done, simulation.jobs, call_s, size, per_s, down_s=down_s)


# ---- a known limit --------------------------------------------------------------------------------


@given(
    size=st.integers(1, 30),
    period_s=st.sampled_from([0.5, 1.0, 10.0, 60.0]),
    jobs=st.integers(1, 12),
    call_s=st.sampled_from([0.0, 0.05, 1.0, 20.0]),
    arrivals=st.lists(st.floats(0, 100), min_size=1, max_size=50).map(sorted),
)
def test_a_limit_of_the_pipeline_is_never_exceeded_and_hardly_slower_than_its_bucket(
    size: int, period_s: float, jobs: int, call_s: float, arrivals: list[float]
) -> None:
    per_s = size / period_s
    server = BucketServer(size + 1e-6, per_s)
    rates = {"p": {"requests": (size, period_s)}}
    simulation = Simulation(server, jobs=jobs, call_s=call_s, rates=rates, latency_s=0.001)
    simulation.run([request()] * len(arrivals), arrivals)
    times = [time for time, _ in simulation.sent]
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= size + per_s * (times[last] - begin) + 1e-3
    assert [number for _, number in simulation.sent] == sorted(number for _, number in simulation.sent)
    least = ideal_s(len(arrivals), jobs, call_s + 0.002, size, per_s, arrivals=arrivals)
    assert simulation.now <= 1.2 * least + GRACE_S
    assert simulation.refused == 0, "a server with the same limit refuses nothing"


@given(sizes=st.lists(st.integers(1, 4000), min_size=1, max_size=30), jobs=st.integers(1, 8))
def test_a_limit_of_tokens_holds_for_what_the_responses_took(sizes: list[int], jobs: int) -> None:
    limit, period_s = 10_000, 60.0
    rates = {"m": {"tokens": (limit, period_s)}}
    simulation = Simulation(DownServer(0, None), jobs=jobs, call_s=1.0, rates=rates, usage=Usage(100, 200))
    simulation.run([request(text="x" * size, max_tokens=1000) for size in sizes])
    (queue,) = simulation.limiter._queues.values()
    ((_, bucket),) = queue.declared
    assert bucket.level <= limit
    # Tokens that were expected and not taken are given back.
    spent = 300 * len(sizes)
    assert bucket.level == pytest.approx(min(limit, limit - spent + limit / period_s * simulation.now), abs=limit / 2)


def test_a_provider_s_limit_is_shared_by_its_models_in_order_of_arrival() -> None:
    simulation = Simulation(BucketServer(10.001, 1 / 6), jobs=16, rates=MINUTE)
    simulation.run([request(model) for model in "ab" * 12])
    assert simulation.refused == 0
    assert [number for _, number in simulation.sent] == list(range(1, 25))


def test_a_small_request_for_another_model_does_not_take_what_a_large_one_waits_for() -> None:
    clock = FakeClock()
    limiter = RateLimiter(rates={"p": {"input_tokens": (1000, 100.0)}}, clock=clock.monotonic)
    large, small = request("a", text="x" * 3000), request("b", text="x" * 300)
    first, second, third = (limiter.enter(one) for one in (large, large, small))
    assert [limiter.wait(one, 0.0) for one in (first, second, third)] == [True, False, False]
    clock.tick(40.0)
    assert [limiter.wait(one, 0.0) for one in (third, second)] == [False, False]
    clock.tick(60.0)
    assert [limiter.wait(one, 0.0) for one in (third, second)] == [True, True]


@pytest.mark.parametrize(
    ("rates", "least_s"),
    [
        ({"p": {"requests": (10, 60.0)}}, 60.0),
        ({"p/m": {"requests": (10, 60.0)}}, 60.0),
        ({"m": {"requests": (10, 60.0)}}, 60.0),
        ({"m": {"requests": (5, 60.0)}, "p/m": {"requests": (10, 60.0)}}, 60.0),
        ({"p": {"requests": (5, 60.0)}, "m": {"requests": (10, 60.0)}}, 180.0),
        ({"other": {"requests": (1, 60.0)}, "p/n": {"requests": (1, 60.0)}}, 0.0),
    ],
)
def test_the_limits_of_the_provider_and_those_of_the_model_hold(rates: Mapping[str, Any], least_s: float) -> None:
    simulation = simulated(DownServer(0, None), 20, rates=rates)
    assert simulation.now == pytest.approx(least_s, abs=0.1)


def test_a_request_beyond_the_whole_limit_of_tokens_needs_a_full_bucket_and_is_sent() -> None:
    rates = {"m": {"input_tokens": (100, 60.0)}}
    simulation = Simulation(DownServer(0, None), rates=rates)
    assert simulation.run([request(text="x" * 100_000)] * 2) < 60.0 * 700


# ---- limits that only the server knows ------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("call_s", [0.0, 0.3, 5.0, 30.0])
def test_stages_at_ten_requests_a_minute_are_as_fast_as_the_server_allows(call_s: float, seed: int) -> None:
    simulation = simulated(BucketServer(10, 1 / 6), 20, call_s=call_s, seed=seed)
    assert slowness(simulation, 10, 1 / 6) <= 1.2
    assert simulation.refused <= 20


@pytest.mark.stride(5)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("call_s", [0.0, 0.1, 1.0])
def test_calls_at_twenty_a_second_are_as_fast_as_the_server_allows(call_s: float, seed: int) -> None:
    simulation = simulated(BucketServer(20, 20), 300, call_s=call_s, seed=seed)
    assert slowness(simulation, 20, 20) <= 1.2
    assert simulation.refused <= 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calls", "size", "per_s", "most"), [(60, 10, 1 / 6, 1.2), (300, 20, 20, 1.2), (300, 1, 20, 2.0)]
)
def test_without_a_word_of_the_server_about_time_the_rate_adapts(
    calls: int, size: int, per_s: float, most: float
) -> None:
    for seed in SEEDS:
        server = BucketServer(size, per_s, says_when=False)
        assert slowness(simulated(server, calls, call_s=0.1, seed=seed), size, per_s) <= most


def test_a_server_that_states_what_is_left_refuses_only_what_was_sent_before_its_first_reply() -> None:
    for size, per_s, calls, refused in ((10, 1 / 6, 20, 0), (20, 20.0, 300, 0), (3, 0.1, 12, 8 - 3)):
        simulation = simulated(BucketServer(size, per_s, states=True), calls, call_s=0.05)
        assert slowness(simulation, size, per_s) <= 1.2
        assert simulation.refused == refused


@pytest.mark.parametrize("states", [False, True])
def test_a_server_that_counts_in_fixed_windows_is_used_up_in_each(states: bool) -> None:
    simulation = simulated(WindowServer(10, 60.0, states=states), 40, call_s=0.3)
    assert simulation.now <= (1.05 if states else 1.3) * 180.0


@pytest.mark.parametrize("retry_after_s", [0.0, 1.0, 2.0])
def test_a_server_that_refuses_everything_for_a_time_is_waited_for(retry_after_s: float) -> None:
    for seed in SEEDS:
        simulation = simulated(DownServer(8.0, retry_after_s), 20, call_s=0.1, seed=seed)
        assert slowness(simulation, 1e9, 1e9, down_s=8.0) <= 1.2


def test_without_retry_after_pauses_grow_and_still_end_soon_after_the_server_is_back() -> None:
    found = [simulated(DownServer(8.0, None), 20, call_s=0.1, seed=seed) for seed in range(30)]
    assert sum(slowness(one, 1e9, 1e9, down_s=8.0) for one in found) / len(found) <= 1.2
    assert max(slowness(one, 1e9, 1e9, down_s=8.0) for one in found) <= 1.5
    (long,) = (simulated(DownServer(400.0, None), 20, seed=1),)
    assert long.refused < 70


# ---- a refusal ------------------------------------------------------------------------------------


class Queue:
    """Permits of one model, on a clock that a test moves."""

    def __init__(self, random: float = 0.5) -> None:
        self.clock = FakeClock()
        self.limiter = RateLimiter(clock=self.clock.monotonic, random=lambda: random)

    def permits(self, count: int) -> list[Permit]:
        return [self.limiter.enter(request()) for _ in range(count)]

    def given(self, permits: list[Permit]) -> int:
        return sum(self.limiter.wait(one, 0.0) for one in permits)


def test_a_refusal_pauses_all_requests_for_the_model_and_then_one_goes_first() -> None:
    queue = Queue()
    sent = queue.permits(8)
    assert queue.given(sent) == 8
    for one in sent:
        queue.limiter.refuse(one, 5.0, DENIED)
    more = queue.permits(4)
    assert queue.given([*sent, *more]) == 0
    queue.clock.tick(4.99)
    assert queue.given([*sent, *more]) == 0
    queue.clock.tick(0.02)
    assert queue.given([*sent, *more]) == 1
    queue.limiter.hear(sent[0], 200, {})
    assert queue.given([*sent[1:], *more]) == 2, "each accepted request lets one more be on its way"
    for one in sent[1:3]:
        queue.limiter.hear(one, 200, {})
    assert queue.given([*sent[3:], *more]) == 4


def test_refusals_of_requests_that_were_sent_together_are_one_refusal() -> None:
    queue = Queue()
    sent = queue.permits(8)
    queue.given(sent)
    pace = sent[0].queue.pace
    pace.rate = 100.0
    queue.limiter.hear(sent[0], 200, {})
    queue.limiter.refuse(sent[1], 5.0, DENIED)
    slowed = pace.rate
    for one in sent[2:]:
        queue.limiter.refuse(one, 50.0, DENIED)
    assert (pace.resume_at, pace.rate) == (5.0, slowed)


def test_a_refused_request_keeps_its_place() -> None:
    queue = Queue()
    (first,) = queue.permits(1)
    assert queue.given([first]) == 1
    (second,) = queue.permits(1)
    queue.limiter.refuse(first, 1.0, DENIED)
    queue.clock.tick(1.01)
    assert [queue.limiter.wait(one, 0.0) for one in (second, first)] == [False, True]


def test_other_models_and_servers_do_not_pause() -> None:
    queue = Queue()
    (one,) = queue.permits(1)
    queue.given([one])
    queue.limiter.refuse(one, 60.0, DENIED)
    assert queue.limiter.wait(queue.limiter.enter(request("other")), 0.0)
    assert queue.limiter.wait(queue.limiter.enter(request(provider="q")), 0.0)
    assert not queue.limiter.wait(queue.limiter.enter(request()), 0.0)


def test_a_server_that_does_not_reply_at_once_has_accepted_the_request() -> None:
    queue = Queue()
    permits = queue.permits(1)
    queue.given(permits)
    queue.limiter.refuse(permits[0], 0.0, DENIED)
    permits += queue.permits(2)
    assert queue.given(permits) == 1
    assert queue.given(permits[1:]) == 0
    queue.clock.tick(2.0)
    assert queue.given(permits[1:]) == 2


def test_without_retry_after_the_pause_is_random_and_its_bound_grows() -> None:
    lengths = []
    for random in (0.0, 0.5, 1.0):
        queue = Queue(random)
        (one,) = queue.permits(1)
        queue.given([one])
        queue.limiter.refuse(one, None, DENIED)
        lengths.append(one.queue.pace.resume_at - queue.clock.monotonic())
    assert lengths == [0.0, 0.5, 1.0]
    queue = Queue(1.0)
    (one,) = queue.permits(1)
    queue.given([one])
    queue.limiter.refuse(one, None, DENIED)
    for _ in range(30):
        queue.clock.tick(one.queue.pace.resume_at - queue.clock.monotonic())
        queue.given([one])
        queue.limiter.refuse(one, None, DENIED)
        lengths.append(one.queue.pace.resume_at - queue.clock.monotonic())
    assert lengths == pytest.approx(sorted(lengths))
    assert lengths[-1] == pytest.approx(60.0)


def test_the_rate_is_halved_by_a_refusal_and_grows_by_the_same_amount_with_each_success() -> None:
    queue = Queue(0.0)
    permits = queue.permits(6)
    pace = permits[0].queue.pace
    pace.rate = 8.0
    assert queue.given(permits[:1]) == 1
    queue.limiter.hear(permits[0], 200, {})
    queue.clock.tick(1.0)
    assert queue.limiter.wait(permits[1], 0.0)
    queue.clock.tick(1.0)
    queue.limiter.refuse(permits[1], None, DENIED)
    assert pace.rate == pytest.approx(4.0)
    grown = []
    for one in permits[1:5]:
        queue.clock.tick(1.0)
        assert queue.limiter.wait(one, 0.0)
        queue.limiter.hear(one, 200, {})
        grown.append(pace.rate)
    steps = [after - before for before, after in zip([4.0, *grown], grown, strict=False)]
    assert min(steps) > 0
    assert steps == pytest.approx([steps[0]] * 4)


# ---- what replies state ---------------------------------------------------------------------------


def headers(remaining: int, *, limit: int = 10, reset: str = "60s") -> dict[str, str]:
    names = {"limit": str(limit), "remaining": str(remaining), "reset": reset}
    return {f"x-ratelimit-{name}-requests": value for name, value in names.items()}


def test_a_stated_remainder_counts_what_is_on_its_way_and_ends_at_its_reset() -> None:
    queue = Queue()
    permits = queue.permits(3)
    assert queue.given(permits) == 3
    queue.limiter.hear(permits[0], 200, headers(4))
    permits += queue.permits(6)
    assert queue.given(permits[3:]) == 2
    queue.clock.tick(60.0)
    assert queue.given(permits[5:]) == 4


def test_stated_limits_of_tokens_hold_a_long_prompt_back() -> None:
    queue = Queue()
    (first,) = queue.permits(1)
    queue.given([first])
    stated = {
        "anthropic-ratelimit-input-tokens-limit": "10000",
        "anthropic-ratelimit-input-tokens-remaining": "100",
        "anthropic-ratelimit-input-tokens-reset": "2026-02-15T14:31:22Z",
        "date": "Sun, 15 Feb 2026 14:30:22 GMT",
    }
    queue.limiter.hear(first, 200, stated)
    long, short = queue.limiter.enter(request(text="x" * 4000)), queue.limiter.enter(request(text="x"))
    assert queue.given([long, short]) == 0, "the short one does not overtake"
    queue.clock.tick(10.0)
    assert queue.given([long, short]) == 2


@pytest.mark.parametrize(("counts", "left"), [(True, 9_000), (False, 9_800)])
def test_cached_input_counts_as_the_vendor_counts_it(counts: bool, left: int) -> None:
    clock = FakeClock()
    limiter = RateLimiter(rates={"m": {"input_tokens": (10_000, 1e9)}}, clock=clock.monotonic)
    permit = limiter.enter(request(text="x" * 9000), counts_cached=counts)
    limiter.wait(permit, 0.0)
    limiter.finish(permit, Usage(1000, 50, cache_read_tokens=800))
    ((_, bucket),) = permit.queue.declared
    assert bucket.level == pytest.approx(left, abs=1)


def test_expected_tokens_come_from_earlier_responses() -> None:
    queue = Queue()
    estimate = queue.permits(1)[0].queue.estimate
    assert estimate.of(1000, 4000) == pytest.approx(
        {"requests": 1, "tokens": 4300, "input_tokens": 300, "output_tokens": 4000}
    )
    for _ in range(30):
        estimate.learn(1000, 250, 120)
    assert estimate.of(2000, 4000) == pytest.approx(
        {"requests": 1, "tokens": 620, "input_tokens": 500, "output_tokens": 120}, rel=0.01
    )


# ---- threads --------------------------------------------------------------------------------------


def test_a_request_that_is_not_sent_gives_back_what_it_took() -> None:
    limiter = RateLimiter(rates={"m": {"requests": (1, 1e6)}}, clock=FakeClock().monotonic)
    one, two = limiter.enter(request()), limiter.enter(request())
    assert (limiter.wait(one, 0.0), limiter.wait(two, 0.0)) == (True, False)
    limiter.leave(one)
    assert limiter.wait(two, 0.0)


def in_threads(count: int, act: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=act, args=(number,), daemon=True) for number in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30.0)
    assert not any(one.is_alive() for one in threads)


def test_threads_that_wait_are_all_let_through() -> None:
    limiter = RateLimiter(rates={"m": {"requests": (50, 0.05)}})
    done = []

    def call(number: int) -> None:
        for _ in range(20):
            permit = limiter.enter(request())
            assert limiter.wait(permit, 30.0)
            limiter.hear(permit, 200, {})
            limiter.finish(permit, Usage())
            done.append(number)

    in_threads(8, call)
    assert len(done) == 160


@pytest.mark.parametrize("how", ["close", "stop"])
def test_the_end_of_a_build_ends_all_waits_at_once(how: str) -> None:
    limiter = RateLimiter()
    first = limiter.enter(request())
    limiter.wait(first, 0.0)
    limiter.refuse(first, 3600.0, DENIED)
    ends: list[object] = []
    are_waiting = threading.Barrier(9)

    def wait(_: int) -> None:
        permit = limiter.enter(request())
        are_waiting.wait()
        try:
            ends.append(limiter.wait(permit, 3600.0))
        except ProviderError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(8)]
    for one in threads:
        one.start()
    are_waiting.wait()
    getattr(limiter, how)()
    for one in threads:
        one.join(30.0)
    assert len(ends) == 8
    assert all("the build ended" in str(one) if how == "close" else one is True for one in ends)


def test_the_expected_wait_grows_with_the_place_in_the_queue() -> None:
    limiter = RateLimiter(rates=MINUTE, clock=FakeClock().monotonic)
    permits = [limiter.enter(request()) for _ in range(13)]
    for one in permits[:10]:
        limiter.wait(one, 0.0)
    found = [limiter.expected_s(one) for one in permits[10:]]
    assert [seconds for seconds, _ in found] == pytest.approx([6.0, 12.0, 18.0])
    assert {label for _, label in found} == {"10 requests/min, from `rates`"}
    assert math.isclose(limiter.certain_s(permits[12])[0], 6.0)
