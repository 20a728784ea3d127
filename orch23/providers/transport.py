"""The transport policy of every provider: ask again where the same request may succeed, and never for long."""

import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.event import Event, HttpRetry
from orch23.model.llm import Provider, Request, Response
from orch23.providers import codes
from orch23.providers.faults import TransportError


class Transport(Struct, frozen=True, kw_only=True):
    """A provider that is asked again after a transient fault. Never an attempt of the stage.

    One deadline holds over all tries and the waiting between them. The waiting has no jitter: the stages of one build
    are few, and the same faults give the same times.
    """

    inner: Provider
    stage: str
    notice: Callable[[Event], None]
    delays_s: tuple[float, ...] = (1.0, 4.0)
    longest_wait_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer a request.

        Raises:
            ProviderError: the last fault, the first that asking again does not help, or a wait that is too long.
            LimitError: a further try does not fit into the budget.

        """
        until = self.clock() + deadline_s
        for number, delay in enumerate((*self.delays_s, None), start=1):
            left = until - self.clock()
            if left <= 0:
                raise ProviderError(_out_of_time(deadline_s, number - 1))
            try:
                response = self.inner.complete(request, left, on_text)
            except TransportError as fault:
                if delay is None or not fault.transient:
                    raise ProviderError(_after(fault.diagnostic, number)) from None
                wait = self._wait_s(fault, delay, until, number)
                self._tell(fault, wait, number + 1)
                on_text("\n")  # what comes next is another answer
                self.sleep(wait)
            else:
                return replace(response, requests=response.requests + number - 1)
        message = "BUG: the last try neither answers nor fails"
        raise AssertionError(message)

    def _wait_s(self, fault: TransportError, delay: float, until: float, number: int) -> float:
        """Return how long to wait: what the server asks for, or else the next delay.

        Raises:
            ProviderError: that is longer than a build sleeps, or than there is time.

        """
        asked = fault.retry_after_s
        wait = delay if asked is None else max(asked, 0.0)
        left = until - self.clock()
        if wait <= self.longest_wait_s and wait < left:
            return wait
        if asked is None:
            raise ProviderError(_after(fault.diagnostic, number)) from None
        longest = "a build waits" if wait > self.longest_wait_s else "`llm.timeout` leaves"
        limit = min(self.longest_wait_s, max(left, 0.0))
        message = (
            f"{fault.diagnostic.message}; it asks to wait {asked:.0f} s, longer than the {limit:.0f} s that {longest}"
        )
        hint = f"build again in {asked:.0f} s: nothing that was answered is asked again"
        raise ProviderError(Diagnostic(codes.WAIT_TOO_LONG, _times(message, number), hint=hint)) from None

    def _tell(self, fault: TransportError, wait_s: float, number: int) -> None:
        code = fault.diagnostic.code
        message = f"{fault.diagnostic.message}; asking again in {wait_s:.3g} s"
        data = HttpRetry(status=fault.status, code=code, delay_s=round(wait_s, 3), number=number)
        self.notice(Event(data, message, self.stage, "warning"))


def _after(diagnostic: Diagnostic, number: int) -> Diagnostic:
    return replace(diagnostic, message=_times(diagnostic.message, number))


def _times(message: str, number: int) -> str:
    return message if number == 1 else f"{message} (asked {number} times)"


def _out_of_time(deadline_s: float, number: int) -> Diagnostic:
    message = _times(f"there was no answer within {deadline_s:.0f} s", number)
    return Diagnostic(codes.TIMED_OUT, message, hint="raise `llm.timeout`")
