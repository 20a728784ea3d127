"""A provider whose requests are sent in batches."""

from collections.abc import Callable

from msgspec import Struct

from orch23.features.batches.calls import BatchCalls
from orch23.features.batches.results import GivenResult
from orch23.model.errors import ProviderError
from orch23.model.llm import Provider, Request, Response
from orch23.providers.faults import TransportError
from orch23.providers.middleware import MeteredProvider
from orch23.steps.llm.spec import LLMStep


class BatchingProvider(Struct, frozen=True, kw_only=True):
    """A provider that sends its requests in batches. With `inner`, only requests that are in a batch already are."""

    calls: BatchCalls
    step: LLMStep
    stage: str
    inner: Provider | None = None

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response of a batch that has ended.

        Raises:
            AwaitsResponseError: it is not there yet.
            ProviderError: the vendor refused the request, or the batch could not be submitted.
        """
        result = self.calls.take(request.fingerprint())
        if result is not None:
            metered = MeteredProvider(inner=GivenResult(result), stage=self.stage, meter=self.calls.ledger)
            try:
                return metered.complete(request, deadline_s, on_text)
            except TransportError as fault:
                if result.outcome != "expired":
                    self.calls.fail(result.fingerprint, fault.diagnostic)
                    raise ProviderError(fault.diagnostic) from None
        if self.inner is not None:
            return self.inner.complete(request, deadline_s, on_text)
        raise self.calls.ask(self.step, self.stage, request)
