"""Wrappers around a provider: readiness and consent, redaction, retries, budget."""

import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ConsentError, LimitError, ProviderError
from orch23.model.event import Event, HttpRetry
from orch23.model.llm import Provider, Request, Response
from orch23.providers import codes
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.faults import TransportError, redacted_messages
from orch23.providers.registry import grant_for, not_granted_error, readiness_errors


class RedactingProvider(Struct, frozen=True):
    """A provider whose answers and complaints hold no secret of the caller's environment."""

    inner: Provider
    redact: Callable[[str], str]

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer a request.

        Raises:
            ProviderError: the provider failed; what it said of that, which may echo a header, is redacted too.

        """
        try:
            with redacted_messages(self.redact):
                response = self.inner.complete(request, deadline_s, on_text)
        except ProviderError as error:
            raise ProviderError(*(self._plain(one) for one in error.diagnostics)) from None
        return replace(
            response,
            text=self.redact(response.text),
            provenance=self.redact(response.provenance),
            model=self.redact(response.model),
            client=self.redact(response.client),
        )

    def _plain(self, complaint: Diagnostic) -> Diagnostic:
        return replace(
            complaint,
            message=self.redact(complaint.message),
            hint=None if complaint.hint is None else self.redact(complaint.hint),
            subject=None if complaint.subject is None else self.redact(complaint.subject),
        )


class CheckedProvider(Struct, frozen=True):
    """A provider that is asked only with a key, a library, a program.

    What a build would ask for sure is held to that before its first stage; this is for what shows only later.
    """

    inner: Provider
    setting: ProviderContext
    asking: CallContext

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer a request.

        Raises:
            ConfigurationError: something is missing; nothing was reserved or sent.
            ConsentError: the user has not consented to it; likewise.

        """
        step = replace(self.asking.step, model=request.model)
        missing = readiness_errors(step, self.setting.environ, self.setting.root)
        if missing:
            raise ConfigurationError(*missing)
        grant = grant_for(step, self.setting)
        if grant is not None and not self.setting.is_granted(grant):
            raise ConsentError(not_granted_error(grant, self.setting.trust_command))
        return self.inner.complete(request, deadline_s, on_text)


class RetryingProvider(Struct, frozen=True, kw_only=True):
    """A provider that is asked again after a transient fault. Never an attempt of the stage.

    One deadline holds over all tries and the waiting between them. The waiting has no jitter: the stages of one build
    are few, and the same faults give the same times.
    """

    inner: Provider
    stage: str
    emit: Callable[[Event], None]
    delays_s: tuple[float, ...] = (1.0, 4.0)
    max_wait_s: float = 60.0
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
        if wait <= self.max_wait_s and wait < left:
            return wait
        if asked is None:
            raise ProviderError(_after(fault.diagnostic, number)) from None
        longest = "a build waits" if wait > self.max_wait_s else "`llm.timeout` leaves"
        limit = min(self.max_wait_s, max(left, 0.0))
        message = (
            f"{fault.diagnostic.message}; it asks to wait {asked:.0f} s, longer than the {limit:.0f} s that {longest}"
        )
        hint = f"build again in {asked:.0f} s: nothing that was answered is asked again"
        raise ProviderError(Diagnostic(codes.WAIT_TOO_LONG, _times(message, number), hint=hint)) from None

    def _tell(self, fault: TransportError, wait_s: float, number: int) -> None:
        code = fault.diagnostic.code
        message = f"{fault.diagnostic.message}; asking again in {wait_s:.3g} s"
        data = HttpRetry(status=fault.status, code=code, delay_s=round(wait_s, 3), number=number)
        self.emit(Event(data, message, self.stage, "warning"))


def _after(diagnostic: Diagnostic, number: int) -> Diagnostic:
    return replace(diagnostic, message=_times(diagnostic.message, number))


def _times(message: str, number: int) -> str:
    return message if number == 1 else f"{message} (asked {number} times)"


def _out_of_time(deadline_s: float, number: int) -> Diagnostic:
    message = _times(f"there was no answer within {deadline_s:.0f} s", number)
    return Diagnostic(codes.TIMED_OUT, message, hint="raise `llm.timeout`")


class CallMeter(Protocol):
    """The port to whoever counts: calls, tokens, money, time. A stage has one request under way at most."""

    def reserve(self, stage: str, request: Request, /) -> None:
        """Set the worst case of a request aside; wait while it does not fit and others are under way.

        Raises:
            LimitError: it does not fit, and nothing is under way that could make room.
            ConfigurationError: it has no price, and there is a limit of cost.

        """

    def deadline_s(self, stage: str, asked_s: float, /) -> float:
        """Return how long a request may take: as asked, or what is left of the stage's wall time if that is less.

        Raises:
            LimitError: nothing is left of it.

        """

    def with_cost(self, request: Request, response: Response, /) -> Response:
        """Return an answer with what it cost."""

    def settle(self, stage: str, response: Response, /) -> None:
        """Count what an answer took instead of what was reserved; it is on disk by now."""

    def release(self, stage: str, /) -> None:
        """Give a reservation back: nothing was charged."""

    def forfeit(self, stage: str, /) -> None:
        """Count a reservation in full: it may have been charged, nobody says how much. Nothing if there is none."""


class MeteredProvider(Struct, frozen=True, kw_only=True):
    """A provider that reserves before it asks. Whoever records the answer settles it."""

    inner: Provider
    stage: str
    meter: CallMeter

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer a request that fits into the budget.

        Raises:
            LimitError: it does not fit, and nothing was sent; or the stage's wall time ended while it was under way.

        """
        self.meter.reserve(self.stage, request)
        try:
            left_s = self.meter.deadline_s(self.stage, deadline_s)
        except LimitError:
            self.meter.release(self.stage)
            raise
        try:
            return self.meter.with_cost(request, self.inner.complete(request, left_s, on_text))
        except (TransportError, ProviderError) as fault:
            if isinstance(fault, TransportError) and not fault.charged:
                self.meter.release(self.stage)
            else:
                self.meter.forfeit(self.stage)
            self.meter.deadline_s(self.stage, deadline_s)  # if no time is left, that is why it failed
            raise
        except ConfigurationError:
            self.meter.release(self.stage)  # no key, no library: nothing was sent
            raise
        except BaseException:
            self.meter.forfeit(self.stage)
            raise
