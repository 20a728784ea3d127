"""Wrappers around a provider: readiness and consent, redaction, budget; and one in place of it."""

from collections.abc import Callable
from typing import Final, NoReturn, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import AwaitsResponseError, ConfigurationError, LimitError, ProviderError
from orch23.model.llm import Provider, Request, Response, Usage
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.faults import NotCollectedError, TransportError, context_exceeded_error, redacted_messages
from orch23.providers.model_facts import ModelFacts
from orch23.providers.prices import worst_case
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


_BUDGETS: Final = frozenset({"E502", "E503"})
_COUNT_S: Final = 30.0
# The vendor calls its count an estimate that may differ by a small amount.
_SPARE: Final = 1.02


@runtime_checkable
class TokenCounter(Protocol):
    """A provider whose server counts the tokens of a request. That costs nothing, and calls no model."""

    def count_tokens(self, request: Request, deadline_s: float, /) -> int:
        """Return the input tokens of a request, within `deadline_s` seconds.

        Raises:
            TransportError: the server did not count them.
            ProviderError: the build has ended.
        """


class CountingProvider(Struct, frozen=True, kw_only=True):
    """A provider that counts before it gives up: if a request does not fit into the budget or the model's context.

    `inner` reserves the budget. Without a counter, or if that fails, the bound holds. `facts` are those of the model at
    its server; None if nothing is known. `might_fit` returns whether a request would fit into the budget.
    """

    inner: Provider
    counter: TokenCounter
    facts: ModelFacts | None
    might_fit: Callable[[Request], bool]

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response to a request.

        Raises:
            LimitError: it does not fit into the budget, even as the vendor counts it; nothing was sent.
            TransportError: it does not fit into the context of the model, as the vendor counts it; nothing was sent.
        """
        context = self.facts.context_tokens if self.facts is not None else None
        if context is not None and worst_case(request, None).tokens > context:
            request = self._counted(request, deadline_s)
            if request.input_tokens is not None and worst_case(request, None).tokens > context:
                raise context_exceeded_error(request, request.input_tokens, context)
        try:
            return self.inner.complete(request, deadline_s, on_text)
        except LimitError as refusal:
            if request.input_tokens is not None or refusal.diagnostics[0].code not in _BUDGETS:
                raise
            # If the response alone is too much, no count of the prompt helps.
            if not self.might_fit(replace(request, input_tokens=1)):
                raise
            counted = self._counted(request, deadline_s)
            if counted.input_tokens is None:
                raise
            return self.inner.complete(counted, deadline_s, on_text)

    def _counted(self, request: Request, deadline_s: float) -> Request:
        """Return the request with the count of its input tokens; as it is if the server does not count."""
        try:
            count = self.counter.count_tokens(request, min(deadline_s, _COUNT_S))
        except (TransportError, ProviderError):
            return request
        return replace(request, input_tokens=int(count * _SPARE)) if count > 0 else request
