"""Send a request when its rate limit allows it, and again after an error that may pass. The user sees long waits."""

import math
import random
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import LimitError, ProviderError
from orch23.model.event import Event, HttpRetry, RateLimitWait
from orch23.model.llm import Provider, Request, Response
from orch23.model.text import format_duration
from orch23.providers.faults import TransportError
from orch23.providers.rate_limiter import Permit, RateLimiter
from orch23.providers.rate_limits import replies_heard_by

MAX_IDLE_S = 600.0
"""How long a request waits while the model sends no response, unless `max_wall` limits the stage or the run."""
_VISIBLE_S = 3.0

WaitLimit: TypeAlias = Callable[[], tuple[float, bool]]
"""Return the seconds that are left of the wall time of the stage, and whether it or the run has such a limit.

Raises a LimitError if no time is left.
"""


def no_wall() -> tuple[float, bool]:
    """Return that there is no limit."""
    return math.inf, False


class RateWait(Struct, kw_only=True):
    """The waits of one request, which may be refused several times.

    `patience_s` is how long it waits while the model sends no response, also if `max_wall` is later.
    """

    limiter: RateLimiter
    permit: Permit
    stage: str
    emit: Callable[[Event], None]
    wall: WaitLimit
    patience_s: float | None = None
    _began: float | None = None
    _is_shown: bool = False

    def until_given(self) -> None:
        """Wait until the request may be sent.

        Raises:
            ProviderError: it takes too long, or the build has ended.
            LimitError: the wall time of the stage ended.
        """
        while True:
            left_s = self.require_soon()
            waited_s = self._waited_s()
            self._show(waited_s)
            shown_in_s = left_s if self._is_shown else max(_VISIBLE_S - waited_s, 0.001)
            # At most some minutes at a time: progress moves the limit.
            if self.limiter.wait(self.permit, min(left_s, shown_in_s, MAX_IDLE_S)):
                return

    def again(self, fault: TransportError, number: int) -> None:
        """Note that the server refused the request: all requests for the model wait, this one at its old place.

        `number` is the number of the next request.

        Raises:
            ProviderError: it would take too long.
            LimitError: the wall time of the stage ended.
        """
        self.limiter.refuse(self.permit, fault.retry_after_s, fault.diagnostic)
        self.require_soon()
        self.emit(retry_event(fault, self.limiter.expected_s(self.permit)[0], number, self.stage))

    def end(self) -> None:
        """Note that the request was not refused: a later wait is another one."""
        self._began = None

    def require_soon(self) -> float:
        """Return how many seconds the wait may still take.

        Raises:
            ProviderError: it certainly takes longer, or it has taken as long as it may.
            LimitError: the wall time of the stage ended.
        """
        left_s, has_wall = self._left()
        certain_s, label = self.limiter.certain_s(self.permit)
        if left_s <= 0:
            raise ProviderError(self._given_up())
        if certain_s > left_s:
            raise ProviderError(self._too_long(certain_s, label, left_s, has_wall=has_wall))
        return left_s

    def _waited_s(self) -> float:
        now = self.limiter.clock()
        self._began = now if self._began is None else self._began
        return now - self._began

    def _left(self) -> tuple[float, bool]:
        """Return how many seconds the wait may still take, and whether `max_wall` is the reason."""
        waited_s = self._waited_s()
        try:
            wall_s, has_wall = self.wall()
        except LimitError as error:
            first, *more = error.diagnostics
            said = f"{first.message}; {self._summary(waited_s)}"
            raise type(error)(replace(first, message=said, hint=f"{first.hint}; {_WAY_OUT}"), *more) from None
        if has_wall and self.patience_s is None:
            return wall_s, True
        progress_s = self.limiter.clock() - self.permit.queue.progress_at
        left_s = self._longest_s - min(waited_s, progress_s)
        return (wall_s, True) if has_wall and wall_s < left_s else (left_s, False)

    @property
    def _longest_s(self) -> float:
        return MAX_IDLE_S if self.patience_s is None else self.patience_s

    def _show(self, waited_s: float) -> None:
        """Report the wait once, when it takes or will take more than a few seconds."""
        expected_s, label = self.limiter.expected_s(self.permit)
        if self._is_shown or max(waited_s, expected_s) < _VISIBLE_S:
            return
        self._is_shown = True
        queue, said = self.permit.queue, self.permit.queue.said
        limit = label or (said.message if said is not None else "")
        provider, _, model = queue.name.partition("/")
        data = RateLimitWait(provider=provider, model=model, wait_s=round(expected_s, 3), limit=limit)
        what = "the rate limit of" if label or said is None or said.code == "E416" else "the overloaded"
        seconds = f", {format_duration(expected_s)}" if expected_s > 0 else ""
        self.emit(Event(data, f"waits for {what} {queue.name}{seconds}", self.stage))

    def _summary(self, waited_s: float) -> str:
        """Return what the request waits for, how long it waited, and what the server said."""
        queue = self.permit.queue
        _, label = self.limiter.expected_s(self.permit)
        found = f"it waited {format_duration(waited_s)} for the rate limit of {queue.name}" + (
            f" ({label})" if label else ""
        )
        return found if queue.said is None else f"{found}; the last refusal: {queue.said.message}"

    def _given_up(self) -> Diagnostic:
        said = self.permit.queue.said
        message = (
            f"the model sent no response for {format_duration(self._longest_s)}; {self._summary(self._waited_s())}"
        )
        code = "E416" if said is None else said.code
        return Diagnostic(code, message, hint=f"build again later, or {_WAY_OUT}")

    def _too_long(self, certain_s: float, label: str, left_s: float, *, has_wall: bool) -> Diagnostic:
        said = self.permit.queue.said
        who = f"the limit {label}," if label or said is None else f"{said.message}; it"
        wait = format_duration(certain_s)
        longest_s, why = (left_s, "`max_wall` leaves") if has_wall else (self._longest_s, "a build waits")
        message = f"{who} requires a wait of {wait}, longer than the {format_duration(longest_s)} that {why}"
        hint = f"build again in {wait}: recorded responses are reused; or set stop_conditions.max_wall to more"
        return Diagnostic("E418", message, hint=hint)


def retry_event(fault: TransportError, delay_s: float, number: int, stage: str) -> Event:
    """Return the event of a request that is sent again after a delay."""
    code = fault.diagnostic.code
    data = HttpRetry(status=fault.status, code=code, delay_s=round(delay_s, 3), number=number)
    return Event(data, f"{fault.diagnostic.message}; retry in {delay_s:.3g} s", stage, "warning")


_WAY_OUT = "state the limits in `rates`, use fewer --jobs, or set stop_conditions.max_wall to more"


class RetryingProvider(Struct, frozen=True, kw_only=True):
    """A provider that waits for the rate limit, and repeats a request after a transient error.

    A retry is not an attempt of the stage. A refusal for the rate or load (429, 503, 529) is not a try either: all
    requests for the model wait, and this one is sent again. One deadline covers all tries and the delays between them,
    but not the waits for the rate limit. `patience` returns how long a request waits while its model sends no
    response, None for as long as usual. `random` returns a number from 0 to 1.
    """

    inner: Provider
    stage: str
    emit: Callable[[Event], None]
    limiter: RateLimiter = field(default_factory=RateLimiter)
    counts_cached: bool = True
    wall: WaitLimit = no_wall
    patience: Callable[[Request], float | None] = lambda _request: None
    delays_s: tuple[float, ...] = (1.0, 4.0)
    max_wait_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response of the first try that has one.

        Raises:
            ProviderError: the last error, the first that is not transient, or a wait that is too long.
            LimitError: another try does not fit into the budget, or the wall time ended during a wait.
        """
        permit = self.limiter.enter(request, counts_cached=self.counts_cached)
        try:
            return self._send(permit, request, deadline_s, on_text)
        except BaseException:
            self.limiter.leave(permit)
            raise

    def _send(self, permit: Permit, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        wait = RateWait(
            limiter=self.limiter,
            permit=permit,
            stage=self.stage,
            emit=self.emit,
            wall=self.wall,
            patience_s=self.patience(request),
        )
        until = self.clock() + deadline_s
        sent, tries = 0, 0
        while True:
            began = self.clock()
            wait.until_given()
            # Neither a wait nor a refused request counts against `llm.timeout`.
            until += self.clock() - began
            left = until - self.clock()
            if left <= 0:
                message = _times(f"there was no response within {deadline_s:.0f} s", tries)
                raise ProviderError(Diagnostic("E402", message, hint="raise `llm.timeout`"))
            sent += 1
            began = self.clock()
            try:
                with replies_heard_by(lambda status, headers: self.limiter.hear(permit, status, headers)):
                    response = self.inner.complete(request, left, on_text)
            except TransportError as fault:
                if fault.is_refusal:
                    until += self.clock() - began
                    wait.again(fault, sent + 1)
                else:
                    wait.end()
                    tries += 1
                    self._try_again(permit, fault, until, tries, sent)
                on_text("\n")  # the text that follows is another response
            else:
                self.limiter.finish(permit, response.usage)
                return replace(response, requests=response.requests + sent - 1)

    def _try_again(self, permit: Permit, fault: TransportError, until: float, tries: int, sent: int) -> None:
        self.limiter.finish(permit, None)
        delay = self._delay_s(fault, tries, until)
        self.emit(retry_event(fault, delay, sent + 1, self.stage))
        self.sleep(delay)
        self.limiter.wait_again(permit)

    def _delay_s(self, fault: TransportError, tries: int, until: float) -> float:
        """Return the delay before the next try: the one that the server requires, or else the next one, with jitter."""
        if tries > len(self.delays_s) or not fault.transient:
            raise ProviderError(_after(fault.diagnostic, tries)) from None
        asked = fault.retry_after_s
        # Stages that failed together must not try again together.
        delay = self.delays_s[tries - 1] * (0.5 + self.random()) if asked is None else max(asked, 0.0)
        left = until - self.clock()
        if delay <= self.max_wait_s and delay < left:
            return delay
        if asked is None:
            raise ProviderError(_after(fault.diagnostic, tries)) from None
        longest = "a build waits" if delay > self.max_wait_s else "`llm.timeout` leaves"
        limit = min(self.max_wait_s, max(left, 0.0))
        wait = format_duration(asked)
        required = f"it requires a wait of {wait}, longer than the {format_duration(limit)} that {longest}"
        message = f"{fault.diagnostic.message}; {required}"
        hint = f"build again in {wait}: recorded responses are reused"
        raise ProviderError(Diagnostic("E418", _times(message, tries), hint=hint)) from None


def _after(diagnostic: Diagnostic, number: int) -> Diagnostic:
    return replace(diagnostic, message=_times(diagnostic.message, number))


def _times(message: str, number: int) -> str:
    return message if number == 1 else f"{message} (after {number} tries)"


PATIENCE_S = 60.0
"""How long a request waits while its model sends no response, if there is a fallback."""
PROBE_S = 5.0
"""The same for a request that finds out whether an outage is over."""
PAUSE_S = 60.0
"""How long the requests of a run go to the fallback before one of them finds out."""

OUTAGES = frozenset({"E402", "E416", "E417", "E418", "E419", "E420"})
"""Codes of errors after which a fallback is called: the server does not serve, whatever the request is."""

Place: TypeAlias = tuple[str, str, str]


class Outages(Struct, kw_only=True):
    """The outages of a run, by provider, server and model; used by all threads."""

    clock: Callable[[], float] = time.monotonic
    _until: dict[Place, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_down(self, request: Request) -> bool:
        """Return whether the fallback goes first. After each pause one caller gets False: its request finds out."""
        with self._lock:
            now, until = self.clock(), self._until.get(_place(request))
            if until is None or now < until:
                return until is not None
            self._until[_place(request)] = now + PAUSE_S
            return False

    def patience_s(self, request: Request) -> float:
        """Return how long a request may wait without any response of its model."""
        with self._lock:
            return PROBE_S if _place(request) in self._until else PATIENCE_S

    def begin(self, request: Request) -> None:
        """Note that a model is down."""
        with self._lock:
            self._until[_place(request)] = self.clock() + PAUSE_S

    def end(self, request: Request) -> None:
        """Note that a model has responded."""
        with self._lock:
            self._until.pop(_place(request), None)

    def close(self) -> None:
        """Do nothing: there is nothing to end."""


class FallbackSetting(Struct, frozen=True, kw_only=True):
    """What decides whether fallbacks are called. With `is_usable`, one of them can be called on this machine.

    `notice` takes events about them.
    """

    outages: Outages
    is_usable: bool
    notice: Callable[[Event], None]


def _place(request: Request) -> Place:
    return request.provider, request.endpoint, request.model
