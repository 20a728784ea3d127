"""The result of a request of a batch, as the response of a provider."""

from collections.abc import Callable

from msgspec import Struct

from orch23.model.batches import BatchResult
from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request, Response
from orch23.providers.faults import TransportError


class GivenResult(Struct, frozen=True):
    """A provider that has its only response already."""

    result: BatchResult

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response.

        Raises:
            TransportError: there is none.

        """
        del request, deadline_s
        result = self.result
        if result.response is not None:
            on_text(result.response.text)
            return result.response
        message = f"the request was {result.outcome} in its batch"
        hint = "nothing was charged; build again to send it again"
        error = result.error or Diagnostic("E401", message, hint=hint)
        raise TransportError(error, charged=result.outcome == "succeeded", usage=result.usage)
