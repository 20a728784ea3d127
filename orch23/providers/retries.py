"""Send a request when its rate limit allows it, and again after an error that may pass."""

import random
import time
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.event import Event
from orch23.model.llm import Provider, Request, Response
from orch23.model.text import format_duration
from orch23.providers.faults import TransportError
from orch23.providers.rate_headers import replies_heard_by
from orch23.providers.rate_limiter import Permit, RateLimiter
from orch23.providers.rate_wait import RateWait, WaitLimit, no_wall, retry_event


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
