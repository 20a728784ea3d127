"""Simulate stages that call a server with a rate limit through a limiter, on a clock that moves from event to event."""

import heapq
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Message, Request, Usage
from orch23.providers.rate_limiter import Permit, RateLimiter

DENIED = Diagnostic("E416", "no", hint="wait")


def request(model: str = "m", text: str = "x", max_tokens: int | None = None, provider: str = "p") -> Request:
    """Return a request of a size."""
    params = {} if max_tokens is None else {"max_tokens": max_tokens}
    messages = (Message("user", text),)
    return Request(
        provider=provider, model=model, endpoint="e", system="", messages=messages, identity=(), params=params
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a server says to a request: whether it accepts it, and headers."""

    accepted: bool
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Server(Protocol):
    """A server with a limit."""

    def judge(self, now: float) -> Verdict:
        """Accept or refuse a request."""


class BucketServer:
    """A server with a token bucket. It may say when the next token is there, and state its limits."""

    def __init__(self, size: float, per_s: float, *, says_when: bool = True, states: bool = False) -> None:
        self.size, self.per_s, self.says_when, self.states = size, per_s, says_when, states
        self.level, self.at = size, 0.0

    def judge(self, now: float) -> Verdict:
        self.level = min(self.size, self.level + (now - self.at) * self.per_s)
        self.at = now
        accepted = self.level >= 1 - 1e-9
        self.level -= accepted
        headers = {}
        if self.states:
            headers = {
                "x-ratelimit-limit-requests": f"{self.size:.0f}",
                "x-ratelimit-remaining-requests": f"{max(0, math.floor(self.level)):.0f}",
                "x-ratelimit-reset-requests": f"{(self.size - self.level) / self.per_s:.3f}s",
            }
        when = (1 - self.level) / self.per_s if not accepted and self.says_when else None
        return Verdict(accepted, when, headers)


class WindowServer:
    """A server that counts in fixed windows, such as each minute."""

    def __init__(self, limit: int, window_s: float, *, states: bool = False) -> None:
        self.limit, self.window_s, self.states = limit, window_s, states
        self.window, self.count = 0, 0

    def judge(self, now: float) -> Verdict:
        window = int(now // self.window_s)
        self.count = self.count if window == self.window else 0
        self.window = window
        accepted = self.count < self.limit
        self.count += accepted
        left_s = (window + 1) * self.window_s - now
        headers = {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(self.limit - self.count),
            "x-ratelimit-reset-requests": f"{left_s:.3f}s",
        }
        return Verdict(accepted, None if accepted else left_s, headers if self.states else {})


class DownServer:
    """A server that refuses everything for some time, and then nothing."""

    def __init__(self, until: float, retry_after_s: float | None) -> None:
        self.until, self.retry_after_s = until, retry_after_s

    def judge(self, now: float) -> Verdict:
        return Verdict(now >= self.until, None if now >= self.until else self.retry_after_s)


class _PausedError(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


@dataclass
class Simulation:
    """Calls with a number of jobs. `call_s` is what an accepted call takes, `latency_s` what each way takes.

    `sent` has the time and the arrival of each request that is sent, also of those that are refused.
    """

    server: Server
    jobs: int = 8
    call_s: float = 0.0
    latency_s: float = 0.005
    rates: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    usage: Usage | None = None
    now: float = 0.0
    sent: list[tuple[float, int]] = field(default_factory=list)
    refused: int = 0
    done: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self.limiter = RateLimiter(
            rates=self.rates, clock=lambda: self.now, random=random.Random(self.seed).random, pause=self._pause
        )
        self._waiting: list[Permit] = []
        self._free = self.jobs
        self._todo: list[Request] = []

    def run(self, requests: list[Request], arrivals: list[float] | None = None) -> float:
        """Make all calls; return the seconds that they take."""
        for number, one in enumerate(requests):
            self._at(arrivals[number] if arrivals else 0.0, lambda one=one: self._todo.append(one))  # type: ignore[misc]
        while self.done < len(requests):
            next_s = self._start()
            at = min(self.now + next_s, self._events[0][0] if self._events else math.inf)
            assert at < math.inf, f"nothing happens any more: {self.done} of {len(requests)} done"
            assert at >= self.now
            self.now = at
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
        return self.now

    def _start(self) -> float:
        """Start what can start now; return the seconds until the limiter has something to give."""
        while self._free and self._todo:
            self._free -= 1
            self._waiting.append(self.limiter.enter(self._todo.pop(0)))
        next_s = math.inf
        while True:
            heads = {id(one.queue): one for one in reversed(self._waiting)}
            for permit in heads.values():
                try:
                    self.limiter.wait(permit, 1e9)
                except _PausedError as paused:
                    next_s = min(next_s, paused.seconds)
            given = [one for one in self._waiting if one.is_given]
            if not given:
                return next_s
            self._waiting = [one for one in self._waiting if not one.is_given]
            for permit in given:
                self.sent.append((self.now, permit.number))
                self._at(self.now + self.latency_s, lambda permit=permit: self._arrive(permit))  # type: ignore[misc]
            next_s = math.inf

    def _arrive(self, permit: Permit) -> None:
        verdict = self.server.judge(self.now)
        self._at(self.now + self.latency_s, lambda: self._reply(permit, verdict))

    def _reply(self, permit: Permit, verdict: Verdict) -> None:
        self.limiter.hear(permit, 200 if verdict.accepted else 429, verdict.headers)
        if verdict.accepted:
            self._at(self.now + self.call_s, lambda: self._finish(permit))
            return
        self.refused += 1
        self.limiter.refuse(permit, verdict.retry_after_s, DENIED)
        permit.has_waited = False
        self._waiting.append(permit)
        self._waiting.sort(key=lambda one: one.number)

    def _finish(self, permit: Permit) -> None:
        self.limiter.finish(permit, self.usage)
        self.done += 1
        self._free += 1

    def _at(self, when: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act))

    @staticmethod
    def _pause(_condition: object, seconds: float) -> None:
        raise _PausedError(max(seconds, 1e-6))
