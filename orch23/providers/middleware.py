"""Wrappers around a provider: readiness and consent, redaction, retries, budget."""

import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ConsentError, LimitError, ProviderError
from orch23.model.event import Event, HttpRetry
from orch23.model.llm import Provider, Request, Response, Usage
from orch23.providers import codes
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.faults import NotCollectedError, TransportError, redacted_messages
from orch23.providers.registry import grant_for, not_granted_error, readiness_errors


class RedactingProvider(Struct, frozen=True):
    """A provider whose responses and errors contain no secret of the environment."""

    inner: Provider
    redact: Callable[[str], str]

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the redacted response.

        Raises:
            ProviderError: the provider failed. Its message is redacted too: it may repeat a header.

        """
        try:
            with redacted_messages(self.redact):
                response = self.inner.complete(request, deadline_s, on_text)
        except ProviderError as error:
            raise ProviderError(*(self._redacted(one) for one in error.diagnostics)) from None
        # Here, between transport and transcripts: no adapter can forget it, and no secret is recorded (ADR 9).
        return replace(
            response,
            text=self.redact(response.text),
            provenance=self.redact(response.provenance),
            model=self.redact(response.model),
            client=self.redact(response.client),
        )

    def _redacted(self, error: Diagnostic) -> Diagnostic:
        return replace(
            error,
            message=self.redact(error.message),
            hint=error.hint and self.redact(error.hint),
            subject=error.subject and self.redact(error.subject),
        )


class CheckedProvider(Struct, frozen=True):
    """A provider that is called only if its key, library and program exist and the user has consented.

    A build checks the calls that are certain before its first stage; this is for calls that are known only later.
    """

    inner: Provider
    setting: ProviderContext
    asking: CallContext

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response.

        Raises:
            ConfigurationError: something is missing; nothing was reserved or sent.
            ConsentError: the user has not consented; nothing was reserved or sent.

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
    """A provider that repeats a request after a transient error. A retry is not an attempt of the stage.

    One deadline covers all tries and the waits between them. The waits have no jitter: a build has few stages, and
    equal errors then give equal times.
    """

    inner: Provider
    stage: str
    emit: Callable[[Event], None]
    delays_s: tuple[float, ...] = (1.0, 4.0)
    max_wait_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response of the first try that has one.

        Raises:
            ProviderError: the last error, the first that is not transient, or a wait that is too long.
            LimitError: another try does not fit into the budget.

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
                self._report(fault, wait, number + 1)
                on_text("\n")  # the text that follows is another response
                self.sleep(wait)
            else:
                return replace(response, requests=response.requests + number - 1)
        message = "BUG: the last try has neither a response nor an error"
        raise AssertionError(message)

    def _wait_s(self, fault: TransportError, delay: float, until: float, number: int) -> float:
        """Return the wait in seconds: the one that the server requires, or else the next delay.

        Raises:
            ProviderError: it is longer than a build waits, or than the time that is left.

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
        required = f"it requires a wait of {asked:.0f} s, longer than the {limit:.0f} s that {longest}"
        message = f"{fault.diagnostic.message}; {required}"
        hint = f"build again in {asked:.0f} s: recorded responses are reused"
        raise ProviderError(Diagnostic(codes.WAIT_TOO_LONG, _times(message, number), hint=hint)) from None

    def _report(self, fault: TransportError, wait_s: float, number: int) -> None:
        code = fault.diagnostic.code
        message = f"{fault.diagnostic.message}; retry in {wait_s:.3g} s"
        data = HttpRetry(status=fault.status, code=code, delay_s=round(wait_s, 3), number=number)
        self.emit(Event(data, message, self.stage, "warning"))


def _after(diagnostic: Diagnostic, number: int) -> Diagnostic:
    return replace(diagnostic, message=_times(diagnostic.message, number))


def _times(message: str, number: int) -> str:
    return message if number == 1 else f"{message} (after {number} tries)"


def _out_of_time(deadline_s: float, number: int) -> Diagnostic:
    message = _times(f"there was no response within {deadline_s:.0f} s", number)
    return Diagnostic(codes.TIMED_OUT, message, hint="raise `llm.timeout`")


class CallMeter(Protocol):
    """The port to the budget: calls, tokens, money, time. A stage has at most one open request."""

    def reserve(self, stage: str, request: Request, /) -> None:
        """Reserve the worst case of a request; wait while it does not fit and other requests are open.

        Raises:
            LimitError: it does not fit, and no other request is open.
            ConfigurationError: it has no price, and there is a limit of cost.

        """

    def deadline_s(self, stage: str, asked_s: float, /) -> float:
        """Return the time limit of a request: `asked_s`, or the rest of the stage's wall time if that is less.

        Raises:
            LimitError: no time is left.

        """

    def with_cost(self, request: Request, response: Response, /) -> Response:
        """Return a response with its cost."""

    def settle(self, stage: str, response: Response, /) -> None:
        """Count the usage of a response, which is on disk, in place of its reservation."""

    def release(self, stage: str, /) -> None:
        """Drop a reservation: nothing was charged."""

    def settle_unusable(self, stage: str, usage: Usage, /) -> None:
        """Count the usage that a server reported for a request without a usable response."""

    def forfeit(self, stage: str, /) -> None:
        """Count a reservation as possibly charged in full. Does nothing without a reservation."""


class MeteredProvider(Struct, frozen=True, kw_only=True):
    """A provider that reserves budget before each call. The caller that records the response settles it."""

    inner: Provider
    stage: str
    meter: CallMeter

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response to a request that fits into the budget.

        Raises:
            LimitError: it does not fit, and nothing was sent; or the stage's wall time ended during the call.

        """
        try:
            return self._call(request, deadline_s, on_text)
        except NotCollectedError as lost:
            # The reservation was that of the interrupted run, which submitted the response (ADR 8).
            if lost.usage is None:
                self.meter.forfeit(self.stage)
            else:
                self.meter.settle_unusable(self.stage, lost.usage)
        return self._call(request, deadline_s, on_text)

    def _call(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        # Before the request is sent: parallel stages could otherwise exceed the limit together (ADR 8).
        self.meter.reserve(self.stage, request)
        try:
            left_s = self.meter.deadline_s(self.stage, deadline_s)
        except LimitError:
            self.meter.release(self.stage)
            raise
        try:
            return self.meter.with_cost(request, self.inner.complete(request, left_s, on_text))
        except (TransportError, ProviderError) as fault:
            # A call of unknown cost counts in full against the limits (ADR 8).
            if isinstance(fault, TransportError) and not fault.charged:
                self.meter.release(self.stage)
            elif isinstance(fault, TransportError) and fault.usage is not None:
                self.meter.settle_unusable(self.stage, fault.usage)
            else:
                self.meter.forfeit(self.stage)
            # Raises LimitError if the time is up: then that is the cause.
            self.meter.deadline_s(self.stage, deadline_s)
            raise
        except ConfigurationError:
            self.meter.release(self.stage)  # no key, no library: nothing was sent
            raise
        except NotCollectedError:
            raise
        except BaseException:
            self.meter.forfeit(self.stage)
            raise
