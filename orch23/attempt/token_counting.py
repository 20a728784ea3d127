"""Count the tokens of a request by the vendor's interface, where the bound without a tokenizer is too high."""

from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.errors import LimitError, ProviderError
from orch23.model.llm import Provider, Request, Response
from orch23.providers.faults import TransportError, context_exceeded_error
from orch23.providers.model_facts import ModelFacts
from orch23.providers.prices import worst_case

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
