"""Let requests through at the rate that a server allows; all stages of a run share the limiter.

There is one queue for each model of a server. A request waits in it until all limits allow it: those of the pipeline
(`rates`), those that replies state, and, after a refusal, an adaptive pace.
"""

import bisect
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request, Usage
from orch23.model.pipeline import RateLimits
from orch23.providers.faults import build_ended_error
from orch23.providers.rate_limits import AdaptivePace, StatedLimit, TokenBucket, TokenEstimate, stated_limits

# A server refuses at once. Without a reply after this time, a request counts as accepted.
_ACCEPTED_AFTER_S = 2.0
# How long a stated limit is used, if the server does not say when it is reset.
_STATED_FOR_S = 60.0
_PERIODS = {1.0: "s", 60.0: "min", 3600.0: "h", 86_400.0: "day"}
_SUCCESSES = range(200, 300)


class Permit(Struct, eq=False, kw_only=True):
    """The permission to send one request: awaited, then given. It is awaited again after a refusal.

    `number` counts arrivals. `counts_cached`: the server counts cached input as input.
    """

    number: int
    queue: "RateQueue"
    bytes: int
    max_tokens: int | None
    counts_cached: bool
    changed: threading.Condition
    is_given: bool = False
    has_waited: bool = False
    epoch: int = 0
    sent_at: float = 0.0
    cost: Mapping[str, float] = field(default_factory=dict)


class RateQueue(Struct, eq=False, kw_only=True):
    """The requests for one model of a server that wait, in order of arrival, and what limits them.

    `declared` are the buckets of `rates`, `stated` those of the last reply, each with the time until which they are
    valid. `unheard` are requests that may still be refused. `progress_at` is the time of the last success, `said` the
    last refusal.
    """

    name: str
    declared: tuple[tuple[str, TokenBucket], ...]
    pace: AdaptivePace
    stated: dict[str, tuple[TokenBucket, float]] = field(default_factory=dict)
    waiting: list[Permit] = field(default_factory=list)
    unheard: list[Permit] = field(default_factory=list)
    estimate: TokenEstimate = field(default_factory=TokenEstimate)
    progress_at: float = -math.inf
    said: Diagnostic | None = None

    def buckets(self, now: float) -> Iterator[tuple[str, TokenBucket]]:
        """Yield all buckets, each with its key of `rates`."""
        yield from self.declared
        self.stated = {kind: one for kind, one in self.stated.items() if one[1] > now}
        yield from ((kind, bucket) for kind, (bucket, _) in self.stated.items())

    def cost(self, permit: Permit) -> Mapping[str, float]:
        """Return what a request is expected to take."""
        return self.estimate.of(permit.bytes, permit.max_tokens)

    def full_buckets(self, permit: Permit, now: float) -> Iterator[tuple[float, TokenBucket]]:
        """Yield the buckets that do not allow a request now, each with the seconds until it does."""
        cost = self.cost(permit)
        for kind, bucket in self.buckets(now):
            delay = bucket.delay(cost[kind], now)
            if delay > 0:
                yield delay, bucket

    def delay(self, permit: Permit, now: float) -> float:
        """Return the seconds until the first request may be sent, unless something changes."""
        for one in [one for one in self.unheard if one.sent_at + _ACCEPTED_AFTER_S <= now]:
            self.accept(one, now)
        delay = max((delay for delay, _ in self.full_buckets(permit, now)), default=0.0)
        # A rate that the server states is better than a measured one.
        delay = max(delay, self.pace.delay(now, only_pause="requests" in self.stated))
        if len(self.unheard) >= self.pace.window:
            delay = max(delay, self.unheard[0].sent_at + _ACCEPTED_AFTER_S - now)
        return delay

    def expected_s(self, permit: Permit, now: float) -> tuple[float, str]:
        """Return the expected seconds until a request is sent, and what it waits for."""
        ahead = self.waiting[: bisect.bisect_left(self.waiting, permit.number, key=lambda one: one.number)]
        pause_s = max(0.0, self.pace.resume_at - now)
        found = (pause_s, "")
        if self.pace.rate is not None:
            found = (self.pace.delay(now) + len(ahead) / self.pace.rate, "")
        costs = [self.cost(one) for one in (*ahead, permit)]
        for kind, bucket in self.buckets(now):
            bucket.delay(0, now)
            missing = sum(cost[kind] for cost in costs) - bucket.level
            found = max(found, (missing / bucket.per_s, bucket.label))
        return found

    def send(self, permit: Permit, now: float) -> None:
        """Count a request as sent."""
        permit.cost = self.cost(permit)
        for kind, bucket in self.buckets(now):
            bucket.take(permit.cost[kind], now)
        permit.epoch, permit.sent_at = self.pace.epoch, now
        self.pace.send(now, has_waited=permit.has_waited)
        self.unheard.append(permit)

    def accept(self, permit: Permit, now: float) -> None:
        """Note that the server has accepted a request."""
        if permit in self.unheard:
            self.unheard.remove(permit)
            self.pace.accept(permit.epoch, now)

    def state(self, limits: Mapping[str, StatedLimit], now: float) -> None:
        """Use the limits that a reply states. Requests that they do not count yet are subtracted."""
        for kind, limit in limits.items():
            level = limit.remaining - sum(one.cost[kind] for one in self.unheard)
            used, valid_s = limit.limit - limit.remaining, _STATED_FOR_S if limit.reset_s is None else limit.reset_s
            if not valid_s:
                self.stated.pop(kind, None)
                continue
            label = f"{limit.limit:,} {_words(kind)}, as the server states"
            # For a token bucket this is its rate; for a fixed window it is too low until the window is used up.
            bucket = TokenBucket(label, limit.limit, max(used, 1) / valid_s, level, now)
            self.stated[kind] = (bucket, now + valid_s)


class RateLimiter(Struct, kw_only=True):
    """The limiter of a run, used by all threads. `rates` are those of the pipeline.

    `pause` waits for a condition, at most some seconds. `stop` lets all requests through, `close` refuses them.
    """

    rates: Mapping[str, RateLimits] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    pause: Callable[[threading.Condition, float], object] = threading.Condition.wait
    _queues: dict[tuple[str, str, str], RateQueue] = field(default_factory=dict)
    _declared: dict[str, tuple[tuple[str, TokenBucket], ...]] = field(default_factory=dict)
    _arrivals: int = 0
    _is_stopped: bool = False
    _is_closed: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def enter(self, request: Request, *, counts_cached: bool = True) -> Permit:
        """Put a request into the queue of its model. `counts_cached`: the server counts cached input as input."""
        limit = request.params.get("max_tokens")
        with self._lock:
            self._arrivals += 1
            permit = Permit(
                number=self._arrivals,
                queue=self._queue(request),
                bytes=sum(len(text.encode("utf-8", "surrogatepass")) for text in request.texts),
                max_tokens=limit if isinstance(limit, int) else None,
                counts_cached=counts_cached,
                changed=threading.Condition(self._lock),
            )
            permit.queue.waiting.append(permit)
        return permit

    def wait(self, permit: Permit, seconds: float) -> bool:
        """Wait until a request may be sent, at most so many seconds; return whether it may be sent.

        Raises:
            ProviderError: the build has ended.
        """
        with self._lock:
            until = self.clock() + seconds
            while not permit.is_given:
                if self._is_closed:
                    raise build_ended_error()
                now = self.clock()
                if self._is_stopped:
                    # The budget of a stopped run refuses the request, with the reason.
                    self._give(permit, now)
                    break
                soonest_s = self._give_all(now)
                if permit.is_given:
                    break
                if now >= until:
                    return False
                permit.has_waited = True
                is_first = permit is permit.queue.waiting[0]
                self.pause(permit.changed, min(until - now, soonest_s if is_first else math.inf))
            return True

    def expected_s(self, permit: Permit) -> tuple[float, str]:
        """Return the expected seconds until a request is sent, and the limit that it waits for, if that is known."""
        with self._lock:
            return permit.queue.expected_s(permit, self.clock())

    def certain_s(self, permit: Permit) -> tuple[float, str]:
        """Return the seconds that a request waits at least, and the limit that it waits for, if that is known."""
        with self._lock:
            now, queue = self.clock(), permit.queue
            cost = queue.cost(permit)
            declared = [(bucket.delay(cost[kind], now), bucket.label) for kind, bucket in queue.declared]
            return max([(max(0.0, queue.pace.required_until - now), ""), *declared])

    def leave(self, permit: Permit) -> None:
        """Remove a request that is not sent, and give back what it took."""
        with self._lock:
            queue, now = permit.queue, self.clock()
            if permit in queue.waiting:
                queue.waiting.remove(permit)
            elif permit in queue.unheard:
                queue.unheard.remove(permit)
                for kind, bucket in queue.buckets(now):
                    bucket.take(-permit.cost[kind], now)
            self._wake()

    def hear(self, permit: Permit, status: int, headers: Mapping[str, str]) -> None:
        """Note a reply of the server: whether it accepts the request, and the limits that it states."""
        limits = stated_limits(headers)
        with self._lock:
            now = self.clock()
            if status in _SUCCESSES:
                permit.queue.accept(permit, now)
                permit.queue.progress_at = now
            permit.queue.state(limits, now)
            self._wake()

    def refuse(self, permit: Permit, retry_after_s: float | None, said: Diagnostic) -> None:
        """Note that the server refuses a request for its rate or load: all requests for this model pause.

        This one waits again.
        """
        with self._lock:
            queue, now = permit.queue, self.clock()
            if permit in queue.unheard:
                queue.unheard.remove(permit)
            queue.pace.refuse(permit.epoch, now, retry_after_s)
            queue.said = said
            self.wait_again(permit)
            # The request counts, the tokens do not: the model did not see them.
            for kind, bucket in queue.declared:
                bucket.take(-permit.cost[kind] if kind != "requests" else 0, now)
            self._wake()

    def wait_again(self, permit: Permit) -> None:
        """Put a request back into its queue, at the place that its arrival gives it."""
        with self._lock:
            permit.is_given = False
            bisect.insort(permit.queue.waiting, permit, key=lambda one: one.number)

    def finish(self, permit: Permit, usage: Usage | None) -> None:
        """Note that a call has ended: with this usage, or without a response."""
        with self._lock:
            queue, now = permit.queue, self.clock()
            queue.accept(permit, now)
            if usage is not None:
                queue.progress_at = now
                self._correct(permit, usage, now)
            self._wake()

    def stop(self) -> None:
        """Let all requests through that wait, and later ones: the run has stopped, and its budget refuses them."""
        with self._lock:
            self._is_stopped = True
            self._wake_all()

    def close(self) -> None:
        """End all waits: the build has ended."""
        with self._lock:
            self._is_closed = True
            self._wake_all()

    def _queue(self, request: Request) -> RateQueue:
        place = (request.provider, request.endpoint, request.model)
        if place not in self._queues:
            name = f"{request.provider}/{request.model}"
            own = self.rates.get(name) or self.rates.get(request.model, {})
            declared = (
                *self._buckets(name, own),
                *self._buckets(request.provider, self.rates.get(request.provider, {})),
            )
            self._queues[place] = RateQueue(name=name, declared=declared, pace=AdaptivePace(self.random))
        return self._queues[place]

    def _buckets(self, owner: str, limits: RateLimits) -> tuple[tuple[str, TokenBucket], ...]:
        """Return the buckets of an entry of `rates`, which all queues share that it holds for."""
        if owner not in self._declared:
            now = self.clock()
            self._declared[owner] = tuple(
                (kind, TokenBucket(_label(kind, number, period_s), number, number / period_s, number, now))
                for kind, (number, period_s) in limits.items()
            )
        return self._declared[owner]

    def _give_all(self, now: float) -> float:
        """Give all permits that can be given now, in order of arrival; return the seconds until the next one."""
        soonest_s = math.inf
        blocked: set[int] = set()
        awaited: set[int] = set()
        while (queue := self._next_queue(blocked)) is not None:
            permit = queue.waiting[0]
            delay = queue.delay(permit, now)
            # An earlier request for another model waits for the same bucket: this one must not take from it.
            if delay <= 0 and awaited.isdisjoint(id(bucket) for _, bucket in queue.declared):
                self._give(permit, now)
                if queue.waiting:
                    queue.waiting[0].changed.notify()
                continue
            blocked.add(id(queue))
            awaited.update(id(bucket) for _, bucket in queue.full_buckets(permit, now))
            soonest_s = min(soonest_s, delay if delay > 0 else math.inf)
        return soonest_s

    def _next_queue(self, blocked: set[int]) -> RateQueue | None:
        """Return the queue with the earliest waiting request, of those that are not blocked."""
        open_queues = (one for one in self._queues.values() if one.waiting and id(one) not in blocked)
        return min(open_queues, key=lambda one: one.waiting[0].number, default=None)

    def _give(self, permit: Permit, now: float) -> None:
        permit.queue.waiting.remove(permit)
        permit.queue.send(permit, now)
        permit.is_given = True
        permit.changed.notify()

    def _correct(self, permit: Permit, usage: Usage, now: float) -> None:
        # A provider that counts no tokens shows nothing about the next request.
        if not usage.input_tokens:
            return
        # Cached input counts as the vendor counts it.
        sent = usage.input_tokens - (0 if permit.counts_cached else min(usage.cache_read_tokens, usage.input_tokens))
        took = {"tokens": sent + usage.output_tokens, "input_tokens": sent, "output_tokens": usage.output_tokens}
        for kind, bucket in permit.queue.declared:
            bucket.take(took[kind] - permit.cost[kind] if kind in took else 0, now)
        permit.queue.estimate.learn(permit.bytes, sent, usage.output_tokens)

    def _wake(self) -> None:
        """Wake the first request of each queue: what it waits for has changed."""
        for queue in self._queues.values():
            if queue.waiting:
                queue.waiting[0].changed.notify()

    def _wake_all(self) -> None:
        for queue in self._queues.values():
            for permit in queue.waiting:
                permit.changed.notify()


def _label(kind: str, number: int, period_s: float) -> str:
    period = _PERIODS.get(period_s) or f"{period_s:g} s"
    return f"{number:,} {_words(kind)}/{period}, from `rates`"


def _words(kind: str) -> str:
    return kind.replace("_", " ")
