"""Wrappers around a provider: readiness and consent, redaction, budget; and one in place of it."""

from collections.abc import Callable
from typing import NoReturn, Protocol

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import AwaitsResponseError, ConfigurationError, LimitError, ProviderError
from orch23.model.llm import Provider, Request, Response, Usage
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.faults import NotCollectedError, TransportError, redacted_messages
from orch23.providers.registry import check_call


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
        check_call(self.setting, self.asking.step)
        return self.inner.complete(request, deadline_s, on_text)


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

    def might_fit(self, stage: str, request: Request, /) -> bool:
        """Return whether a request would fit into the limits now, without reserving anything."""

    def with_cost(self, request: Request, response: Response, /) -> Response:
        """Return a response with its cost."""

    def settle(self, stage: str, response: Response, /) -> None:
        """Count the usage of a response, which is on disk, in place of its reservation."""

    def release(self, stage: str, /) -> None:
        """Drop a reservation: nothing was charged."""

    def settle_unusable(self, stage: str, usage: Usage, /, *, is_final: bool = True) -> None:
        """Count the usage that a server reported for a request without a usable response, so far or in total."""

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
        except NotCollectedError:
            # The reservation was made by the interrupted run, which submitted the response (ADR 8).
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
            if not isinstance(fault, TransportError):
                self.meter.forfeit(self.stage)
            elif fault.charged:
                self._count(fault.usage, is_final=fault.is_final)
            else:
                self.meter.release(self.stage)
            # Raises LimitError if the time is up: then that is the cause.
            self.meter.deadline_s(self.stage, deadline_s)
            raise
        except ConfigurationError:
            self.meter.release(self.stage)  # no key, no library: nothing was sent
            raise
        except NotCollectedError as lost:
            self._count(lost.usage)
            raise
        except BaseException:
            self.meter.forfeit(self.stage)
            raise

    def _count(self, usage: Usage | None, *, is_final: bool = True) -> None:
        """Count a call without a usable response: by the usage that the server reported, or as possibly charged."""
        if usage is None:
            self.meter.forfeit(self.stage)
        else:
            self.meter.settle_unusable(self.stage, usage, is_final=is_final)


class HoldingProvider(Struct, frozen=True):
    """A provider in a build that may not call models: the stage waits."""

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> NoReturn:
        """Refuse a request.

        Raises:
            AwaitsResponseError: always.
        """
        del request, deadline_s, on_text
        raise AwaitsResponseError
